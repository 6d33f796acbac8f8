# SPDX-License-Identifier: Apache-2.0
"""The table of `jobs list`: all of each run, then ever less of it for narrow terminals. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any

from llmb.text.narrow import Level
from llmb.text.tables import Column
from llmb.text.times import day_and_time

_TABLE = ("id", "experiment", "repeat", "state", "submitted", "ran", "reason")
_DATA = ("id", "scheduler_id", "attempt", *_TABLE[1:])


def levels(rows: Sequence[dict[str, Any]], fmt: str) -> Iterator[Level]:
    """The list of ``rows``, each with the values of _DATA; run, experiment, state and reason are in every level.

    A table has the attempt behind the state, and no reasons where there are none.
    """
    if fmt != "table":
        yield Level(_columns(_DATA), rows)
        return
    has_reasons = any(row["reason"] for row in rows)
    columns = _columns([name for name in _TABLE if name != "reason" or has_reasons])
    yield Level(columns, [_with_attempt(row, ", attempt ") for row in rows])
    day = [{**row, "submitted": row["submitted"] and day_and_time(row["submitted"])[5:16]} for row in rows]
    yield Level(columns, [_with_attempt(row, ", attempt ") for row in day], ("year and seconds",))
    short = Level(columns, [_with_attempt(row, " #") for row in day])
    if all(row["repeat"] == 1 for row in rows):
        short = short.without("repeat")
    yield (level := short._replace(left_out=("year and seconds",)))
    yield (level := level.without("repeat", said="repeat"))
    yield level.without("ran", said="ran")
    yield short.without("repeat", said="repeat").without("ran", said="ran").without("submitted", said="submitted")


def _columns(names: Sequence[str]) -> list[Column]:
    show = {"submitted": day_and_time}
    return [Column(key=name, heading=name.replace("_", " ").capitalize(), show=show.get(name, str)) for name in names]


def _with_attempt(row: dict[str, Any], before: str) -> dict[str, Any]:
    """The row with the number of an attempt that is not the first behind its state."""
    return {**row, "state": f"{row['state']}{before}{row['attempt']}" if (row["attempt"] or 1) > 1 else row["state"]}
