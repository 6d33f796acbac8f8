# SPDX-License-Identifier: Apache-2.0
"""Follows runs: asks the cluster once for all that have not ended, keeps what it says, retries what a node broke."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from llmb.clusters.base import HINT_ELSEWHERE, Cluster, Pace, elsewhere
from llmb.errors import LlmbError
from llmb.runs import looks, store
from llmb.runs.record import RunRecord
from llmb.runs.state import LOST, RETRIABLE, UNKNOWN, JobState
from llmb.submission.dispatch import Handed
from llmb.submission.reconcile import mend
from llmb.submission.retry import retry

_GROWTH = 1.5
_JITTER = 0.2

OnRound = Callable[[Sequence[RunRecord], Mapping[str, JobState]], None]


def poll(cluster: Cluster, runs: Sequence[RunRecord]) -> dict[str, JobState]:
    """The state of each run by its id. One that has ended before is not asked for again.

    What a killed submitter has left is mended on the way: a run that the cluster knows gets its id.
    """
    states = {run.id: seen for run in runs if (seen := store.seen_state(run)) is not None and seen.is_final}
    live = [run for run in runs if run.id not in states]
    mended = mend(cluster, [run for run in live if run.scheduler_id is None])
    states |= mended.states
    sent = [*(run for run in live if run.scheduler_id is not None), *mended.sent]
    polled = cluster.poll(sent) if sent else {}
    for run in sent:
        states[run.id] = _kept(cluster, run, polled.get(run.id, JobState(state=UNKNOWN)))
    return states


def _kept(cluster: Cluster, run: RunRecord, state: JobState) -> JobState:
    """The state that counts, kept where it can be; one that is doubtful is not what was seen."""
    if state.state == LOST and not state.certain and not state.is_doubtful:
        state = _missing(cluster, run, state)
    if state.is_doubtful:
        return state
    state = looks.judged(store.seen_state(run), state, time.time())
    try:
        return store.save_state(run, state)
    except LlmbError:  # a full disk, or a run of another's: what was seen holds all the same, and is asked for again
        return state


def _missing(cluster: Cluster, run: RunRecord, state: JobState) -> JobState:
    """``state`` of a run that ``cluster`` does not know, if it is the one that must; else what was seen last."""
    before = store.seen_state(run) or JobState(state=UNKNOWN)
    try:
        where = elsewhere(cluster, run)
    except LlmbError as error:
        return before.unanswered(error.message)
    return state if where is None else before.elsewhere(where)


def look(cluster: Cluster, runs: Sequence[RunRecord]) -> tuple[dict[str, JobState], LlmbError | None]:
    """As ``poll``; where the cluster does not answer, what was seen last, and the error."""
    try:
        return poll(cluster, runs), None
    except LlmbError as error:
        return {run.id: store.seen_state(run) or JobState(state=UNKNOWN) for run in runs}, error


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Who is told while runs are followed: each round, each retry with the end before it, each trouble once."""

    on_round: OnRound = lambda runs, states: None
    on_retry: Callable[[Handed, JobState], None] = lambda handed, end: None
    on_trouble: Callable[[LlmbError], None] = lambda error: None


def wait(
    cluster: Cluster, runs: Sequence[RunRecord], watcher: Watcher, *, retries: int = 0
) -> tuple[list[RunRecord], dict[str, JobState]]:
    """Poll until every run is over; the runs, those retried with their last attempt, and their states.

    A run that a node's failure, a preemption or the like has ended is retried up to ``retries`` times; one that is
    lost only when it cannot turn up any more. A cluster that does not answer is asked again. Ctrl-C leaves the jobs
    alone. Raises LlmbError where all that is left to wait for is with another cluster.
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
            doubt = next((state.detail for state in states.values() if state.is_doubtful), "")
            if doubt not in ("", trouble):
                watcher.on_trouble(LlmbError(doubt))
            trouble = doubt
            watcher.on_round(followed, states)
            broken = [run for run in followed if states[run.id].state in RETRIABLE and left[run.id] > 0]
            open_ = [state for state in states.values() if not state.is_over]
            if not broken and not open_:
                return followed, states
            if open_ and all(state.is_elsewhere for state in open_):
                raise _not_here(open_)
            ready = [run for run in broken if looks.may_be_retried(states[run.id], time.time())]
            followed = _retried(cluster, followed, ready, states, watcher)
            for run in ready:
                left[run.id] -= 1
            words = [states[run.id].state for run in followed]
        time.sleep(pause.after(words))


def _not_here(open_: Sequence[JobState]) -> LlmbError:
    where = open_[0].detail
    what = f"{len(open_)} runs are elsewhere" if len(open_) > 1 else "the run is elsewhere"
    return LlmbError(f"{what}: {where}", hint=HINT_ELSEWHERE)


def _retried(
    cluster: Cluster,
    followed: list[RunRecord],
    broken: Sequence[RunRecord],
    states: Mapping[str, JobState],
    watcher: Watcher,
) -> list[RunRecord]:
    """``followed`` with a new attempt of those that are ``broken``."""
    if not broken:
        return followed
    handed, interrupted = retry(cluster, broken, on_handed=lambda one: watcher.on_retry(one, states[one.run.id]))
    if interrupted:
        raise KeyboardInterrupt
    newest = {one.run.id: one.run for one in handed}
    return [newest.get(run.id, run) for run in followed]


class _Pause:
    """How long to wait before the next poll: longer while nothing changes, and never in step with other waiters."""

    def __init__(self, pace: Pace) -> None:
        self.pace, self.seconds = pace, pace.poll
        self.before: list[str] | None = None

    def after(self, words: list[str] | None) -> float:
        """The seconds after a round that saw these states, None for one that the cluster did not answer."""
        changed = words is not None and words != self.before
        self.before = words if words is not None else self.before
        self.seconds = self.pace.poll if changed else min(self.seconds * _GROWTH, self.pace.slowest_poll)
        if self.pace.slowest_poll <= self.pace.poll:
            return self.pace.poll
        return self.seconds * random.uniform(1 - _JITTER, 1 + _JITTER)
