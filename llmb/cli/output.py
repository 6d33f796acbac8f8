# SPDX-License-Identifier: Apache-2.0
"""Prints rows in the chosen format, and tables in the width of the terminal."""

import itertools
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmb.cli.context import say
from llmb.core import console
from llmb.core.names import apart
from llmb.core.tables import (
    ANY_WIDTH,
    GAPS,
    Column,
    Row,
    indented_items,
    indented_json,
    output_width,
    plain_table,
    render,
    shorten,
)
from llmb.errors import UsageError

NAME_WIDTH = 90  # characters of a name, unless --full-names


def print_rows(columns: Sequence[Column], rows: Sequence[Row], fmt: str) -> None:
    """Print a table, JSON, CSV or Markdown. Without rows, only JSON and CSV print something."""
    if rows or fmt in ("json", "csv"):
        console.echo(render(columns, rows, fmt), nl=False, coloured=fmt == "table")


def print_all(columns: Sequence[Column], rows: Sequence[Row], fmt: str) -> None:
    """Print as ``print_rows`` does, but JSON and CSV with all fields.

    CSV has lists and mappings as people read them.
    """
    shown = {column.key: column.show for column in columns}
    if fmt == "csv":
        rows = [
            {
                key: (
                    shown[key](value) if isinstance(value, (list, dict)) and key in shown else value
                )
                for key, value in row.items()
                if not isinstance(value, dict) or key in shown
            }
            for row in rows
        ]
    if fmt in ("json", "csv"):
        columns = [
            *columns,
            *(Column(key=key) for key in dict.fromkeys(itertools.chain(*rows)) if key not in shown),
        ]
    print_rows(columns, rows, fmt)


def print_runs(
    columns: Sequence[Column],
    rows: Sequence[Row],
    fmt: str,
    *,
    full_names: bool = False,
    **layout: str,
) -> None:
    """Print a table that fits the terminal, and name the columns that it omits.

    Other formats have all columns. ``layout``: the keywords ``name`` and ``below`` of ``fit``.
    """
    if fmt != "table" or not rows:
        print_rows(columns, rows, fmt)
        return
    width = output_width()
    text, omitted = fit(columns, rows, width, longest=None if full_names else NAME_WIDTH, **layout)
    console.echo(text, nl=False, coloured=True)
    _name_omitted(omitted, width)


def print_folded(columns: Sequence[Column], rows: Sequence[Row], fmt: str) -> None:
    """Print as ``print_all``. A table omits optional columns that do not fit the terminal, and
    folds its cells at blanks.
    """
    if fmt != "table" or not rows:
        print_all(columns, rows, fmt)
        return
    width = output_width()
    for shown in _choices(columns):
        text = render(shown, rows, "table", width=width)
        if max(map(len, text.splitlines())) <= width:
            break
    console.echo(text, nl=False, coloured=True)
    _name_omitted(_without(columns, shown), width)


def _choices(columns: Sequence[Column]) -> Iterator[list[Column]]:
    """Yield all columns, then fewer and fewer: the rightmost optional one is omitted first."""
    optional = [column for column in columns if column.optional]
    for count in range(len(optional), -1, -1):
        yield [column for column in columns if not column.optional or column in optional[:count]]


def _without(columns: Sequence[Column], shown: Sequence[Column]) -> tuple[str, ...]:
    """Return the titles of the columns that are not ``shown``."""
    return tuple(column.title() for column in columns if column not in shown)


def _name_omitted(omitted: Sequence[str], width: int) -> None:
    if omitted:
        say(
            f"omitted in {width} columns: {', '.join(omitted)}; a wider window or --format csv"
            " shows them"
        )


def print_json_list(
    key: str, items: Iterable[Mapping[str, Any]], extra: Mapping[str, Any] | None = None
) -> None:
    """Print ``{key: [...], **extra}`` item by item, since 10,000 scripts need much memory."""
    before = f'{{\n  "{key}": ['
    for text in indented_items(items, 2):
        console.echo(f"{before}\n    {text}", nl=False)
        before = ","
    console.echo(before + "]" if before != "," else "\n  ]", nl=False)
    for name, value in (extra or {}).items():
        console.echo(f",\n  {indented_json(name)}: {indented_json(value, 1)}", nl=False)
    console.echo("\n}")


_INDENT, _LEAST_BELOW = 4, 12  # characters before and in a line below a row
_LEAST_NAME = 32  # characters of a name where nothing fits, and text is folded


