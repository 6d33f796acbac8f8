# SPDX-License-Identifier: Apache-2.0
"""Formats times and durations: ISO 8601 with the offset from UTC for programs, shorter forms for people."""

from datetime import datetime


def iso(seconds: float | None) -> str | None:
    """``2026-11-22T09:41:00+01:00`` for seconds since the epoch, in this machine's time zone; None for None."""
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
