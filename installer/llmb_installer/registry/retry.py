# SPDX-License-Identifier: Apache-2.0
"""Asks again where that can help: after a pause that grows, or that the server asked for."""

import email.utils
import random
import time
from collections.abc import Callable
from typing import TypeVar

from llmb_installer.registry.faults import ImageFaultError

T = TypeVar("T")
Sleep = Callable[[float], None]
Pause = Callable[[float, str], None]  # seconds, and why

ATTEMPTS = 6  # in a row without any gain
LONGEST_PAUSE = 30.0  # seconds, of our own
PATIENCE = 300.0  # seconds, the longest pause that a server may ask for
GAIN = 1 << 20  # bytes after which the attempts count anew


class AskAgain(Exception):
    """A fault that may pass; ``pause``: the seconds that the server wants us to wait."""

    def __init__(self, fault: ImageFaultError, pause: float | None = None) -> None:
        super().__init__(fault.message)
        self.fault, self.pause = fault, pause


def persist(call: Callable[[], T], pause: Pause, gained: Callable[[], int] = lambda: 0) -> T:
    """What ``call`` gives, called again while it raises AskAgain. Raises the fault after ATTEMPTS in a row.

    ``gained`` bytes since the attempt before let the attempts count anew: a long download may be cut often.
    """
    attempt, before = 0, gained()
    while True:
        try:
            return call()
        except AskAgain as again:
            attempt = 1 if gained() - before >= GAIN else attempt + 1
            before = gained()
            if attempt >= ATTEMPTS or (again.pause or 0.0) > PATIENCE:
                raise _given_up(again, attempt) from again
            pause(again.pause if again.pause is not None else own_pause(attempt), again.fault.message)


def own_pause(attempt: int) -> float:
    """Seconds before the attempt after ``attempt``: doubling from one, spread so that many do not come at once."""
    return random.uniform(0.5, 1.0) * min(2.0 ** (attempt - 1), LONGEST_PAUSE)


def retry_after(value: str | None, now: float | None = None) -> float | None:
    """The seconds that a Retry-After header asks for (a number or a date); None when there is none that is valid."""
    if value is None:
        return None
    if value.isascii() and value.strip().isdigit():
        return float(value)
    try:
        when = email.utils.parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError):  # no date, or none that a calendar has
        return None
    return max(0.0, when - (time.time() if now is None else now))


def _given_up(again: AskAgain, attempts: int) -> ImageFaultError:
    fault = again.fault
    if (again.pause or 0.0) > PATIENCE:
        how = f"and wants to be asked again in {again.pause:.0f} s"
    else:
        how = f"({attempts} attempts)"
    return ImageFaultError(fault.kind, f"{fault.message} {how}", hint=fault.hint or "")
