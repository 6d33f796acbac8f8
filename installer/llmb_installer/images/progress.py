# SPDX-License-Identifier: Apache-2.0
"""Shows how far the building of one image is: a bar on a terminal, else a line for each thing that is done."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmb.system import console
from llmb_installer.images.settings import Progress

if TYPE_CHECKING:
    from rich import progress


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
    """Progress without a terminal: what is said, a line each."""

    def total(self, bytes: int) -> None:
        """Nothing: the lines say it."""

    def advance(self, bytes: int) -> None:
        """Nothing: the lines say it."""

    def say(self, text: str) -> None:
        """A line on standard error."""
        console.echo(text, err=True)


class Bar:
    """Progress as a bar, below what is said."""

    def __init__(self, bar: progress.Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("image", total=None)

    def total(self, bytes: int) -> None:
        """How long the bar is."""
        self._bar.update(self._task, total=bytes)

    def advance(self, bytes: int) -> None:
        """Move on."""
        self._bar.update(self._task, advance=bytes)

    def say(self, text: str) -> None:
        """A line above the bar."""
        self._bar.console.print(text, highlight=False, markup=False, soft_wrap=True)
