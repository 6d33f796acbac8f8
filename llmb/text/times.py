# SPDX-License-Identifier: Apache-2.0
"""Writes times: for programs as ISO 8601 with the offset from UTC, for people without."""

from datetime import datetime


def iso(seconds: float | None) -> str | None:
    """``2026-11-22T09:41:00+01:00`` for seconds since the epoch, in the zone of this machine; None stays None."""
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):  # no year that a calendar has
        return None


def day_and_time(text: str) -> str:
    """``2026-11-22 09:41:00`` of what ``iso`` gave."""
    return text[:19].replace("T", " ")
