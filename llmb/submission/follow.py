# SPDX-License-Identifier: Apache-2.0
"""Follows runs: polls all that have not ended at once, stores their states, retries those that a node broke.

Cancels runs too: waiting, running, or recorded and never submitted.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from llmb.clusters.base import HINT_ELSEWHERE, Cluster, Pace
from llmb.errors import LlmbError
from llmb.runs import record, store
from llmb.runs.record import RunRecord
from llmb.runs.state import CANCELLED, LOST, NOT_SUBMITTED, RETRIABLE, UNKNOWN, JobState, confirm_lost, may_be_retried
from llmb.submission.reconcile import recover, unless_elsewhere
from llmb.submission.retry import retry
from llmb.submission.submit import SubmitResult, submission_lock

_GROWTH = 1.5
_JITTER = 0.2

OnRound = Callable[[Sequence[RunRecord], Mapping[str, JobState]], None]


def poll(cluster: Cluster, runs: Sequence[RunRecord]) -> dict[str, JobState]:
    """The state of each run by its id; runs that have ended are not polled again.

    Runs of a killed submitter are recovered first: a run that the cluster knows gets its id.
    """
    states = {run.id: seen for run in runs if (seen := store.seen_state(run)) is not None and seen.is_final}
    live = [run for run in runs if run.id not in states]
    recovered, others = recover(cluster, [run for run in live if run.scheduler_id is None])
    states |= others
    sent = [*(run for run in live if run.scheduler_id is not None), *recovered]
    polled = cluster.poll(sent) if sent else {}
    for run in sent:
        states[run.id] = _kept(cluster, run, polled.get(run.id, JobState(state=UNKNOWN)))
    return states


def _kept(cluster: Cluster, run: RunRecord, state: JobState) -> JobState:
    """The resulting state, stored where possible; a doubtful one is not stored."""
    if state.state == LOST and not state.certain and not state.is_doubtful:
        state = unless_elsewhere(cluster, run, state, last_seen(run))
    if state.is_doubtful:
        return state
    state = confirm_lost(store.seen_state(run), state, time.time())
    try:
        return store.save_state(run, state)
    except LlmbError:  # a full disk, or another user's run: the state is valid, and is polled again
        return state


def last_seen(run: RunRecord) -> JobState:
    """The state that an earlier poll stored."""
    return store.seen_state(run) or JobState(state=UNKNOWN)


def look(cluster: Cluster, runs: Sequence[RunRecord]) -> tuple[dict[str, JobState], LlmbError | None]:
    """As ``poll``; where the cluster does not answer, the last states and the error."""
    try:
        return poll(cluster, runs), None
    except LlmbError as error:
        return {run.id: last_seen(run) for run in runs}, error


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Callbacks while runs are followed: each round, each retry with the end before it, each error once.

    An error about one run has the code of its state, and its id as the value.
    """

    on_round: OnRound = lambda runs, states: None
    on_retry: Callable[[SubmitResult, JobState], None] = lambda results, end: None
    on_trouble: Callable[[LlmbError], None] = lambda error: None


