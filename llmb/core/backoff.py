# SPDX-License-Identifier: Apache-2.0
"""Repeats a call over a network as long as another attempt may succeed, with growing pauses."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from llmb.errors import LlmbError

T = TypeVar("T")
Pause = Callable[[float, str], None]  # seconds, and why
ATTEMPTS = 6  # in a row without progress
LONGEST_PAUSE = 30.0  # seconds, of those that we choose
PATIENCE = 300.0  # seconds, the longest pause that a server may ask for
PROGRESS = 1 << 20  # bytes received after which the attempts are counted from one again


class AskAgain(Exception):
    """An attempt failed with ``fault``, and another may succeed.

    ``pause`` is the seconds that the server asks to wait. ``attempts`` limits the attempts below
    the number of ``persist``.
    """

    def __init__(
        self, fault: LlmbError, pause: float | None = None, *, attempts: int = ATTEMPTS
    ) -> None:
        super().__init__(fault.message)
        self.fault, self.pause, self.attempts = fault, pause, attempts


def persist(
    call: Callable[[], T],
    pause: Pause,
    *,
    attempts: int = ATTEMPTS,
    first_pause: float = 1.0,
    received: Callable[[], int] = lambda: 0,
) -> T:
    """The result of ``call``, which is repeated as long as it raises AskAgain.

    Raises the fault after ``attempts`` in a row. They are counted from one again whenever
    ``received``, in bytes, has grown by PROGRESS: a long download may be cut often.
    """
    attempt, before = 0, received()
    while True:
        try:
            return call()
        except AskAgain as again:
            attempt = 1 if received() - before >= PROGRESS else attempt + 1
            before = received()
            if (again.pause or 0.0) > PATIENCE:
                raise _extended(again.fault, f", and asks to wait {again.pause:.0f} s") from again
            if attempt >= min(attempts, again.attempts):
                raise _extended(
                    again.fault, f", after {attempt} attempts" if attempt > 1 else ""
                ) from again
            pause(
                again.pause if again.pause is not None else pause_after(attempt, first_pause),
                again.fault.message,
            )


def pause_after(attempt: int, first: float = 1.0) -> float:
    """Return the seconds to wait after ``attempt``, doubling from ``first``.

    They are spread, so that many clients do not coincide.
    """
    return random.uniform(0.5, 1.0) * min(first * 2.0 ** (attempt - 1), LONGEST_PAUSE)


def _extended(fault: LlmbError, text: str) -> LlmbError:
    fault.message += text
    fault.args = (fault.message,)
    return fault


def retry_after(value: str | None, now: float | None = None) -> float | None:
    """Return the seconds of a Retry-After header, a number or a date. None without a valid one."""
    if value is None:
        return None
    if value.isascii() and value.strip().isdigit():
        return float(value)
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError):  # not a date, or not one of the calendar
        return None
    return max(0.0, moment - (time.time() if now is None else now))
