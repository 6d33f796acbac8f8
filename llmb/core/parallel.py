# SPDX-License-Identifier: Apache-2.0
"""Runs tasks in threads or in forks, and delays Ctrl-C until running tasks have finished."""

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import FrameType
from typing import Generic, NoReturn, TypeVar

T = TypeVar("T")
R = TypeVar("R")
_MOST_PROCESSES = 8  # a login node belongs to all its users
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
    source, has_more = iter(tasks), True
    pool = _Pool(work)
    failed: BaseException | None = None
    try:
        while has_more or pool.running:
            has_more = has_more and not stop()
            try:
                while has_more and pool.running < workers and (task := next(source)) is not None:
                    pool.start(task)
                    has_more = not stop()
            except StopIteration:
                has_more = False
            except Exception as error:
                has_more, failed = False, failed or error
            for outcome in pool.finished():
                try:
                    has_more = on_done(outcome()) and has_more
                except Exception as error:
                    has_more, failed = False, failed or error
    finally:
        pool.close()
    pool.join()
    if failed is not None:
        raise failed


class _Pool(Generic[T, R]):
    """Threads that call ``work``, each for one task after another: starting a thread takes longer
    than most of what such a task does in Python.

    They are daemons, since an executor's threads would keep the process alive.
    """

    def __init__(self, work: Callable[[T], R]) -> None:
        import queue

        self.work = work
        self.running = 0  #: tasks that were started and whose outcome was not taken
        self.threads: list[threading.Thread] = []
        self.tasks: queue.SimpleQueue[tuple[T] | None] = queue.SimpleQueue()
        self.outcomes: queue.SimpleQueue[Callable[[], R]] = queue.SimpleQueue()

    def start(self, task: T) -> None:
        """Let a thread work on the task, a new one if all others are busy."""
        if self.running == len(self.threads):
            thread = threading.Thread(target=self._run, daemon=True)
            thread.start()
            self.threads.append(thread)
        self.tasks.put((task,))
        self.running += 1

    def finished(self) -> Iterator[Callable[[], R]]:
        """Wait for a task to finish, or for _LISTEN seconds. Yield all outcomes that are there.

        Calling one returns the result, or raises the exception.
        """
        from queue import Empty

        with contextlib.suppress(Empty):
            if self.running:
                yield self._taken(self.outcomes.get(timeout=_LISTEN))
            while self.running:
                yield self._taken(self.outcomes.get_nowait())

    def _taken(self, outcome: Callable[[], R]) -> Callable[[], R]:
        self.running -= 1
        return outcome

    def close(self) -> None:
        """Let each thread end when it has finished its task."""
        for _ in self.threads:
            self.tasks.put(None)

    def join(self) -> None:
        """Wait for the threads to end. A fork would copy the locks that one of them holds."""
        for thread in self.threads:
            thread.join()

    def _run(self) -> None:
        while (task := self.tasks.get()) is not None:
            self.outcomes.put(self._outcome(*task))

    def _outcome(self, task: T) -> Callable[[], R]:
        try:
            return partial(_itself, self.work(task))
        except BaseException as error:  # for the thread that waits
            return partial(_raise, error)


def _itself(result: R) -> R:
    return result


def _raise(error: BaseException) -> NoReturn:
    raise error


def processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def helped_by_forks(
    work: Callable[[T], object], tasks: Sequence[T]
) -> Iterator[Callable[[int], None]]:
    """Call ``work`` on tasks in forks of this process, for the files that it writes.

    The forks begin with the last task. The caller begins with the first, and calls the yielded
    function with the index of each task that it begins: forks omit these. At the end, every task
    was begun here or by a fork.

    Answers, output and exceptions of the forks are lost. With one processor, or other threads,
    there are no forks. So the caller uses what it finds in files, and does the rest itself.
    """
    count = min(min(processors(), _MOST_PROCESSES) - 1, len(tasks))
    if count < 1 or threading.active_count() > 1:  # a fork copies the locks of other threads
        yield lambda _: None
        return
    from mmap import mmap

    begun = mmap(-1, len(tasks))  # shared with the forks, a byte for each task

    def remaining(first: int) -> Iterator[T]:
        for index in range(first, -1, -count):
            if not begun[index]:
                yield tasks[index]

    forks: list[int] = []
    try:
        for number in range(count):
            forks.append(_fork(work, remaining(len(tasks) - 1 - number)))
        yield lambda index: begun.__setitem__(index, 1)
        while forks:
            os.waitpid(forks[-1], 0)
            forks.pop()
    finally:  # Ctrl-C
        for fork in forks:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(fork, signal.SIGINT)
                os.waitpid(fork, 0)
        begun.close()


def _fork(work: Callable[[T], object], tasks: Iterable[T]) -> int:
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
