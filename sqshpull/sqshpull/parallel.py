# SPDX-License-Identifier: Apache-2.0
"""Runs several tasks at a time in threads that do not keep the process from ending."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TypeVar

T = TypeVar("T")
_LISTEN = 0.2  # seconds until Python notices a signal that the kernel delivered to another thread


def run_bounded(
    tasks: Iterable[T],
    work: Callable[[T], None],
    *,
    workers: int,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Call ``work`` on each task in order, up to ``workers`` at a time, and none after ``stop()``.

    The first exception is raised when all running tasks have finished. KeyboardInterrupt is raised
    at once, and the threads end with the process.
    """
    remaining, running = [*tasks][::-1], set[Future[None]]()
    failure: BaseException | None = None
    while remaining or running:
        if failure is not None or stop():
            remaining = []
        while remaining and len(running) < workers:
            running.add(_start(work, remaining.pop()))
        finished, running = wait(running, _LISTEN, return_when=FIRST_COMPLETED)
        for future in finished:
            failure = failure or future.exception()
    if failure is not None:
        raise failure


def _start(work: Callable[[T], None], task: T) -> Future[None]:
    """Start ``work`` in a daemon thread, for which the end of the process does not wait."""
    future: Future[None] = Future()

    def run() -> None:
        try:
            work(task)
            future.set_result(None)
        except BaseException as error:  # for the thread that waits
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