def fit(
    columns: Sequence[Column],
    rows: Sequence[Row],
    width: int,
    *,
    name: str = "experiment",
    below: str = "reason",
    longest: int | None = None,
) -> tuple[str, tuple[str, ...]]:
    """The table of ``rows`` in ``width`` characters, and the titles of the columns that it omits.

    Optional columns are omitted from the right until each row fits on one line. The text of column
    ``below`` may go on lines of its own. Names of experiments (column ``name``) have at most
    ``longest`` characters, unless different ones would then look the same (``names.apart``). If
    even that is too wide, names are shortened in the middle, and without space for them cells are
    folded. If ``longest`` is None, names stay whole, and rows may be wider than ``width``.
    """
    # Formatted once, since several choices of columns are drawn.
    cells = [{column.key: column.cell(row) for column in columns} for row in rows]
    rows = [{**line, name: row[name]} for line, row in zip(cells, rows, strict=True)]
    columns = [column if column.key == name else replace(column, show=str) for column in columns]
    names = [row[name] for row in rows]
    if longest is not None and apart(names, longest) is None:
        longest = max(map(len, names))
    for shown in _choices(columns):
        named = _named(shown, rows, width, name, below, longest)
        if named is not None and (text := _drawn(shown, named, width, below)) is not None:
            break
    else:
        text = _squeezed(shown, rows, width, name, below, longest)
    return text, _without(columns, shown)


def _squeezed(
    columns: Sequence[Column],
    rows: Sequence[Row],
    width: int,
    name: str,
    below: str,
    longest: int | None,
) -> str:
    """The table if no choice of columns fits: names lose their middle, or rows are too wide."""
    if longest is None:
        return _drawn(columns, rows, width, below, beyond=True) or render(
            columns, rows, "table", width=width
        )
    space = min(longest, _space_for_names(columns, rows, width, name, below))
    rows = [
        {**row, name: shorten(row[name], max(space, min(_LEAST_NAME, longest)))} for row in rows
    ]
    text = _drawn(columns, rows, width, below) if space >= _LEAST_NAME else None
    return text or render(columns, rows, "table", width=width)


def _named(
    columns: Sequence[Column],
    rows: Sequence[Row],
    width: int,
    name: str,
    below: str,
    longest: int | None,
) -> Sequence[Row] | None:
    """The rows with names that fit and stay different, or None without space for such names."""
    if longest is None:
        return rows
    names = apart(
        [row[name] for row in rows],
        min(longest, _space_for_names(columns, rows, width, name, below)),
    )
    return (
        None
        if names is None
        else [{**row, name: shown} for row, shown in zip(rows, names, strict=True)]
    )


def _space_for_names(
    columns: Sequence[Column], rows: Sequence[Row], width: int, name: str, below: str
) -> int:
    """The characters that the other columns leave for names."""
    other_columns = [column for column in columns if column.key not in (name, below)]
    wide = [
        max([len(column.title()), *(len(column.cell(row)) for row in rows)])
        for column in other_columns
    ]
    return width - 2 - sum(wide) - GAPS[-1] * len(wide)


def _drawn(
    columns: Sequence[Column], rows: Sequence[Row], width: int, below: str, *, beyond: bool = False
) -> str | None:
    """Return the table with a row on each line, and ``below`` on lines of its own if needed.

    None if the rows are wider than ``width``, unless they may go ``beyond``.
    """
    if (text := plain_table(columns, rows, width)) is not None:
        return text
    under = next((column for column in columns if column.key == below), None)
    head = [column for column in columns if column is not under]
    text = plain_table(head, rows, width)
    if text is None and beyond:
        text = plain_table(head, rows, ANY_WIDTH, GAPS[-1:])
    if text is None or under is None:
        return text
    title, rule, *lines = text.splitlines()
    indent = " " * _INDENT
    wrapper = textwrap.TextWrapper(
        max(width - 1, _LEAST_BELOW),
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    drawn = [title, rule]
    for line, row in zip(lines, rows, strict=True):
        drawn += [line, *wrapper.wrap(under.cell(row))]
    return "\n".join(drawn) + "\n"


def check_folder(output: Path) -> None:
    """Raise UsageError if the folder of the file does not exist.

    A typing mistake should not create one.
    """
    folder = output.absolute().parent
    if folder.is_dir() and not output.is_dir():
        return
    if output.is_dir() or folder.exists():
        problem = f"{output} is a folder" if output.is_dir() else f"{folder} is not a folder"
        message, hint = f"--output: {problem}", "name a file: -o FILE"
    else:
        message = f"--output {output}: its folder does not exist"
        hint = f"create it: mkdir -p {shlex.quote(str(output.parent))}"
    raise UsageError(message, hint=hint, code="folder-missing", key="--output", value=str(output))
