# SPDX-License-Identifier: Apache-2.0
"""Tests that what does not come to an end is interrupted: patterns, loops, code that catches
everything it may.
"""

import contextlib
import gc
import re
import signal
import sys
import threading
import time

import pytest

from llmb.core.call_time_limit import OverdueError, time_limit

SHORT = 0.2


def endless_pattern() -> None:
    re.match(r"(a+)+$", "a" * 60 + "b")


def endless_loop() -> None:
    while True:
        pass


def stubborn() -> None:
    while True:
        with contextlib.suppress(Exception):
            time.sleep(60)


class Slow:
    """Its finalizer is running when the time is over, and Python drops what a finalizer raises."""

    def __del__(self) -> None:
        time.sleep(60)


def busy_finalizer() -> None:
    item = Slow()
    del item
    time.sleep(60)


def busy_collector() -> None:
    def callback(_phase: str, _info: dict[str, int]) -> None:
        gc.callbacks.remove(callback)
        time.sleep(60)

    gc.callbacks.append(callback)
    gc.collect()
    time.sleep(60)


@pytest.mark.parametrize(
    "work", [endless_pattern, endless_loop, stubborn, busy_finalizer, busy_collector]
)
def test_it_is_interrupted(work: object) -> None:
    assert callable(work)
    before, timer = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    hook = sys.unraisablehook
    with pytest.raises(OverdueError), time_limit(SHORT):
        work()
    assert signal.getsignal(signal.SIGALRM) is before
    assert sys.unraisablehook is hook
    # that of the suite, where it has one
    assert bool(signal.getitimer(signal.ITIMER_REAL)[0]) == bool(timer[0])


def test_other_exceptions_that_python_drops_are_reported_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[object] = []
    monkeypatch.setattr(
        sys, "unraisablehook", lambda unraisable: reported.append(unraisable.exc_type)
    )

    class Failing:
        def __del__(self) -> None:
            raise KeyError

    with time_limit(60):
        item = Failing()
        del item
    assert reported == [KeyError]


def test_what_is_in_time_is_left_alone() -> None:
    timer = signal.getitimer(signal.ITIMER_REAL)
    with time_limit(60):
        found = 1 + 1
    assert found == 2
    assert bool(signal.getitimer(signal.ITIMER_REAL)[0]) == bool(timer[0])


def test_other_threads_do_their_work_without_a_limit() -> None:
    done = []

    def work() -> None:
        with time_limit(60):
            done.append(threading.current_thread().name)

    thread = threading.Thread(target=work, name="other")
    thread.start()
    thread.join()
    assert done == ["other"]
