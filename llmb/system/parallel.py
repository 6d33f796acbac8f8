# SPDX-License-Identifier: Apache-2.0
"""Does several things at a time, begun in order; what is under way is always finished, also after Ctrl-C."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from types import FrameType
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def run_bounded(
    tasks: Iterator[T], work: Callable[[T], R], on_done: Callable[[R], bool], *, workers: int, stop: Callable[[], bool]
) -> None:
    """Call ``work`` on each task, up to ``workers`` at a time, each in a thread; ``on_done`` here with what it gave.

    A task is taken from ``tasks`` only when its turn has come. No more are taken once ``stop`` says so or ``on_done``
    gave False. What ``work`` or ``tasks`` raises ends it too, and is raised when all that is under way has ended. Only
    Ctrl-C, where it is not held, ends it at once: what is under way is left behind, and ends with the process.
    """
    todo: SimpleQueue[tuple[T] | None] = SimpleQueue()
    ended: SimpleQueue[R | _Raised] = SimpleQueue()
    threads = [threading.Thread(target=_serve, args=(todo, work, ended), daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    is_awaited = True
    try:
        failed = _feed(tasks, todo, ended, on_done, workers=workers, stop=stop)
    except KeyboardInterrupt:
        is_awaited = False
        raise
    finally:
        for _ in threads:
            todo.put(None)
        for thread in threads if is_awaited else ():
            thread.join()
    if failed is not None:
        raise failed


@dataclass(frozen=True, slots=True)
class _Raised:
    error: BaseException


def _serve(todo: SimpleQueue[tuple[T] | None], work: Callable[[T], R], ended: SimpleQueue[R | _Raised]) -> None:
    while (task := todo.get()) is not None:
        try:
            ended.put(work(*task))
        except BaseException as error:  # for whoever waits for it
            ended.put(_Raised(error))


def _feed(
    tasks: Iterator[T],
    todo: SimpleQueue[tuple[T] | None],
    ended: SimpleQueue[R | _Raised],
    on_done: Callable[[R], bool],
    *,
    workers: int,
    stop: Callable[[], bool],
) -> BaseException | None:
    """Keep ``workers`` tasks under way until none is left, and wait for the last; what was raised, if anything was."""
    going, more = 0, True
    failed: BaseException | None = None
    while more or going:
        while more and going < workers and not stop():
            try:
                todo.put((next(tasks),))
                going += 1
            except StopIteration:
                more = False
            except Exception as error:
                more, failed = False, error
        more = more and not stop()
        if going:
            one = ended.get()
            going -= 1
            if isinstance(one, _Raised):
                more, failed = False, one.error
            else:
                more = on_done(one) and more
    return failed


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
