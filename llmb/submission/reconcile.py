# SPDX-License-Identifier: Apache-2.0
"""Mends what a submitter that was killed has left: its runs are found again, or submitted, each exactly once."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from llmb.clusters.base import HINT_ELSEWHERE, Cluster, elsewhere
from llmb.errors import LlmbError
from llmb.runs import record, store
from llmb.runs.record import RunRecord
from llmb.runs.state import NOT_SUBMITTED, PENDING, UNKNOWN, JobState
from llmb.submission.dispatch import Handed, begin, hand_over_all, keep_id, owned, owner
from llmb.submission.leftovers import clean_parts
from llmb.system import locks
from llmb.system.process import ProcessId, is_at_work

_LOOK = 0.2  # seconds
FIX = "its submission was cut off; llmb-run jobs reconcile submits it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """What is known of runs without a scheduler's id: those that have one by now, and the state of the others."""

    sent: tuple[RunRecord, ...]
    states: dict[str, JobState]


def mend(cluster: Cluster, runs: Sequence[RunRecord]) -> Mended:
    """Look for runs that were recorded and have no scheduler's id. Those of a living submitter are left alone."""
    sent: list[RunRecord] = []
    states: dict[str, JobState] = {}
    abandoned: list[RunRecord] = []
    for run in runs:
        if (submitter := owner(run)) is not None:
            states[run.id] = JobState(state=PENDING, reason=f"it is being submitted by {_name(submitter)}")
            continue
        try:
            now, seen = _as_it_is(run)
        except LlmbError as error:
            states[run.id] = JobState(state=UNKNOWN, reason=error.message)
            continue
        if seen is not None and seen.is_end:
            states[run.id] = seen
        else:
            (abandoned if now.scheduler_id is None else sent).append(now)
    if abandoned:
        _look_for(cluster, abandoned, sent, states)
    return Mended(sent=tuple(sent), states=states)


def _as_it_is(run: RunRecord) -> tuple[RunRecord, JobState | None]:
    """Its record and its state by now. Raises LlmbError."""
    now = record.load(run.directory)
    return now, store.seen_state(now)


def _look_for(cluster: Cluster, runs: Sequence[RunRecord], sent: list[RunRecord], states: dict[str, JobState]) -> None:
    try:
        found = cluster.find(runs)
    except LlmbError as error:
        states |= {run.id: JobState(state=UNKNOWN).unanswered(error.message) for run in runs}
        return
    for run in runs:
        if run.id in found:
            sent.append(_keep(run, found[run.id]))
        else:
            states[run.id] = _not_found(cluster, run)


def _not_found(cluster: Cluster, run: RunRecord) -> JobState:
    """The state of a run that ``cluster`` does not know: not submitted, if this is the cluster that would know it."""
    try:
        where = elsewhere(cluster, run)
    except LlmbError as error:
        return JobState(state=UNKNOWN).unanswered(error.message)
    if where is not None:
        return JobState(state=UNKNOWN).elsewhere(where)
    return JobState(state=NOT_SUBMITTED, reason=FIX)


def _keep(run: RunRecord, scheduler_id: str) -> RunRecord:
    """Write the id down, unless another does so or the runs are not ours to write; the record with it."""
    with contextlib.suppress(LlmbError), owned(run):  # else the next to ask finds it as well
        now = record.load(run.directory)
        if now.attempt == run.attempt and now.scheduler_id is None:
            keep_id(now, scheduler_id)
    return run.submitted(scheduler_id)


def resubmit(
    cluster: Cluster,
    runs: Sequence[RunRecord],
    *,
    on_handed: Callable[[Handed], None] = lambda handed: None,
    on_settle: Callable[[float], None] = lambda seconds: None,
    on_interrupt: Callable[[], None] = lambda: None,
) -> tuple[list[Handed], bool]:
    """Submit runs that ``mend`` calls NOT_SUBMITTED, unless the cluster knows them by now; whether Ctrl-C came.

    A submission whose sender was killed may still be on its way: it is waited for, after ``on_settle`` was told how
    many seconds at least. A run that another process has submitted or is about to is left to it.
    """
    _settle(cluster, runs, on_settle)
    return hand_over_all(
        iter(runs),
        lambda run: _again(run, cluster),
        cluster,
        keep_going=True,
        on_handed=on_handed,
        on_interrupt=on_interrupt,
    )


def _settle(cluster: Cluster, runs: Sequence[RunRecord], on_settle: Callable[[float], None]) -> None:
    """Wait until no submission of these runs can arrive any more."""
    pace = cluster.pace
    # Without what comes before the run's own folder, which may be reached by several paths.
    scripts = tuple(f"/{run.script.relative_to(run.directory.parent)}" for run in runs)
    left = max(map(_written, runs), default=0.0) + pace.settle - time.time()
    here = pace.sender is not None and all(run.submitter.is_here for run in runs)

    def at_work() -> bool:  # a sender outlives whoever started it
        return here and is_at_work(pace.sender or "", scripts)

    if not at_work():
        if left <= 0:
            return
        left = min(left, pace.arrive) if here else left
        on_settle(left)
        time.sleep(left)
        if not at_work():  # one may have been about to begin
            return
    else:
        on_settle(pace.arrive)
    while at_work():
        time.sleep(_LOOK)
    time.sleep(pace.arrive)


def _written(run: RunRecord) -> float:
    """When the record was written last, in seconds since the epoch; 0 where it is gone."""
    try:
        return (run.directory / record.RECORD).stat().st_mtime
    except OSError:
        return 0.0


def _again(run: RunRecord, cluster: Cluster) -> Handed:
    try:
        with owned(run):
            now, seen = _as_it_is(run)
            if now.attempt != run.attempt or now.scheduler_id is not None or (seen is not None and seen.is_end):
                return Handed(run=now)  # another was quicker
            if (found := cluster.find([now]).get(now.id)) is not None:
                return keep_id(now, found)
            if (where := elsewhere(cluster, now)) is not None:
                return Handed(run=now, error=LlmbError(f"{now.id} is elsewhere: {where}", hint=HINT_ELSEWHERE))
            clean_parts(now)
            return begin(replace(now, submitter=ProcessId.current()), cluster)
    except locks.LockHeldError:
        return Handed(run=run)
    except LlmbError as error:
        return Handed(run=run, error=error)


def _name(process: ProcessId) -> str:
    return f"process {process.pid} on {process.host}" if process.pid else "another process"
