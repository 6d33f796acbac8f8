# SPDX-License-Identifier: Apache-2.0
"""Recovers the runs of a killed submitter: finds them on the cluster, or submits them, each exactly once."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from llmb.clusters.base import Cluster, elsewhere
from llmb.errors import LlmbError
from llmb.runs import record, store
from llmb.runs.state import NOT_SUBMITTED, PENDING, UNKNOWN, JobState
from llmb.submission import submit
from llmb.submission.submit import SubmitResult, remove_parts, submission_lock
from llmb.system import locks
from llmb.system.process import ProcessId, is_at_work

_LOOK = 0.2  # seconds
FIX = "its submission was interrupted; llmb-run jobs reconcile submits it"


def recover(cluster: Cluster, runs: Sequence[record.RunRecord]) -> tuple[list[record.RunRecord], dict[str, JobState]]:
    """Look for recorded runs without a scheduler's id: those that have one now, and the states of the others.

    Those of a living submitter are PENDING.
    """
    sent: list[record.RunRecord] = []
    states: dict[str, JobState] = {}
    abandoned: list[record.RunRecord] = []
    for run in runs:
        if (submitter := submit.submitter_of(run)) is not None:
            states[run.id] = JobState(state=PENDING, reason=f"it is being submitted by {_name(submitter)}")
            continue
        try:
            now, seen = _reload(run)
        except LlmbError as error:
            states[run.id] = JobState(state=UNKNOWN, reason=error.message)
            continue
        if seen is not None and seen.is_end:
            states[run.id] = seen
        else:
            (abandoned if now.scheduler_id is None else sent).append(now)
    if abandoned:
        _find_abandoned(cluster, abandoned, sent, states)
    return sent, states


def _reload(run: record.RunRecord) -> tuple[record.RunRecord, JobState | None]:
    """The record and the last state, read again. Raises LlmbError."""
    now = record.load(run.directory)
    return now, store.seen_state(now)


def _find_abandoned(
    cluster: Cluster, runs: Sequence[record.RunRecord], sent: list[record.RunRecord], states: dict[str, JobState]
) -> None:
    try:
        found = cluster.find(runs)
    except LlmbError as error:
        states |= {run.id: JobState(state=UNKNOWN).unanswered(error.message) for run in runs}
        return
    for run in runs:
        if run.id in found:
            sent.append(_store_found(run, found[run.id]))
        else:
            missing = JobState(state=NOT_SUBMITTED, reason=FIX)
            states[run.id] = unless_elsewhere(cluster, run, missing, JobState(state=UNKNOWN))


def unless_elsewhere(cluster: Cluster, run: record.RunRecord, state: JobState, before: JobState) -> JobState:
    """``state`` of a run that ``cluster`` does not know; ``before`` where the run is on another cluster, or unclear."""
    try:
        where = elsewhere(cluster, run)
    except LlmbError as error:
        return before.unanswered(error.message)
    return state if where is None else before.elsewhere(where)


def _store_found(run: record.RunRecord, scheduler_id: str) -> record.RunRecord:
    """The record with its id, which is written to disk unless another process does so or it is another user's run."""
    with contextlib.suppress(LlmbError), submission_lock(run):  # else the next command finds it too
        now = record.load(run.directory)
        if now.attempt == run.attempt and now.scheduler_id is None:
            submit.store_id(now, scheduler_id)
    return run.submitted(scheduler_id)


def resubmit(
    cluster: Cluster,
    runs: Sequence[record.RunRecord],
    *,
    on_result: Callable[[SubmitResult], None] = lambda results: None,
    on_settle: Callable[[float], None] = lambda seconds: None,
    on_interrupt: Callable[[], None] = lambda: None,
) -> tuple[list[SubmitResult], bool]:
    """Submit runs that are NOT_SUBMITTED, unless the cluster knows them by now; and whether Ctrl-C interrupted.

    A submission whose sender was killed may still arrive, so this waits first and calls ``on_settle`` with the seconds.
    A run that another process has submitted or is submitting is skipped.
    """
    _settle(cluster, runs, on_settle)
    return submit.submit_each(
        iter(runs),
        lambda run: _submit_again(run, cluster),
        cluster,
        keep_going=True,
        on_result=on_result,
        on_interrupt=on_interrupt,
    )


def _settle(cluster: Cluster, runs: Sequence[record.RunRecord], on_settle: Callable[[float], None]) -> None:
    """Wait until no earlier submission of these runs can arrive."""
    pace = cluster.pace
    # Relative to the run's folder, which several paths may lead to.
    scripts = tuple(f"/{run.script.relative_to(run.directory.parent)}" for run in runs)
    left = max(map(_written, runs), default=0.0) + pace.settle - time.time()
    here = pace.sender is not None and all(run.submitter.is_here for run in runs)

    def is_sending() -> bool:  # a sender outlives the process that started it
        return here and is_at_work(pace.sender or "", scripts)

    if not is_sending():
        if left <= 0:
            return
        left = min(left, pace.arrive) if here else left
        on_settle(left)
        time.sleep(left)
        if not is_sending():  # a sender may have started meanwhile
            return
    else:
        on_settle(pace.arrive)
    while is_sending():
        time.sleep(_LOOK)
    time.sleep(pace.arrive)


def _written(run: record.RunRecord) -> float:
    """When the record was last written, in seconds since the epoch; 0 where it is missing."""
    try:
        return (run.directory / record.RECORD).stat().st_mtime
    except OSError:
        return 0.0


def _submit_again(run: record.RunRecord, cluster: Cluster) -> SubmitResult:
    try:
        with submission_lock(run):
            now, seen = _reload(run)
            if now.attempt != run.attempt or now.scheduler_id is not None or (seen is not None and seen.is_end):
                return SubmitResult(run=now)  # another process was faster
            if (found := cluster.find([now]).get(now.id)) is not None:
                return submit.store_id(now, found)
            submit.check_is_here(cluster, now)
            remove_parts(now)
            return submit.start_attempt(replace(now, submitter=ProcessId.current()), cluster)
    except locks.LockHeldError:
        return SubmitResult(run=run)
    except LlmbError as error:
        return SubmitResult(run=run, error=error)


def _name(process: ProcessId) -> str:
    return f"process {process.pid} on {process.host}" if process.pid else "another process"
