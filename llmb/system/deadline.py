# SPDX-License-Identifier: Apache-2.0
"""Interrupts what others wrote and what does not come to an end."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class OverdueError(BaseException):
    """The time is over. No Exception: what is interrupted may catch all of those, and go on."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise OverdueError within after ``seconds``, and again each second until it is heard.

    By a signal, which patterns heed as well. Only the main thread can be interrupted: in others nothing is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise OverdueError

    before = signal.signal(signal.SIGALRM, ring)
    left, again = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, again)
        signal.signal(signal.SIGALRM, before)