def wait(
    cluster: Cluster, runs: Sequence[RunRecord], watcher: Watcher, *, retries: int = 0
) -> tuple[list[RunRecord], dict[str, JobState]]:
    """Poll until every run is over; the runs, those retried with their last attempt, and their states.

    A run that a node failure, a preemption or the like has ended is retried up to ``retries`` times; a lost one only
    when it cannot reappear. A cluster that does not answer is polled again. Ctrl-C does not end the jobs. Raises
    LlmbError where all remaining runs are on another cluster.
    """
    followed, left, pause = list(runs), {run.id: retries for run in runs}, _Pause(cluster.pace)
    trouble = ""
    while True:
        words: list[str] | None = None
        try:
            states = poll(cluster, followed)
        except LlmbError as error:
            if error.message != trouble:
                watcher.on_trouble(error)
            trouble = error.message
        else:
            run_id, doubt = next((one for one in states.items() if one[1].is_doubtful), ("", JobState(state=UNKNOWN)))
            if doubt.detail not in ("", trouble):
                watcher.on_trouble(LlmbError(doubt.detail, code=doubt.code, value=run_id))
            trouble = doubt.detail
            watcher.on_round(followed, states)
            broken = [run for run in followed if states[run.id].state in RETRIABLE and left[run.id] > 0]
            open_ = [state for state in states.values() if not state.is_over]
            if not broken and not open_:
                return followed, states
            if open_ and all(state.is_elsewhere for state in open_):
                what = f"{len(open_)} runs are elsewhere" if len(open_) > 1 else "the run is elsewhere"
                raise LlmbError(f"{what}: {open_[0].detail}", hint=HINT_ELSEWHERE, code="run-elsewhere")
            ready = [run for run in broken if may_be_retried(states[run.id], time.time())]
            followed = _retried(cluster, followed, ready, states, watcher)
            for run in ready:
                left[run.id] -= 1
            words = [states[run.id].state for run in followed]
        time.sleep(pause.after(words))


def _retried(
    cluster: Cluster,
    followed: list[RunRecord],
    broken: Sequence[RunRecord],
    states: Mapping[str, JobState],
    watcher: Watcher,
) -> list[RunRecord]:
    """``followed`` with a new attempt of each of ``broken``."""
    if not broken:
        return followed
    results, interrupted = retry(cluster, broken, on_result=lambda one: watcher.on_retry(one, states[one.run.id]))
    if interrupted:
        raise KeyboardInterrupt
    newest = {one.run.id: one.run for one in results}
    return [newest.get(run.id, run) for run in followed]


class _Pause:
    """The pause before the next poll: longer while nothing changes, and random, so that waiters do not poll in step."""

    def __init__(self, pace: Pace) -> None:
        self.pace, self.seconds = pace, pace.poll
        self.before: list[str] | None = None

    def after(self, words: list[str] | None) -> float:
        """The seconds to wait after a round with these states; None where the cluster did not answer."""
        changed = words is not None and words != self.before
        self.before = words if words is not None else self.before
        self.seconds = self.pace.poll if changed else min(self.seconds * _GROWTH, self.pace.slowest_poll)
        if self.pace.slowest_poll <= self.pace.poll:
            return self.pace.poll
        return self.seconds * random.uniform(1 - _JITTER, 1 + _JITTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelResult:
    """Runs being cancelled, runs that had ended before, and runs not cancelled, each with the reason."""

    cancelling: list[record.RunRecord] = field(default_factory=list)
    ended: list[tuple[record.RunRecord, JobState]] = field(default_factory=list)
    not_cancelled: list[tuple[record.RunRecord, str]] = field(default_factory=list)


def cancel(cluster: Cluster, runs: Sequence[record.RunRecord]) -> CancelResult:
    """Cancel these runs. Raises LlmbError."""
    states = poll(cluster, runs)
    found = CancelResult()
    sent: list[record.RunRecord] = []
    for run in runs:
        now, state = record.load(run.directory), states[run.id]
        if state.is_end:
            found.ended.append((now, state))
        elif state.state == NOT_SUBMITTED:
            _withdraw(now, found)
        elif now.scheduler_id is None:
            found.not_cancelled.append((now, state.reason or "it is being submitted"))
        elif state.is_elsewhere or state.missing_since is not None:
            found.not_cancelled.append((now, state.reason))
        else:
            sent.append(now)
    cluster.cancel(sent)
    found.cancelling.extend(sent)
    return found


def _withdraw(run: record.RunRecord, found: CancelResult) -> None:
    """Cancel a run that no process is submitting, unless one starts to at this moment."""
    try:
        with submission_lock(run):
            now = record.load(run.directory)
            if now.scheduler_id is None:
                store.save_state(now, JobState(state=CANCELLED, reason="before it was submitted", ended=time.time()))
                found.cancelling.append(now)
                return
    except LlmbError as error:
        found.not_cancelled.append((run, error.message))
        return
    found.not_cancelled.append((run, "it has just been submitted"))
