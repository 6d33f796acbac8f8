# SPDX-License-Identifier: Apache-2.0
"""Tests of the fake scheduler: what the tests of submission take for granted."""

import threading
from pathlib import Path

import pytest

from llmb.contract.state import CANCELLED, COMPLETED, FAILED, PENDING, RUNNING
from llmb.errors import LlmbError
from llmb_testing.scheduler import Behaviour, DownError, NoReplyError, Scheduler


@pytest.fixture
def scheduler(tmp_path: Path) -> Scheduler:
    return Scheduler(tmp_path / "scheduler")


def states(scheduler: Scheduler, number: int, rounds: int) -> list[str]:
    return [scheduler.query([number])[number].state for _ in range(rounds)]


def test_a_job_goes_through_its_states_and_stays_in_the_last(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    assert states(scheduler, scheduler.submit("a", tmp_path), 5) == [
        PENDING,
        RUNNING,
        COMPLETED,
        COMPLETED,
        COMPLETED,
    ]


def test_the_longest_pattern_that_fits_counts(scheduler: Scheduler, tmp_path: Path) -> None:
    scheduler.behave(Behaviour(script={"*-2": (RUNNING,), "*": (FAILED,)}))
    numbers = [scheduler.submit(name, tmp_path) for name in ("a", "a-2")]
    assert [states(scheduler, number, 1) for number in numbers] == [[FAILED], [RUNNING]]


def test_a_name_given_twice_is_two_jobs_and_the_newest_is_found(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    assert [scheduler.submit("a", tmp_path) for _ in range(2)] == [1, 2]
    assert [job.name for job in scheduler.jobs()] == ["a", "a"]
    assert (scheduler.find("a"), scheduler.find("b")) == (2, None)


def test_many_at_once_all_have_a_number_of_their_own(scheduler: Scheduler, tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def submit(name: str) -> None:
        start.wait()
        Scheduler(scheduler.folder).submit(name, tmp_path)

    threads = [threading.Thread(target=submit, args=(f"job{index}",)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [job.number for job in scheduler.jobs()] == list(range(1, 9))
    assert {job.name for job in scheduler.jobs()} == {f"job{index}" for index in range(8)}


def test_it_refuses_and_does_not_answer_where_asked(scheduler: Scheduler, tmp_path: Path) -> None:
    scheduler.behave(Behaviour(refuse=("bad*",), silent=("quiet",)))
    with pytest.raises(LlmbError) as raised:
        scheduler.submit("bad1", tmp_path)
    assert (raised.value.code, raised.value.value) == ("job-refused", "bad1")
    with pytest.raises(NoReplyError):
        scheduler.submit("quiet", tmp_path)
    assert [job.name for job in scheduler.jobs()] == ["quiet"]


def test_when_it_is_down_nothing_is_answered_and_nothing_lost(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    number = scheduler.submit("a", tmp_path)
    scheduler.behave(Behaviour(down=True))
    for ask in (
        lambda: scheduler.submit("b", tmp_path),
        lambda: scheduler.query([number]),
        lambda: scheduler.find("a"),
        lambda: scheduler.cancel(number),
    ):
        with pytest.raises(DownError):
            ask()
    scheduler.behave(Behaviour())
    assert states(scheduler, number, 1) == [PENDING]
    assert len(scheduler.jobs()) == 1


def test_cancel_ends_a_job_and_leaves_an_end_alone(scheduler: Scheduler, tmp_path: Path) -> None:
    first, second = scheduler.submit("a", tmp_path), scheduler.submit("b", tmp_path)
    states(scheduler, second, 2)
    for number in (first, second):
        scheduler.cancel(number)
    assert [job.state for job in scheduler.jobs()] == [CANCELLED, COMPLETED]


def test_a_job_it_never_had_is_not_answered_for(scheduler: Scheduler) -> None:
    assert scheduler.query([7]) == {}
