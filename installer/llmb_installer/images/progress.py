# SPDX-License-Identifier: Apache-2.0
"""Shows the progress of building one image: a bar on a terminal, else a line for each stage."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmb.system import console

if TYPE_CHECKING:
    from rich import progress

    from llmb_installer.step import Progress


@contextlib.contextmanager
def shown() -> Iterator[Progress]:
    """Progress on standard error."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        yield Bar(bar)


class Lines:
    """Progress without a terminal: one line on standard error for each stage."""

    def total(self, bytes: int) -> None:
        """Show nothing."""

    def advance(self, bytes: int) -> None:
        """Show nothing."""

    def say(self, text: str) -> None:
        """Print a line."""
        console.echo(text, err=True)


class Bar:
    """Progress as a bar, below the lines."""

    def __init__(self, bar: progress.Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("image", total=None)

    def total(self, bytes: int) -> None:
        """Set the length of the bar."""
        self._bar.update(self._task, total=bytes)

    def advance(self, bytes: int) -> None:
        """Move the bar."""
        self._bar.update(self._task, advance=bytes)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(text, highlight=False, markup=False, soft_wrap=True)
