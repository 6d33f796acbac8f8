# SPDX-License-Identifier: Apache-2.0
"""Writes rows as a table, Markdown, CSV or JSON, for every command with ``--format``."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any, Literal

from llmb.core.names import shorter
from llmb.core.values import dataclass

if TYPE_CHECKING:
    from rich.table import Table

ANY_WIDTH = 1 << 14
# Characters of width 1: Latin, and the dashes, quotes, arrows and mathematical signs in messages.
_ONE_PLACE = re.compile("[ -\u02ff\u2010-\u2027\u2030-\u205e\u2190-\u22ff]*")
# How text is folded, as far as the width allows, best first: words up to this length are not
# broken, and columns that must be folded have at least this width, both in characters. Numbers are
# never broken.
_FOLDS = (*itertools.product((32, 20), (12, 8)), *((word, 8) for word in range(19, 7, -1)))
_FORMULA = re.compile(r"[=+@-].")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
GAPS = (3, 2, 1)  # blanks between columns, as far as the width allows

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table."""

    #: Of its values in a row, in CSV and in JSON.
    key: str
    #: For people. None: the key with blanks.
    heading: str | None = None
    #: Formats a value that is not None for people.
    show: Callable[[Any], str] = str
    #: Aligns numbers.
    right: bool = False
    #: Its words are never broken, as in names.
    whole: bool = False
    #: Omitted in narrow terminals, the rightmost optional column first.
    optional: bool = False

    def title(self) -> str:
        """The heading for people."""
        return self.key.replace("_", " ") if self.heading is None else self.heading

    def cell(self, row: Row) -> str:
        """Return the row's value for people, empty without one."""
        value = row.get(self.key)
        return "" if value is None else escape(self.show(value))


def render(
    columns: Sequence[Column], rows: Sequence[Row], fmt: str, *, width: int | None = None
) -> str:
    """Return the rows as ``table``, ``json``, ``csv`` or ``md``, nothing but data.

    It ends with a newline.

    JSON and CSV have the values themselves, table and Markdown what the columns show. A table is as
    wide as ``width``, else the terminal, else COLUMNS, else as wide as it needs. Longer text is
    folded.
    """
    if fmt == "json":
        return to_json([{column.key: row.get(column.key) for column in columns} for row in rows])
    if fmt == "csv":
        return _csv(columns, rows)
    if fmt == "md":
        return _markdown(columns, rows)
    width = width or output_width()
    if plain := plain_table(columns, rows, width):
        return plain
    extents = [_extent(column, rows) for column in columns]
    for (word, narrowest), gap in itertools.product(_FOLDS, GAPS):
        least = [extent.least(word, narrowest) for extent in extents]
        total = 1 + sum(least) + gap * len(least)
        if total <= width:
            break
    width = max(width, total)
    return _print(_table(columns, rows, gap, _widened(least, extents, width - total)), width)


def to_json(data: Any) -> str:
    """Plain data as JSON for any parser: nan and inf become null, all but ASCII is escaped."""
    return indented_json(data) + "\n"


def indented_json(data: Any, depth: int = 0) -> str:
    """Return ``to_json`` without its newline, for a place that is ``depth`` levels deep.

    With an indentation, json.dumps leaves its C code and takes several times as long.
    """
    return _indented(data, "\n" + "  " * depth)


def indented_items(items: Iterable[Mapping[str, Any]], depth: int) -> Iterator[str]:
    """Yield ``indented_json`` of each item.

    A value that is the same object as in the item before is not formatted again: repeats of a job
    share their script.
    """
    line = "\n" + "  " * depth
    members: dict[str, tuple[object, str]] = {}
    for item in items:
        for key, value in item.items():
            if key not in members or members[key][0] is not value:
                members[key] = value, _member(key, value, line)
        yield _brackets([members[key][1] for key in item], "{}", line)


def _indented(value: Any, line: str) -> str:
    """Return the JSON of a value whose last line begins with ``line``, a newline and blanks."""
    if (write := _WRITERS.get(type(value))) is not None:
        return write(value)
    if isinstance(value, Mapping):
        return _brackets([_member(key, item, line) for key, item in value.items()], "{}", line)
    if isinstance(value, (list, tuple)):
        return _brackets([_indented(item, line + "  ") for item in value], "[]", line)
    return json.dumps(finite(value))


_WRITERS: dict[type, Callable[[Any], str]] = {
    str: encode_basestring_ascii,
    int: repr,
    float: lambda value: repr(value) if math.isfinite(value) else "null",
    bool: lambda value: "true" if value else "false",
    type(None): lambda value: "null",
}


def _member(key: object, value: Any, line: str) -> str:
    name = key if isinstance(key, str) else json.dumps(key)
    return f"{encode_basestring_ascii(name)}: {_indented(value, line + '  ')}"


def _brackets(texts: Sequence[str], pair: str, line: str) -> str:
    if not texts:
        return pair
    return f"{pair[0]}{line}  {f',{line}  '.join(texts)}{line}{pair[1]}"


