# SPDX-License-Identifier: Apache-2.0
"""The columns and rows of `jobs list`. Pure."""

from collections.abc import Sequence
from typing import Any

from llmb.text.tables import Column
from llmb.text.times import day_and_time

_TABLE = ("id", "experiment", "repeat", "state", "submitted", "ran", "reason")
_DATA = ("id", "scheduler_id", "attempt", *_TABLE[1:])
_OPTIONAL = ("repeat", "submitted", "ran")


def table_of(rows: Sequence[dict[str, Any]], fmt: str) -> tuple[list[Column], list[dict[str, Any]]]:
    """The columns and rows of the list; ``rows`` have the values of _DATA.

    A table shows a later attempt after the state, and repeats and reasons only where there are any.
    """
    if fmt != "table":
        return _columns(_DATA), list(rows)
    shown = {
        "repeat": any(row["repeat"] not in (None, 1) for row in rows),
        "reason": any(row["reason"] for row in rows),
    }
    columns = _columns([name for name in _TABLE if shown.get(name, True)])
    return columns, [_with_attempt(row) for row in rows]


def _columns(names: Sequence[str]) -> list[Column]:
    show = {"submitted": lambda text: day_and_time(text)[:16]}
    return [
        Column(
            key=name, heading=name.replace("_", " ").capitalize(), show=show.get(name, str), optional=name in _OPTIONAL
        )
        for name in names
    ]


def _with_attempt(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the number of a later attempt after its state: ``RUNNING #2``."""
    return {**row, "state": f"{row['state']} #{row['attempt']}"} if (row["attempt"] or 1) > 1 else row
