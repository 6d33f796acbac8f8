# SPDX-License-Identifier: Apache-2.0
"""Tests of doing several things at a time: order, bounds, what stops it, and what Ctrl-C does."""

import itertools
import os
import signal
import threading
from collections.abc import Iterator

import pytest

from llmb.core.parallel import held_interrupts, run_bounded


def never() -> bool:
    return False


class Done(list[int]):
    """The results, collected by the callback."""

    def __call__(self, number: int) -> bool:
        self.append(number)
        return True


@pytest.mark.parametrize("workers", [1, 3])
def test_as_many_at_a_time_as_allowed_each_begun_in_order(workers: int) -> None:
    together = threading.Barrier(workers)
    begun: list[int] = []
    done = Done()

    def tasks() -> Iterator[int]:
        for number in range(9):
            begun.append(number)
            assert len(begun) - len(done) <= workers
            yield number

    def work(number: int) -> int:
        together.wait(60)  # breaks unless just so many are at work
        return number

    run_bounded(tasks(), work, done, workers=workers, stop=never)
    assert begun == list(range(9))
    assert sorted(done) == begun


def test_no_task_is_taken_after_one_that_says_stop() -> None:
    tasks = itertools.count()
    done: list[int] = []

    def on_done(number: int) -> bool:
        done.append(number)
        return number < 2

    run_bounded(tasks, lambda number: number, on_done, workers=1, stop=never)
    assert done == [0, 1, 2]
    assert next(tasks) == 3


def test_what_is_under_way_is_finished_before_an_error_is_raised() -> None:
    failed, done = threading.Event(), Done()

    def work(number: int) -> int:
        if number == 0:
            failed.set()
            raise RuntimeError("a bug")
        failed.wait(60)
        return number

    with pytest.raises(RuntimeError, match="a bug"):
        run_bounded(iter((0, 1)), work, done, workers=2, stop=never)
    assert done == [1]


def test_an_error_of_the_tasks_is_raised_when_the_others_are_done() -> None:
    done = Done()

    def tasks() -> Iterator[int]:
        yield 1
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        run_bounded(tasks(), lambda number: number, done, workers=2, stop=never)
    assert done == [1]


def test_the_first_interrupt_waits_and_the_second_does_not() -> None:
    calls: list[str] = []
    with held_interrupts(lambda: calls.append("once")) as interrupted:
        assert not interrupted()
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupted()
        assert calls == ["once"]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_where_interrupts_are_ignored_they_stay_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with held_interrupts(lambda: None) as interrupted:
            os.kill(os.getpid(), signal.SIGINT)
            assert not interrupted()
    finally:
        signal.signal(signal.SIGINT, before)
