# SPDX-License-Identifier: Apache-2.0
"""Tests of following: one question a round, pauses that grow, and a cluster that does not answer
for a while.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from llmb.contract.cluster import Pace
from llmb.contract.record import RunRecord
from llmb.contract.state import COMPLETED, PENDING, RUNNING, UNKNOWN, JobState
from llmb.errors import LlmbError
from llmb.run import store
from llmb.run.follow import Watcher, wait
from llmb.run.polling import poll, try_poll
from llmb_testing.fake_cluster import FakeCluster
from llmb_testing.scheduler import Behaviour, Scheduler

Submitted = Callable[..., list[RunRecord]]


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that were to be slept, without sleeping."""
    seconds: list[float] = []
    monkeypatch.setattr(time, "sleep", seconds.append)
    return seconds


def test_one_question_a_round_however_many_runs(
    submitted: Submitted, fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    ask = FakeCluster.poll

    def count(self: FakeCluster, runs: Sequence[RunRecord]) -> Mapping[str, JobState]:
        asked.append(len(runs))
        return ask(self, runs)

    monkeypatch.setattr(FakeCluster, "poll", count)
    wait(fake, submitted(25), Watcher())
    assert asked == [25, 25, 25]


def test_pauses_grow_while_nothing_changes_and_are_never_in_step(
    submitted: Submitted, fake: FakeCluster, scheduler: Scheduler, slept: list[float]
) -> None:
    scheduler.behave(Behaviour(script={"*": (*(PENDING,) * 12, *(RUNNING,) * 2, COMPLETED)}))
    runs = submitted(1)
    slept.clear()  # a lock waits too
    wait(replace(fake, pace=Pace(poll=2, slowest_poll=20)), runs, Watcher())
    wanted = [2, 3, 4.5, 6.75, 10.125, 15.1875, *[20] * 6, 2, 3]
    assert len(slept) == len(wanted)
    for seconds, about in zip(slept, wanted, strict=True):
        assert 0.8 * about <= seconds <= 1.2 * about
    assert len(set(slept)) == len(slept)


def test_logs_are_read_between_the_polls_of_a_scheduler(
    submitted: Submitted,
    fake: FakeCluster,
    scheduler: Scheduler,
    slept: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every few seconds, with the states of the last poll, and without any more polls."""
    scheduler.behave(Behaviour(script={"*": (*(RUNNING,) * 8, COMPLETED)}))
    runs, events = submitted(1), list[str]()
    ask = FakeCluster.poll

    def count(self: FakeCluster, runs: Sequence[RunRecord]) -> Mapping[str, JobState]:
        events.append("poll")
        return ask(self, runs)

    monkeypatch.setattr(FakeCluster, "poll", count)
    slept.clear()
    between = Watcher(between_rounds=lambda runs, states: events.append(states[runs[0].id].state))
    wait(replace(fake, pace=Pace(poll=2, slowest_poll=20)), runs, between)
    assert events.count("poll") == 9
    assert max(slept) <= 5
    assert events[:3] == ["poll"] * 3
    assert events[-4:] == [RUNNING] * 3 + ["poll"]


def test_the_logs_of_hundreds_are_read_at_polls_alone(
    submitted: Submitted,
    fake: FakeCluster,
    scheduler: Scheduler,
    slept: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At most so many a second are opened: they may be on a network file system."""
    monkeypatch.setattr("llmb.run.follow._LOGS_A_SECOND", 0.1)
    scheduler.behave(Behaviour(script={"*": (*(RUNNING,) * 8, COMPLETED)}))
    runs, between = submitted(3), list[int]()
    slept.clear()
    watcher = Watcher(between_rounds=lambda runs, states: between.append(len(runs)))
    wait(replace(fake, pace=Pace(poll=2, slowest_poll=20)), runs, watcher)
    assert between == []
    assert max(slept) > 10


def test_jobs_that_wait_have_no_logs_to_read(
    submitted: Submitted, fake: FakeCluster, scheduler: Scheduler, slept: list[float]
) -> None:
    scheduler.behave(Behaviour(script={"*": (*(PENDING,) * 8, COMPLETED)}))
    runs, between = submitted(1), list[int]()
    slept.clear()
    watcher = Watcher(between_rounds=lambda runs, states: between.append(len(runs)))
    wait(replace(fake, pace=Pace(poll=2, slowest_poll=20)), runs, watcher)
    assert between == []
    assert max(slept) > 10


def test_this_machine_is_asked_at_one_pace(
    submitted: Submitted, fake: FakeCluster, scheduler: Scheduler, slept: list[float]
) -> None:
    scheduler.behave(Behaviour(script={"*": (*(PENDING,) * 5, COMPLETED)}))
    runs = submitted(1)
    slept.clear()
    wait(replace(fake, pace=Pace()), runs, Watcher())
    assert slept == [0.5] * 5


def test_a_look_at_a_cluster_that_does_not_answer_shows_what_was_seen_last(
    submitted: Submitted, fake: FakeCluster, scheduler: Scheduler
) -> None:
    seen, new = submitted(2)
    states, trouble = try_poll(fake, [seen])
    assert (states[seen.id].state, trouble) == (PENDING, None)
    scheduler.behave(Behaviour(down=True))
    states, trouble = try_poll(fake, [seen, new])
    assert (states[seen.id].state, states[new.id].state) == (PENDING, UNKNOWN)
    assert isinstance(trouble, LlmbError)
    assert trouble.code == "scheduler-down"


def test_an_error_is_reported_once_and_waiting_continues(
    submitted: Submitted, fake: FakeCluster, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, seen, rounds = submitted(2), [], 0

    def sleep(seconds: float) -> None:
        nonlocal rounds
        rounds += 1
        scheduler.behave(Behaviour(down=rounds in (1, 2, 3, 5)))

    monkeypatch.setattr(time, "sleep", sleep)
    troubles: list[LlmbError] = []
    watcher = Watcher(on_round=lambda _, states: seen.append(states), on_trouble=troubles.append)
    _, states = wait(fake, runs, watcher)
    assert {state.state for state in states.values()} == {COMPLETED}
    assert [error.code for error in troubles] == ["scheduler-down"] * 2
    assert len(seen) == 3


def test_an_old_state_that_a_silent_cluster_leaves_is_reported_as_an_error(
    submitted: Submitted, fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one part of it knows some of the runs, and the part that knows the others does not
    answer.
    """
    ask, rounds = FakeCluster.poll, 0

    def half(self: FakeCluster, runs: Sequence[RunRecord]) -> Mapping[str, JobState]:
        nonlocal rounds
        rounds += 1
        silent = JobState(state=PENDING).unanswered("squeue timed out")
        return dict.fromkeys((run.id for run in runs), silent) if rounds < 4 else ask(self, runs)

    monkeypatch.setattr(FakeCluster, "poll", half)
    troubles: list[LlmbError] = []
    runs = submitted(2)
    poll(fake, runs)
    assert not any((run.place / "state.json").exists() for run in runs)
    _, states = wait(fake, runs, Watcher(on_trouble=troubles.append))
    assert {state.state for state in states.values()} == {COMPLETED}
    assert [error.message for error in troubles] == ["squeue timed out"]


def test_what_cannot_be_stored_is_reported_anyway(
    submitted: Submitted, fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, or the folder of another user's run."""
    runs = submitted(2)

    def full(run: RunRecord, state: JobState) -> JobState:
        raise LlmbError(f"{run.place}/state.json cannot be written: No space left on device")

    monkeypatch.setattr(store, "save_state", full)
    troubles: list[LlmbError] = []
    _, states = wait(fake, runs, Watcher(on_trouble=troubles.append))
    assert {state.state for state in states.values()} == {COMPLETED}
    assert troubles == []
