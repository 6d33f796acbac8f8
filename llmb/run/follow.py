# SPDX-License-Identifier: Apache-2.0
"""Follow runs until they end, and retry after node failures.

Cancels runs too: waiting, running, or recorded and never submitted.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from llmb.contract import record
from llmb.contract.cluster import HINT_ELSEWHERE, Cluster, Pace
from llmb.contract.record import RunRecord
from llmb.contract.state import (
    CANCELLED,
    LOST,
    NO_FOLDER_CODE,
    NOT_SUBMITTED,
    RUNNING,
    UNKNOWN,
    JobState,
)
from llmb.core.values import dataclass
from llmb.errors import LlmbError
from llmb.kit.cancellation import NotCancelledError
from llmb.run import store
from llmb.run.polling import poll
from llmb.run.retry import RETRIABLE, may_be_retried, retry
from llmb.run.submission import SubmitResult, submission_lock

_GROWTH = 1.5
_JITTER = 0.2
_LOG_INTERVAL = 5.0  # seconds: reading a log is cheap, asking a scheduler is not
_LOGS_A_SECOND = 20  # that are opened, perhaps on a network file system

OnRound = Callable[[Sequence[RunRecord], Mapping[str, JobState]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Callbacks while runs are followed: each round, each retry with the end before it, each error.

    ``between_rounds`` is called every few seconds of a longer pause, with the states of the last
    round. It may read logs, and asks the cluster nothing. An error is reported once. One about a
    run has the code of its state, and its id as the value.
    """

    on_round: OnRound = lambda runs, states: None
    between_rounds: OnRound | None = None
    on_retry: Callable[[SubmitResult, JobState], None] = lambda results, end: None
    on_trouble: Callable[[LlmbError], None] = lambda error: None
    on_submit: Callable[[SubmitResult], None] = lambda result: None


class JobSource(Protocol):
    """Jobs that are submitted while runs are followed, as soon as the queue has a free place."""

    @property
    def is_due(self) -> bool:
        """Return True if jobs remain that are submitted as soon as there is a free place."""

    @property
    def interrupted(self) -> bool:
        """Return True if Ctrl-C ended the last submission."""

    def refill(
        self, in_queue: int, on_result: Callable[[SubmitResult], None]
    ) -> list[SubmitResult]:
        """Submit as many as there are free places, besides ``in_queue`` followed runs."""


def wait(
    cluster: Cluster,
    runs: Sequence[RunRecord],
    watcher: Watcher,
    *,
    retries: int = 0,
    source: JobSource | None = None,
) -> tuple[list[RunRecord], dict[str, JobState]]:
    """Poll until every run is over. Return the runs, each as its last attempt, and their states.

    The jobs of ``source`` are submitted when there is a free place, and followed too.

    A run that a node failure, a preemption or the like has ended is retried up to ``retries``
    times, a lost one only when it cannot reappear. A cluster that does not answer is polled again.
    Ctrl-C does not end the jobs. Raises LlmbError if all remaining runs are on another cluster.
    """
    followed, remaining_retries, pause = (
        list(runs),
        {run.id: retries for run in runs},
        _Pause(cluster.pace),
    )
    trouble = ""
    states: dict[str, JobState] = {}
    while True:
        words: list[str] | None = None
        try:
            states = poll(cluster, followed)
        except LlmbError as error:
            # A scheduler may restart while its jobs go on: it is polled again, and reported once.
            if error.message != trouble:
                watcher.on_trouble(error)
            trouble = error.message
        else:
            run_id, doubt = next(
                (pair for pair in states.items() if pair[1].is_doubtful),
                ("", JobState(state=UNKNOWN)),
            )
            if doubt.detail not in ("", trouble):
                watcher.on_trouble(LlmbError(doubt.detail, code=doubt.code, value=run_id))
            trouble = doubt.detail
            watcher.on_round(followed, states)
            broken = [
                run
                for run in followed
                if states[run.id].state in RETRIABLE
                and states[run.id].code != NO_FOLDER_CODE
                and remaining_retries[run.id] > 0
            ]
            open_ = [state for state in states.values() if not state.is_over]
            added = _added(source, len(open_), watcher)
            followed += added
            remaining_retries |= {run.id: retries for run in added}
            is_due = source is not None and source.is_due
            if not broken and not open_ and not added and not is_due:
                return followed, states
            if open_ and not is_due and all(state.is_elsewhere for state in open_):
                subject = (
                    f"{len(open_)} runs are elsewhere" if len(open_) > 1 else "the run is elsewhere"
                )
                raise LlmbError(
                    f"{subject}: {open_[0].detail}", hint=HINT_ELSEWHERE, code="run-elsewhere"
                )
            # A lost run may reappear: a second attempt beside it would measure both wrongly.
            ready = [run for run in broken if may_be_retried(states[run.id], time.time())]
            followed = _retried(cluster, followed, ready, states, watcher)
            for run in ready:
                remaining_retries[run.id] -= 1
            words = [*(state.state for state in states.values()), *("" for _ in added)]
        _sleep(pause.after(words), watcher, [run for run in followed if run.id in states], states)


def _sleep(
    seconds: float, watcher: Watcher, runs: Sequence[RunRecord], states: Mapping[str, JobState]
) -> None:
    """Sleep between two polls, and call ``between_rounds`` on the way, less often for many runs."""
    running = sum(states[run.id].state == RUNNING for run in runs)
    interval = max(_LOG_INTERVAL, running / _LOGS_A_SECOND)
    while watcher.between_rounds is not None and running and seconds > interval:
        time.sleep(interval)
        seconds -= interval
        watcher.between_rounds(runs, states)
    time.sleep(seconds)


