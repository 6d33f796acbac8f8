# SPDX-License-Identifier: Apache-2.0
"""Formats times and durations: ISO 8601 for programs, shorter forms for people."""

import re
from datetime import datetime


def iso(seconds: float | None) -> str | None:
    """Return ``2026-11-22T09:41:00+01:00`` for seconds since the epoch, None for None.

    The offset is of this machine's time zone.
    """
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):  # beyond the years of a calendar
        return None


def day_and_time(text: str) -> str:
    """``2026-11-22 09:41:00`` for the text that ``iso`` returned."""
    return text[:19].replace("T", " ")


def clock(seconds: float) -> str:
    """A duration as HH:MM:SS, with more digits for 100 hours and more."""
    whole = int(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_AGE = re.compile(rf"(\d+(?:\.\d+)?)([{''.join(_UNITS)}])")


def since(text: str, now: float) -> float:
    """Return the moment, in seconds since the epoch, of an age before ``now`` or of a date.

    An age is ``90m``, ``12h``, ``2d`` or ``1w``. A date, in this machine's time zone, is
    ``2026-11-20`` or ``2026-11-20T18:30``. Raises ValueError.
    """
    if age := _AGE.fullmatch(text.strip().lower()):
        return now - float(age[1]) * _UNITS[age[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError) as error:
        raise ValueError(
            "must be an age such as 12h, 2d or 1w, or a date such as 2026-11-20"
        ) from error
