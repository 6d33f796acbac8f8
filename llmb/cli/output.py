# SPDX-License-Identifier: Apache-2.0
"""Prints rows in the format that the user asked for: data on stdout, and nothing else there."""

from __future__ import annotations

from collections.abc import Sequence

import click

from llmb.tables import Column, Row, render


def print_rows(columns: Sequence[Column], rows: Sequence[Row], fmt: str) -> None:
    """Print a table, JSON, CSV or Markdown; an empty table prints nothing, empty data its empty form."""
    if rows or fmt in ("json", "csv"):
        click.echo(render(columns, rows, fmt), nl=False)