def _added(source: JobSource | None, in_queue: int, watcher: Watcher) -> list[RunRecord]:
    """Return the runs that ``source`` has submitted now. Raises KeyboardInterrupt."""
    if source is None or not source.is_due:
        return []
    try:
        results = source.refill(in_queue, watcher.on_submit)
    except LlmbError as error:  # the next round tries again
        watcher.on_trouble(error)
        return []
    if source.interrupted:
        raise KeyboardInterrupt
    return [result.run for result in results if result.error is None]


def _retried(
    cluster: Cluster,
    followed: list[RunRecord],
    broken: Sequence[RunRecord],
    states: Mapping[str, JobState],
    watcher: Watcher,
) -> list[RunRecord]:
    """Return ``followed`` with a new attempt of each of ``broken``."""
    if not broken:
        return followed
    results, interrupted = retry(
        cluster, broken, on_result=lambda result: watcher.on_retry(result, states[result.run.id])
    )
    if interrupted:
        raise KeyboardInterrupt
    newest = {result.run.id: result.run for result in results}
    return [newest.get(run.id, run) for run in followed]


class _Pause:
    """The pause before the next poll: longer while nothing changes.

    It is random too, so that many waiting commands do not poll in step.
    """

    def __init__(self, pace: Pace) -> None:
        self.pace, self.seconds = pace, pace.poll
        self.before: list[str] | None = None

    def after(self, words: list[str] | None) -> float:
        """Return the seconds to wait after these states (None if the cluster did not answer)."""
        changed = words is not None and words != self.before
        self.before = words if words is not None else self.before
        self.seconds = (
            self.pace.poll if changed else min(self.seconds * _GROWTH, self.pace.slowest_poll)
        )
        if self.pace.slowest_poll <= self.pace.poll:
            return self.pace.poll
        return self.seconds * random.uniform(1 - _JITTER, 1 + _JITTER)


_STILL_DOUBTFUL = 86400.0  # seconds after a run was LOST; later its id may be another job's


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelResult:
    """Runs being cancelled, runs that had ended before, and runs not cancelled with reasons."""

    cancelling: list[record.RunRecord] = field(default_factory=list)
    ended: list[tuple[record.RunRecord, JobState]] = field(default_factory=list)
    not_cancelled: list[tuple[record.RunRecord, str]] = field(default_factory=list)


def cancel(cluster: Cluster, runs: Sequence[record.RunRecord]) -> CancelResult:
    """Cancel these runs. Raises LlmbError."""
    states = poll(cluster, runs)
    result = CancelResult()
    sent: list[record.RunRecord] = []
    doubtful: list[record.RunRecord] = []
    for run in runs:
        current, state = record.load(run.directory), states[run.id]
        if _may_still_run(current, state):
            doubtful.append(current)
        elif state.is_end:
            result.ended.append((current, state))
        elif state.state == NOT_SUBMITTED:
            _withdraw(current, result)
        elif current.scheduler_id is None:
            result.not_cancelled.append((current, state.reason or "it is being submitted"))
        elif state.is_elsewhere:
            result.not_cancelled.append((current, state.reason))
        else:
            sent.append(current)
    refused = _refused(cluster, sent) | _refused(cluster, doubtful, states)
    for run in (*sent, *doubtful):
        if run.id in refused:
            result.not_cancelled.append((run, refused[run.id]))
        else:
            result.cancelling.append(run)
    return result


def _refused(
    cluster: Cluster,
    runs: Sequence[record.RunRecord],
    doubts: Mapping[str, JobState] | None = None,
) -> dict[str, str]:
    """Cancel ``runs`` by one request, and return why some were not cancelled, by their ids.

    ``doubts``: their states if the cluster did not find them. Else LlmbError is raised.
    """
    if not runs:
        return {}
    try:
        cluster.cancel(runs)
    except NotCancelledError as error:
        return error.reasons
    except LlmbError as error:
        if doubts is None:
            raise
        if len(runs) == 1:
            return {runs[0].id: doubts[runs[0].id].reason or error.message}
        # one of them may be gone, which says nothing of the others
        alone = (_refused(cluster, [run], doubts) for run in runs)
        return {run_id: reason for reasons in alone for run_id, reason in reasons.items()}
    return {}


def _may_still_run(run: record.RunRecord, state: JobState) -> bool:
    """Return True for a run that its cluster did not find: its job may run under another name."""
    if run.scheduler_id is None or state.certain or state.is_elsewhere:
        return False
    if state.state == LOST:
        return state.ended is None or time.time() - state.ended < _STILL_DOUBTFUL
    return not state.is_end and state.missing_since is not None


def _withdraw(run: record.RunRecord, result: CancelResult) -> None:
    """Cancel a run that no process is submitting, unless one starts to at this moment."""
    try:
        with submission_lock(run):
            current = record.load(run.directory)
            # Under the lock nobody submits it, and nobody submits it after an end is stored.
            if current.scheduler_id is None:
                store.save_state(
                    current,
                    JobState(state=CANCELLED, reason="before it was submitted", ended=time.time()),
                )
                result.cancelling.append(current)
                return
    except LlmbError as error:
        result.not_cancelled.append((run, error.message))
        return
    result.not_cancelled.append((run, "it has just been submitted"))
