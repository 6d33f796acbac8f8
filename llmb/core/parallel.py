# SPDX-License-Identifier: Apache-2.0
"""Runs tasks in threads or in forks, and delays Ctrl-C until running tasks have finished."""

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
R = TypeVar("R")
_MOST_FORKS = 8  # a login node belongs to all its users
# With fewer processors, what forks save is lost again when their files are read.
_LEAST_PROCESSORS = 4
_LISTEN = 0.2  # seconds until Python notices a signal that the kernel delivered to another thread


def run_bounded(
    tasks: Iterable[T | None],
    work: Callable[[T], R],
    on_done: Callable[[R], bool] = lambda _: True,
    *,
    workers: int,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Call ``work`` on each task, up to ``workers`` at a time in threads.

    ``on_done`` is called in this thread on each result.

    A task is taken from ``tasks`` only when it can start. None means that none can start before a
    running one has finished. No more are taken once ``stop`` or ``on_done`` says so. The first
    exception is raised when all running tasks have finished. Only KeyboardInterrupt is raised at
    once: the threads then end with the process.
    """
    from concurrent.futures import FIRST_COMPLETED, wait

    source, has_more = iter(tasks), True
    running: list[Future[R]] = []
    failed: BaseException | None = None
    while has_more or running:
        has_more = has_more and not stop()
        try:
            while has_more and len(running) < workers and (task := next(source)) is not None:
                running.append(_start(work, task))
                has_more = not stop()
        except StopIteration:
            has_more = False
        except Exception as error:
            has_more, failed = False, failed or error
        if not running:
            continue
        wait(running, _LISTEN, return_when=FIRST_COMPLETED)
        finished = [future for future in running if future.done()]
        running = [future for future in running if future not in finished]
        for future in finished:
            try:
                has_more = on_done(future.result()) and has_more
            except Exception as error:
                has_more, failed = False, failed or error
    if failed is not None:
        raise failed


def _start(work: Callable[[T], R], task: T) -> "Future[R]":
    """Start ``work`` in a daemon thread: an executor's would keep the process alive."""
    from concurrent.futures import Future

    future: Future[R] = Future()

    def run() -> None:
        try:
            future.set_result(work(task))
        except BaseException as error:  # for the thread that waits
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def try_in_forks(work: Callable[[T], object], tasks: Sequence[T]) -> None:
    """Call ``work`` on each task in forks of this process, for the files that it writes.

    Answers, output and exceptions of the forks are lost, and with few processors, or other threads,
    there are no forks. So the caller uses what it finds in files.
    """
    available = processors()
    count = min(available, _MOST_FORKS, len(tasks))
    if (
        available < _LEAST_PROCESSORS or count < 2 or threading.active_count() > 1
    ):  # a fork copies the locks of other threads
        return
    forks: list[int] = []
    try:
        for number in range(count):
            forks.append(_fork(work, tasks[number::count]))
        while forks:
            os.waitpid(forks[-1], 0)
            forks.pop()
    finally:  # Ctrl-C
        for fork in forks:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(fork, signal.SIGINT)
                os.waitpid(fork, 0)


def _fork(work: Callable[[T], object], tasks: Sequence[T]) -> int:
    """Return the id of a fork that works on the tasks while this process lives."""
    caller = os.getpid()
    if fork := os.fork():
        return fork
    try:
        sys.stdout = sys.stderr = io.StringIO()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (1, 2):
            os.dup2(nothing, descriptor)
        for task in tasks:
            if os.getppid() == caller:
                with contextlib.suppress(Exception):
                    work(task)
    finally:
        os._exit(0)  # nothing that the caller has prepared for its own end


@contextlib.contextmanager
def held_interrupts(on_first: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Delay Ctrl-C: the yielded function returns True once it came.

    The first Ctrl-C calls ``on_first``, a second one interrupts. Nothing changes outside of the
    main thread, where Python handles no signals, or if Ctrl-C is ignored.
    """
    handles = threading.current_thread() is threading.main_thread()
    if not handles or signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):
        yield lambda: False
        return
    came = False

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        came = True
        signal.signal(signal.SIGINT, before)
        on_first()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: came
    finally:
        signal.signal(signal.SIGINT, before)
