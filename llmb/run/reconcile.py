# SPDX-License-Identifier: Apache-2.0
"""Recover the runs of a killed submitter: find them on the cluster, or submit each exactly once."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from llmb.contract import record
from llmb.contract.cluster import Cluster, elsewhere
from llmb.contract.state import NOT_SUBMITTED, PENDING, UNKNOWN, JobState
from llmb.core import locks
from llmb.core.process import ProcessId, is_at_work
from llmb.errors import LlmbError
from llmb.kit.seen_state import last_seen
from llmb.run import store
from llmb.run.submission import (
    SubmitResult,
    check_is_here,
    remove_parts,
    start_attempt,
    store_id,
    submission_lock,
    submit_each,
    submitter_of,
)

_SENDER_PERIOD = 0.2  # seconds between two looks for a sender
FIX = "its submission was interrupted; llmb-run jobs reconcile submits it"


def recover(
    cluster: Cluster, runs: Sequence[record.RunRecord]
) -> tuple[list[record.RunRecord], dict[str, JobState]]:
    """Look for recorded runs without a scheduler's id.

    Returns the runs that have one now, and the states of the others. Runs of a living submitter are
    PENDING.
    """
    sent: list[record.RunRecord] = []
    states: dict[str, JobState] = {}
    abandoned: list[record.RunRecord] = []
    for run in runs:
        # The lock tells a slow submitter from a dead one: only the runs of dead ones are sought.
        if (submitter := submitter_of(run)) is not None:
            states[run.id] = JobState(
                state=PENDING, reason=f"it is being submitted by {_name(submitter)}"
            )
            continue
        # The submitter may have ended after this command read the record.
        try:
            current, last = _reload(run)
        except LlmbError as error:
            states[run.id] = JobState(state=UNKNOWN, reason=error.message)
            continue
        if last is not None and last.is_end:
            states[run.id] = last
        else:
            (abandoned if current.scheduler_id is None else sent).append(current)
    if abandoned:
        _find_abandoned(cluster, abandoned, sent, states)
    return sent, states


def _reload(run: record.RunRecord) -> tuple[record.RunRecord, JobState | None]:
    """Read the record and the last state again. Raises LlmbError."""
    current = record.load(run.directory)
    return current, store.seen_state(current)


def _find_abandoned(
    cluster: Cluster,
    runs: Sequence[record.RunRecord],
    sent: list[record.RunRecord],
    states: dict[str, JobState],
) -> None:
    try:
        scheduler_ids = cluster.find(runs)
    except LlmbError as error:
        states |= {run.id: JobState(state=UNKNOWN).unanswered(error.message) for run in runs}
        return
    for run in runs:
        if run.id in scheduler_ids:
            sent.append(_store_found(run, scheduler_ids[run.id]))
        else:
            last = last_seen(run)  # a full queue has its own reason
            is_known = last.state == NOT_SUBMITTED and last.reason
            missing = last if is_known else JobState(state=NOT_SUBMITTED, reason=FIX)
            states[run.id] = unless_elsewhere(cluster, run, missing, JobState(state=UNKNOWN))


def unless_elsewhere(
    cluster: Cluster, run: record.RunRecord, state: JobState, before: JobState
) -> JobState:
    """Return ``state`` of a run that ``cluster`` does not know, if no other cluster has it.

    Otherwise, and if that is unclear, return ``before``.
    """
    try:
        other_cluster = elsewhere(cluster, run)
    except LlmbError as error:
        return before.unanswered(error.message)
    return state if other_cluster is None else before.elsewhere(other_cluster)


def _store_found(run: record.RunRecord, scheduler_id: str) -> record.RunRecord:
    """Return the record with its id, written to disk if no other process does so and it may be."""
    with contextlib.suppress(LlmbError), submission_lock(run):  # else the next command finds it too
        current = record.load(run.directory)
        if current.attempt == run.attempt and current.scheduler_id is None:
            store_id(current, scheduler_id)
    return run.submitted(scheduler_id)


def resubmit(
    cluster: Cluster,
    runs: Sequence[record.RunRecord],
    *,
    on_result: Callable[[SubmitResult], None] = lambda results: None,
    on_wait: Callable[[float], None] = lambda seconds: None,
    on_interrupt: Callable[[], None] = lambda: None,
) -> tuple[list[SubmitResult], bool]:
    """Submit runs that are NOT_SUBMITTED, unless the cluster knows them by now.

    Returns the results, and True if Ctrl-C interrupted. A submission whose sender was killed may
    still arrive, so this waits first and calls ``on_wait`` with the seconds. A run that another
    process has submitted or is submitting is skipped.
    """
    _await_arrival(cluster, runs, on_wait)
    return submit_each(
        iter(runs),
        lambda run: _submit_again(run, cluster),
        cluster,
        keep_going=True,
        on_result=on_result,
        on_interrupt=on_interrupt,
    )


def _await_arrival(
    cluster: Cluster, runs: Sequence[record.RunRecord], on_wait: Callable[[float], None]
) -> None:
    """Wait until no earlier submission of these runs can arrive."""
    pace = cluster.pace
    # Relative to the run's folder, which several paths may lead to.
    scripts = tuple(f"/{run.script.relative_to(run.directory.parent)}" for run in runs)
    seconds = max(map(_written, runs), default=0.0) + pace.arrival_timeout - time.time()
    # The clock may have been set back, or it is behind the file server's: no record is of later.
    seconds = min(seconds, pace.arrival_timeout)
    is_local = pace.sender is not None and all(run.submitter.is_here for run in runs)

    # A sender outlives the process that started it: after a kill, its submission is under way.
    def is_sending() -> bool:
        return is_local and is_at_work(pace.sender or "", scripts)

    if not is_sending():
        if seconds <= 0:
            return
        # On the host of the submitters no sender is left: only what has been sent may still arrive.
        # From another host senders cannot be seen, so the whole time since the record passes.
        seconds = min(seconds, pace.arrive) if is_local else seconds
        on_wait(seconds)
        time.sleep(seconds)
        if not is_sending():  # one may have started between the record and its submission
            return
    else:
        on_wait(pace.arrive)
    while is_sending():
        time.sleep(_SENDER_PERIOD)
    time.sleep(pace.arrive)


def _written(run: record.RunRecord) -> float:
    """Return when the record was last written (seconds since 1970), or 0 if it is missing."""
    try:
        return (run.directory / record.RECORD).stat().st_mtime
    except OSError:
        return 0.0


def _submit_again(run: record.RunRecord, cluster: Cluster) -> SubmitResult:
    try:
        with submission_lock(run):
            current, last = _reload(run)
            # Nothing that was read before the lock counts: another process may have submitted it.
            if (
                current.attempt != run.attempt
                or current.scheduler_id is not None
                or (last is not None and last.is_end)
            ):
                return SubmitResult(run=current)
            # The killed submission may have arrived: asking the cluster comes before submitting.
            if (scheduler_id := cluster.find([current]).get(current.id)) is not None:
                return store_id(current, scheduler_id)
            check_is_here(cluster, current)
            remove_parts(current)
            return start_attempt(replace(current, submitter=ProcessId.current()), cluster)
    except locks.LockHeldError:
        return SubmitResult(run=run)
    except LlmbError as error:
        return SubmitResult(run=run, error=error)


def _name(process: ProcessId) -> str:
    return f"process {process.pid} on {process.host}" if process.pid else "another process"
