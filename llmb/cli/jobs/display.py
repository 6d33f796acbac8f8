# SPDX-License-Identifier: Apache-2.0
"""Prints the table of runs and the log of one."""

import codecs
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from llmb.logs.text import strip_escapes
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


_EVERY = 0.3  # seconds
# What may go on in the bytes that come next: an escape sequence, or a line's end of two characters.
_OPEN = re.compile(rb"(?:\r|\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,200}\x1b?)?)\Z")
_LINE_END = re.compile(r"\r\n?")  # a progress bar begins its line anew with one


def tail(path: Path, out: TextIO, *, ended: Callable[[], bool]) -> bool:
    """Copy ``path`` to ``out`` until its writer has ``ended``; False when there was nothing to print."""
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    position, kept = 0, b""
    while True:
        last = ended()  # asked before reading, so that what was written before the end is read
        if path.exists():
            with path.open("rb") as stream:
                stream.seek(position)
                while chunk := stream.read(1 << 16):
                    position += len(chunk)
                    data = kept + chunk
                    open_ = _OPEN.search(data, max(0, len(data) - 256))
                    kept = data[open_.start() :] if open_ else b""
                    out.write(_printable(decode(strip_escapes(data[: len(data) - len(kept)]))))
            out.flush()
        if last:
            out.write(_printable(decode(kept, True)))
            out.flush()
            return position > 0
        time.sleep(_EVERY)


def _printable(text: str) -> str:
    """``text`` with its blanks as they are, another one for each control character."""
    lines = _LINE_END.sub("\n", text)
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in lines)
