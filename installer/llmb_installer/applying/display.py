# SPDX-License-Identifier: Apache-2.0
"""Shows running steps: bars in a terminal, otherwise a line when a step starts and ends."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from llmb.system.shell import StoppedError
from llmb.text.tables import shorten
from llmb_installer.registry import size
from llmb_installer.steps import Step

_TITLE, _BAR, _STATUS = 24, 12, 26  # characters: of a title at least, a bar, and the status of a step


class Display:
    """Shows steps on standard error. A context manager; ``step`` is called in the thread that builds the step."""

    def __init__(self, stop: threading.Event) -> None:
        self.stop = stop
        self.console: Console = Console(stderr=True, highlight=False)
        self.bars: Progress | None = None

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            self.bars = _bars(self.console)
            self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.bars is not None:
            self.bars.stop()

    @contextlib.contextmanager
    def step(self, step: Step) -> Iterator[StepProgress]:
        """Show one step from start to end."""
        title = f"{step.key}: {step.title}"
        task = None
        if self.bars is not None:
            width = max(_TITLE, self.console.width - _BAR - _STATUS - 10)
            task = self.bars.add_task(shorten(title, width), total=None, status="")
        else:
            self.say(f"{title}: started")
        start, ended = time.monotonic(), "failed"
        try:
            yield StepProgress(display=self, task=task)
            ended = "done"
        except StoppedError:
            ended = "stopped"
            raise
        finally:
            if self.bars is not None and task is not None:
                self.bars.remove_task(task)
            self.say(f"{title}: {ended} after {time.monotonic() - start:.0f} s")

    def say(self, line: str) -> None:
        """Print a line above the bars."""
        self.console.print(line, markup=False, soft_wrap=True)


@dataclass(slots=True)
class StepProgress:
    """The progress of one step; its calls raise StoppedError once the user interrupted."""

    display: Display
    task: TaskID | None
    bytes: int = 0
    of: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def total(self, bytes: int) -> None:
        self.of = bytes
        self._update(total=bytes or None)

    def advance(self, bytes: int) -> None:
        with self.lock:
            self.bytes += bytes
        shown = {"status": f"{size(self.bytes)} of {size(self.of)}"} if bytes and self.of else {}
        self._update(advance=bytes, **shown)

    def say(self, text: str) -> None:
        self._update(status=shorten(text, _STATUS))

    def _update(self, **fields: Any) -> None:
        if self.display.stop.is_set():
            raise StoppedError("interrupted")
        if self.display.bars is not None and self.task is not None:
            self.display.bars.update(self.task, **fields)


def _bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=_BAR),
        TimeElapsedColumn(),
        TextColumn("{task.fields[status]}", markup=False),
        console=console,
        transient=True,
    )
