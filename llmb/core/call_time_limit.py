# SPDX-License-Identifier: Apache-2.0
"""A time limit for a call."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_RINGS = 3  # how often a block may catch OverdueError
_AGAIN = 0.05  # seconds until the next one where Python has dropped it


class OverdueError(BaseException):
    """The time limit is over. Not an Exception, so that ``except Exception`` does not catch it."""


@contextlib.contextmanager
def time_limit(
    seconds: float,
    give_up: Callable[[], None] | None = None,
    *,
    early: tuple[float, Callable[[], None]] | None = None,
) -> Iterator[None]:
    """Raise OverdueError in the block after ``seconds``, and again each second until it ends.

    It uses a signal, which also interrupts regular expressions. Other threads than the main one
    have no limit. ``give_up`` is called if the block has caught OverdueError several times.
    ``early``: seconds, and what to call once in the block after these, if they are fewer.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    rings = 0
    active = True
    noted = early is None or early[0] >= seconds
    unraisable_before = sys.unraisablehook

    def ring(_number: int, _frame: FrameType | None) -> None:
        nonlocal rings, noted
        if not noted and early is not None:
            noted = True
            remaining = seconds - (time.monotonic() - started)
            signal.setitimer(signal.ITIMER_REAL, max(remaining, 0.001), 1.0)
            early[1]()
            return
        rings += 1
        if rings > _RINGS and give_up is not None:
            give_up()
        if active:
            raise OverdueError

    def ring_again(unraisable: sys.UnraisableHookArgs) -> None:
        """It rang in a finalizer or a callback of the garbage collector, where Python drops every
        exception.
        """
        nonlocal rings
        if not issubclass(unraisable.exc_type, OverdueError):
            unraisable_before(unraisable)
        elif active:
            rings -= 1  # the block has not caught it
            signal.setitimer(signal.ITIMER_REAL, _AGAIN, 1.0)

    started = time.monotonic()
    sys.unraisablehook = ring_again
    before = signal.signal(signal.SIGALRM, ring)
    first = seconds if noted or early is None else early[0]
    outer_limit, again = signal.setitimer(signal.ITIMER_REAL, first, 1.0)
    try:
        yield
    finally:
        try:
            active = False
        finally:  # also where it rings at the end of the block
            remaining = (
                max(outer_limit - (time.monotonic() - started), 0.001) if outer_limit else 0.0
            )
            signal.setitimer(signal.ITIMER_REAL, remaining, again)
            signal.signal(signal.SIGALRM, before)
            sys.unraisablehook = unraisable_before
