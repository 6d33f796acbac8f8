# SPDX-License-Identifier: Apache-2.0
"""Prints rows in the format that the user chose; stdout has only data."""

import itertools
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llmb.cli.context import say
from llmb.system import console
from llmb.text.narrow import fit
from llmb.text.tables import Column, Row, output_width, render, to_json

NAME_WIDTH = 90  # characters of a name, unless --full-names


def print_rows(columns: Sequence[Column], rows: Sequence[Row], fmt: str) -> None:
    """Print a table, JSON, CSV or Markdown. Without rows, JSON and CSV print their empty form, the others nothing."""
    if rows or fmt in ("json", "csv"):
        console.echo(render(columns, rows, fmt), nl=False)


def print_all(columns: Sequence[Column], rows: Sequence[Row], fmt: str) -> None:
    """As ``print_rows``; JSON and CSV have all fields, CSV with lists and mappings as people read them."""
    shown = {column.key: column.show for column in columns}
    if fmt == "csv":
        rows = [
            {
                key: shown[key](value) if isinstance(value, (list, dict)) and key in shown else value
                for key, value in row.items()
                if not isinstance(value, dict) or key in shown
            }
            for row in rows
        ]
    if fmt in ("json", "csv"):
        columns = [*columns, *(Column(key=key) for key in dict.fromkeys(itertools.chain(*rows)) if key not in shown)]
    print_rows(columns, rows, fmt)


def print_runs(
    columns: Sequence[Column], rows: Sequence[Row], fmt: str, *, full_names: bool = False, **how: str
) -> None:
    """Print a table that fits the terminal, and name the columns that it omits; every other format has them all.

    ``how``: the keys ``name`` and ``below`` of ``tables.fit``.
    """
    if fmt != "table" or not rows:
        print_rows(columns, rows, fmt)
        return
    width = output_width()
    text, omitted = fit(columns, rows, width, longest=None if full_names else NAME_WIDTH, **how)
    console.echo(text, nl=False)
    if omitted:
        say(f"omitted in {width} columns: {', '.join(omitted)}; a wider window or --format csv shows them")


def print_json_list(key: str, items: Iterable[Mapping[str, Any]], more: Mapping[str, Any] | None = None) -> None:
    """Print ``{key: [...], **more}`` like ``to_json``, but item by item, to hold few of 10,000 scripts in memory."""
    before = f'{{\n  "{key}": ['
    for item in items:
        console.echo(before + "\n" + textwrap.indent(to_json(item).rstrip("\n"), "    "), nl=False)
        before = ","
    console.echo(before + "]" if before != "," else "\n  ]", nl=False)
    for name, value in (more or {}).items():
        text = textwrap.indent(to_json(value).rstrip("\n"), "  ").lstrip()
        console.echo(f",\n  {to_json(name).rstrip()}: {text}", nl=False)
    console.echo("\n}")
