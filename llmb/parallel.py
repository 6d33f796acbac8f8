# SPDX-License-Identifier: Apache-2.0
"""Does several things at a time, begun in order; what is under way is always finished, also after Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def run_bounded(
    tasks: Iterator[T], work: Callable[[T], R], on_done: Callable[[R], bool], *, workers: int, stop: Callable[[], bool]
) -> None:
    """Call ``work`` on each task, up to ``workers`` at a time, each in a thread; ``on_done`` here with what it gave.

    A task is taken from ``tasks`` only when its turn has come. No more are taken once ``stop`` says so or ``on_done``
    gave False. What ``work`` or ``tasks`` raises ends it too, and is raised when all that is under way has ended.
    """
    from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

    going: set[Future[R]] = set()
    more = True
    failed: Exception | None = None
    with ThreadPoolExecutor(workers) as pool:
        while more or going:
            while more and len(going) < workers and not stop():
                try:
                    going.add(pool.submit(work, next(tasks)))
                except StopIteration:
                    more = False
                except Exception as error:
                    more, failed = False, error
            more = more and not stop()
            ended, going = wait(going, return_when=FIRST_COMPLETED)
            for future in ended:
                if (raised := future.exception()) is not None:
                    more, failed = False, raised if isinstance(raised, Exception) else failed
                else:
                    more = on_done(future.result()) and more
    if failed is not None:
        raise failed


@contextlib.contextmanager
def held_interrupts(on_first: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C wait: the function given says whether it came. ``on_first`` is called then; a second one interrupts.

    Nothing is held outside of the main thread, where Python takes no signals, and where Ctrl-C is ignored anyway.
    """
    deaf = threading.current_thread() is not threading.main_thread()
    if deaf or signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):
        yield lambda: False
        return
    came = False

    def hear(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        came = True
        signal.signal(signal.SIGINT, before)
        on_first()

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield lambda: came
    finally:
        signal.signal(signal.SIGINT, before)