def escape(text: str) -> str:
    """Replace each character that is not printable by an escape sequence."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def as_markdown(text: str) -> str:
    """``text`` for Markdown, without HTML and control characters."""
    from html import escape as escape_html  # its table of entities takes milliseconds

    return escape_html(escape(text), quote=False)


def shorten(text: str, width: int) -> str:
    """``text`` in at most ``width`` characters (5 or more), without its middle.

    The name of an experiment first loses its least important parts (``names.shorter``).
    """
    for less in shorter(text):
        if len(less) <= width:
            return less
    text = less
    end = (width - 3) // 2
    return f"{text[: width - 3 - end]}...{text[len(text) - end :]}"


def output_width() -> int:
    """The width of a line on standard output in characters."""
    if sys.stdout.isatty():
        import shutil  # takes 2 ms

        return shutil.get_terminal_size().columns
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isascii() and columns.isdigit() and int(columns) else ANY_WIDTH


_UNCHANGED = frozenset({str, int, bool, type(None)})


def finite(value: Any) -> Any:
    """Return a copy of plain data as JSON has it: tuples are lists, nan and inf are None."""
    kind = type(value)
    if kind in _UNCHANGED:
        return value
    if kind is float or isinstance(value, float):
        return value if math.isfinite(value) else None
    if kind is dict or isinstance(value, Mapping):
        return {
            key: item if type(item) in _UNCHANGED else finite(item) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        are_unchanged = _UNCHANGED.issuperset(map(type, value))
        return list(value) if are_unchanged else [finite(item) for item in value]
    return value


def _csv(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([column.key for column in columns])
    writer.writerows([[_csv_value(row.get(column.key)) for column in columns] for row in rows])
    return stream.getvalue()


def _csv_value(value: Any) -> Any:
    if isinstance(value, str):
        text = escape(value)
        # no spreadsheet may take it for a formula, which names of others' logs may be
        return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text
    is_nested = type(value) not in _WRITERS and isinstance(value, (list, tuple, Mapping))
    return json.dumps(finite(value)) if is_nested else value


def plain_table(
    columns: Sequence[Column], rows: Sequence[Row], width: int, gaps: Iterable[int] = GAPS
) -> str | None:
    """Return the table as rich draws it, 50 times as fast, or None if it has to be folded.

    Between columns are as many blanks as the first of ``gaps`` that fits. None also for characters
    that are wider than 1.
    """
    titles = [column.title() for column in columns]
    # Most cells repeat a text, so one object for each text halves the memory of a long table.
    texts: dict[str, str] = {}
    cells = [
        [texts.setdefault(text, text) for text in (column.cell(row) for column in columns)]
        for row in rows
    ]
    if not all(_ONE_PLACE.fullmatch(text) and text == text.strip() for text in (*titles, *texts)):
        return None
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    totals = {gap: sum(widths) + gap * (len(widths) - 1) for gap in gaps}
    gap = next((gap for gap, total in totals.items() if total + 2 <= width), None)
    if not titles or gap is None or 0 in widths:
        return None
    pads = [
        f"{{:{'>' if column.right else '<'}{wide}}}"
        for column, wide in zip(columns, widths, strict=True)
    ]
    line, rule = " " + (" " * gap).join(pads), " " + "─" * totals[gap]
    drawn = [line.format(*texts).rstrip() for texts in cells]
    return "\n".join([line.format(*titles).rstrip(), rule, *drawn]).rstrip("\n") + "\n"


def _table(
    columns: Sequence[Column], rows: Sequence[Row], gap: int, widths: Sequence[int | None]
) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # One blank of a gap is that of the box. Widths are explicit, as rich narrows columns without
    # regard to words.
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, int(gap > 1), 0, int(gap > 2)))
    for column, wide in zip(columns, widths, strict=True):
        # Text, not str: brackets in a str are rich's markup.
        justify: Literal["left", "right"] = "right" if column.right else "left"
        table.add_column(
            Text(column.title()), justify=justify, no_wrap=column.right, overflow="fold", width=wide
        )
    for row in rows:
        table.add_row(*(Text(column.cell(row)) for column in columns))
    return table


@dataclass(frozen=True, slots=True)
class _Extent:
    """The length of a column's longest cell and longest word, None for numbers."""

    cell: int
    word: int | None
    whole: bool

    def least(self, word: int, narrowest: int) -> int:
        """Return the least width that breaks no word of up to ``word`` characters.

        Long cells have ``narrowest`` or more.
        """
        if self.word is None:
            return self.cell
        return min(self.cell, max(narrowest, self.word if self.whole else min(self.word, word)))


def _extent(column: Column, rows: Sequence[Row]) -> _Extent:
    from rich.cells import cell_len

    texts = [column.title(), *(column.cell(row) for row in rows)]
    words = (cell_len(word) for text in texts for word in text.split())
    return _Extent(
        max(map(cell_len, texts)), None if column.right else max(words, default=0), column.whole
    )


def _widened(least: Sequence[int], extents: Sequence[_Extent], spare: int) -> list[int]:
    """Widen the ``least`` widths by ``spare`` characters, the narrowest column first."""
    widths = list(least)
    for _ in range(spare):
        wanting = [place for place, extent in enumerate(extents) if widths[place] < extent.cell]
        if not wanting:
            break
        widths[min(wanting, key=lambda place: widths[place])] += 1
    return widths


def _markdown(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    from rich.cells import cell_len

    cells = [
        [column.title() for column in columns],
        *([column.cell(row) for column in columns] for row in rows),
    ]
    texts = [[as_markdown(text).replace("|", r"\|") for text in line] for line in cells]
    widths = [max(map(cell_len, column_texts)) for column_texts in zip(*texts, strict=True)]
    lines = []
    for line in texts:
        blanks = [" " * (wide - cell_len(text)) for text, wide in zip(line, widths, strict=True)]
        parts = zip(columns, line, blanks, strict=True)
        lines.append(
            " | ".join(
                blank + text if column.right else text + blank for column, text, blank in parts
            )
        )
    rule = "|".join(
        "-" * (wide + 1) + "-:"[column.right] for column, wide in zip(columns, widths, strict=True)
    )
    return (
        "\n".join([f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])]) + "\n"
    )


def _print(table: Table, width: int) -> str:
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None, legacy_windows=False).print(table)
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    return "\n".join(lines).strip("\n") + "\n"
