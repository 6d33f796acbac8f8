# SPDX-License-Identifier: Apache-2.0
"""Fits a table of runs into a terminal: names lose what they have in common, figures go, reasons stand below. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from llmb.text.names import apart
from llmb.text.tables import ANY_WIDTH, GAPS, Column, Row, plain_table, render, shorten

_INDENT, _LEAST_BELOW = 4, 12  # characters before and in a line below a row
_LEAST_NAME = 32  # characters of a name where nothing fits, and text is folded


class Level(NamedTuple):
    """A table as it would be shown; ``left_out``: what it has lost, in words."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    left_out: tuple[str, ...] = ()

    def without(self, *keys: str, said: str = "") -> Level:
        """The same without these columns; nothing is ``said`` of what is told elsewhere."""
        columns = [column for column in self.columns if column.key not in keys]
        lost = said and len(columns) < len(self.columns)
        return Level(columns, self.rows, (*self.left_out, said) if lost else self.left_out)


def fitted(
    levels: Iterable[Level], width: int, *, name: str = "experiment", below: str = "reason", most: int | None = None
) -> tuple[str, tuple[str, ...]]:
    """The table of the first of ``levels`` that fits into ``width`` characters, and what it has left out.

    Texts of the column ``name`` are experiments' names: in at most ``most`` characters, and different ones stay
    different; where ``most`` is None they stay as they are, so that they can be copied. The texts of ``below`` stand on
    lines of their own where a row has no room for them. Where no level fits, names of the last one may read the same,
    and without room for those it is folded, or with names as they are goes beyond the width.
    """
    for level in levels:
        rows = _named(level, width, name, below, most)
        if rows is not None and (text := _drawn(level.columns, rows, width, below)) is not None:
            return text, level.left_out
    if most is None:
        text = _drawn(level.columns, level.rows, width, below, beyond=True)
        return text or render(level.columns, level.rows, "table", width=width), level.left_out
    room = min(most, _room(level, width, name, below))
    rows = [{**row, name: shorten(row[name], max(room, min(_LEAST_NAME, most)))} for row in level.rows]
    if room >= _LEAST_NAME and (text := _drawn(level.columns, rows, width, below)) is not None:
        return text, level.left_out
    return render(level.columns, rows, "table", width=width), level.left_out


def _named(level: Level, width: int, name: str, below: str, most: int | None) -> Sequence[Row] | None:
    """The rows with names that have room beside the figures; None where they have none."""
    if most is None:
        return level.rows
    names = apart([row[name] for row in level.rows], min(most, _room(level, width, name, below)))
    if names is None:
        return None
    return [{**row, name: shown} for row, shown in zip(level.rows, names, strict=True)]


def _room(level: Level, width: int, name: str, below: str) -> int:
    """The characters that the other columns leave for names."""
    others = [column for column in level.columns if column.key not in (name, below)]
    wide = [max([len(column.title()), *(len(column.cell(row)) for row in level.rows)]) for column in others]
    return width - 2 - sum(wide) - GAPS[-1] * len(wide)


def _drawn(
    columns: Sequence[Column], rows: Sequence[Row], width: int, below: str, *, beyond: bool = False
) -> str | None:
    """The table with each row on one line; if need be, the text of ``below`` on lines of its own.

    None where the rows are wider than ``width``, unless they may go ``beyond``.
    """
    for gap in GAPS:
        if (text := plain_table(columns, rows, width, gap)) is not None:
            return text
    under = next((column for column in columns if column.key == below), None)
    head = [column for column in columns if column is not under]
    rooms = [(width, gap) for gap in GAPS] + [(ANY_WIDTH, GAPS[-1])] * beyond
    text = next((text for room, gap in rooms if (text := plain_table(head, rows, room, gap)) is not None), None)
    if text is None or under is None:
        return text
    title, rule, *lines = text.splitlines()
    found, room = [title, rule], max(width - 1, _LEAST_BELOW)
    for line, row in zip(lines, rows, strict=True):
        found += [
            line,
            *textwrap.wrap(
                under.cell(row),
                room,
                initial_indent=" " * _INDENT,
                subsequent_indent=" " * _INDENT,
                break_on_hyphens=False,
            ),
        ]
    return "\n".join(found) + "\n"
