# SPDX-License-Identifier: Apache-2.0
"""Prints the table of runs and the log of one."""

import codecs
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from llmb.logs.scan import strip_escapes
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


_EVERY = 0.3  # seconds
# May continue in the next bytes: an escape sequence, or a line end of two characters.
_OPEN = re.compile(rb"(?:\r|\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,200}\x1b?)?)\Z")
_LINE_END = re.compile(r"\r\n?")  # a progress bar returns to the start of its line


def tail(path: Path, out: TextIO, *, ended: Callable[[], bool]) -> bool:
    """Copy the log ``path`` to ``out`` until its writer has ``ended``; False where it was empty.

    Control characters do not reach the terminal.
    """
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    position, kept = 0, b""
    while True:
        last = ended()  # before reading, so that everything written before the end is read
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
    """``text`` with a blank for each control character."""
    lines = _LINE_END.sub("\n", text)
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in lines)
