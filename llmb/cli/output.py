# SPDX-License-Identifier: Apache-2.0
"""Prints rows in the format that the user chose; stdout has only data."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llmb.cli.context import say
from llmb.system import console
from llmb.text.tables import Column, Row, output_width, render, to_json

if TYPE_CHECKING:
    from llmb.text.narrow import Level

NAME_WIDTH = 90  # characters of a name, unless --full-names


def print_rows(columns: Sequence[Column], rows: Sequence[Row], fmt: str) -> None:
    """Print a table, JSON, CSV or Markdown. Without rows, JSON and CSV print their empty form, the others nothing."""
    if rows or fmt in ("json", "csv"):
        console.echo(render(columns, rows, fmt), nl=False)


def print_runs(levels: Iterable[Level], fmt: str, *, full_names: bool = False, **how: str) -> None:
    """Print a table of runs at the first of ``levels`` that the terminal has room for, and say what is left out.

    Every other format has all of the first level. ``how`` as ``narrow.fitted`` takes it.
    """
    from llmb.text.narrow import fitted

    levels = iter(levels)
    first = next(levels)
    if fmt != "table" or not first.rows:
        print_rows(first.columns, first.rows, fmt)
        return
    width = output_width()
    text, left_out = fitted(itertools.chain([first], levels), width, most=None if full_names else NAME_WIDTH, **how)
    console.echo(text, nl=False)
    if left_out:
        say(f"left out in {width} columns: {', '.join(left_out)}; --format csv, or a wider window, has all")


def print_json_list(key: str, items: Iterable[Mapping[str, Any]]) -> None:
    """Print ``{key: [...]}`` like ``to_json``, but item by item, to hold few of ten thousand scripts in memory."""
    before = f'{{\n  "{key}": ['
    for item in items:
        console.echo(before + "\n" + textwrap.indent(to_json(item).rstrip("\n"), "    "), nl=False)
        before = ","
    console.echo(before + "]\n}" if before != "," else "\n  ]\n}")
