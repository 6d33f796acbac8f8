# SPDX-License-Identifier: Apache-2.0
"""Poll all open runs at once, and store their states."""

import time
from collections.abc import Sequence

from llmb.contract.cluster import Cluster
from llmb.contract.record import RunRecord
from llmb.contract.state import (
    LOST,
    NO_FOLDER_CODE,
    UNKNOWN,
    JobState,
    confirm_lost,
)
from llmb.core import console, files
from llmb.errors import LlmbError
from llmb.kit.seen_state import last_seen
from llmb.run import store
from llmb.run.reconcile import recover, unless_elsewhere


def poll(cluster: Cluster, runs: Sequence[RunRecord]) -> dict[str, JobState]:
    """Return the state of each run by its id. Runs that have ended are not polled again.

    Runs of a killed submitter are recovered first: a run that the cluster knows gets its id.
    """
    states = {run.id: last for run in runs if (last := last_seen(run)).is_final}
    # An end that was stored is never asked again: a cluster may forget its old jobs.
    live = [run for run in runs if run.id not in states]
    # A run without an id may be a job all the same, if its submitter was killed before it wrote it.
    recovered, unsent_states = recover(cluster, [run for run in live if run.scheduler_id is None])
    states |= unsent_states
    sent = [*(run for run in live if run.scheduler_id is not None), *recovered]
    polled = cluster.poll(sent) if sent else {}
    for run in sent:
        states[run.id] = _stored(cluster, run, polled.get(run.id, JobState(state=UNKNOWN)))
    return states


def _stored(cluster: Cluster, run: RunRecord, state: JobState) -> JobState:
    """Return the resulting state, stored if possible. A doubtful one is not stored."""
    if state.is_end and not files.is_folder(run.directory):
        return _without_folder(run, state)
    # A run that this cluster does not know is lost only if no other cluster took it.
    if state.state == LOST and not state.certain and not state.is_doubtful:
        state = unless_elsewhere(cluster, run, state, last_seen(run))
    if state.is_doubtful:
        return state
    state = confirm_lost(store.seen_state(run), state, time.time())
    try:
        return store.save_state(run, state)
    except files.DiskFullError as error:  # the state is valid, and is polled again
        text = f"{error.message}. Free space there: runs lose their logs and their ends meanwhile."
        console.warn_once(text, key="disk-full")
        return state
    except LlmbError:  # another user's run
        return state


def _without_folder(run: RunRecord, end: JobState) -> JobState:
    """Return the end of a run whose folder was deleted, and its log and results with it."""
    was = "" if end.state == LOST else f"; the job ended {end.state}"
    return JobState(
        state=LOST,
        certain=True,
        reason=f"its folder was deleted, and its results with it{was}: {run.directory}",
        started=end.started,
        ended=end.ended or time.time(),
        nodes=end.nodes,
        code=NO_FOLDER_CODE,
    )


def try_poll(
    cluster: Cluster, runs: Sequence[RunRecord]
) -> tuple[dict[str, JobState], LlmbError | None]:
    """Poll, or return the last states and the error if the cluster does not answer."""
    try:
        return poll(cluster, runs), None
    except LlmbError as error:
        return {run.id: last_seen(run) for run in runs}, error
