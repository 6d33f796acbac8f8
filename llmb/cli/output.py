# SPDX-License-Identifier: Apache-2.0
"""Prints rows in the format that the user asked for: data on stdout, and nothing else there."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from llmb.tables import Column, Row, output_width, render, to_json

_FIGURES, _LEAST_NAME = 80, 32  # characters; the least has room for llama3.1_405b_fp8_gpus1024..


def print_rows(columns: Sequence[Column], rows: Sequence[Row], fmt: str) -> None:
    """Print a table, JSON, CSV or Markdown; an empty table prints nothing, empty data its empty form."""
    if rows or fmt in ("json", "csv"):
        click.echo(render(columns, rows, fmt), nl=False)


def name_width(fmt: str) -> int:
    """How many characters of a name a table has room for beside its figures, on this terminal."""
    from llmb.results.columns import NAME_WIDTH

    return NAME_WIDTH if fmt != "table" else max(_LEAST_NAME, min(NAME_WIDTH, output_width() - _FIGURES))


def print_json_list(key: str, items: Iterable[Mapping[str, Any]]) -> None:
    """Print ``{key: [...]}`` as ``to_json`` writes it, item by item: ten thousand scripts need not be in memory."""
    before = f'{{\n  "{key}": ['
    for item in items:
        click.echo(before + "\n" + textwrap.indent(to_json(item).rstrip("\n"), "    "), nl=False)
        before = ","
    click.echo(before + "]\n}" if before != "," else "\n  ]\n}")
