# SPDX-License-Identifier: Apache-2.0
"""Shows running steps: bars in a terminal, otherwise a line when a step starts and ends."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from llmb.core.shell import StoppedError
from llmb.core.tables import shorten
from llmb.core.units import bytes_in_words
from llmb_installer.step import InstallStep

# characters: of a title at least, a bar, and the status of a step
_TITLE, _BAR, _STATUS = 16, 12, 44
_WIDE = 100  # characters: narrower terminals have no bars
_EVERY = 30.0  # seconds between lines on a running step, where there is no terminal


class Display:
    """Shows steps on standard error.

    A context manager. ``step`` is called in the thread that builds the step.
    """

    def __init__(self, stop: threading.Event, *, interval: float = _EVERY) -> None:
        self.stop, self.every = stop, interval
        self.running: list[str] = []  # keys of steps
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
    def step(self, step: InstallStep) -> Iterator[StepProgress]:
        """Show one step from start to end."""
        title = f"{step.key}: {step.title}"
        task = None
        if self.bars is not None:
            bar = _BAR + 1 if self.console.width >= _WIDE else 0
            width = max(_TITLE, self.console.width - bar - _STATUS - len("0:00:00") - 3)
            task = self.bars.add_task(shorten(title, width), total=None, status="")
        else:
            self.say(f"{title}: started")
        start, ended = time.monotonic(), "failed"
        self.running.append(step.key)
        try:
            yield StepProgress(display=self, key=step.key, task=task, started=start, shown=start)
            ended = "done"
        except StoppedError:
            ended = "stopped"
            raise
        finally:
            self.running.remove(step.key)
            if self.bars is not None and task is not None:
                self.bars.remove_task(task)
            if ended == "failed" and self.stop.is_set():  # its program was ended
                ended = "stopped"
            self.say(f"{title}: {ended} after {time.monotonic() - start:.0f} s")

    def say(self, line: str) -> None:
        """Print a line above the bars."""
        self.console.print(line, markup=False, soft_wrap=not self.console.is_terminal)


@dataclass(slots=True)
class StepProgress:
    """The progress of one step. Its calls raise StoppedError once the user interrupted.

    ``started`` is the time of its start, ``shown`` that of its last line, without a terminal.
    """

    display: Display
    key: str
    task: TaskID | None
    started: float
    shown: float
    bytes: int = 0
    of: int = 0
    text: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def total(self, bytes: int) -> None:
        with self.lock:
            self.of = bytes
        self._update()

    def advance(self, bytes: int) -> None:
        with self.lock:
            self.bytes += bytes
        self._update()

    def say(self, text: str) -> None:
        with self.lock:
            self.text = text
        self._update()

    @property
    def status(self) -> str:
        """Finished bytes, the total if it is known, and the step's own words."""
        amount = bytes_in_words(self.bytes) if self.bytes or self.of else ""
        if self.of:
            amount = f"{amount} of {bytes_in_words(self.of)}"
        return ", ".join(part for part in (amount, self.text) if part)

    def _short(self) -> str:
        status = self.status
        return status if len(status) <= _STATUS else f"{status[: _STATUS - 3]}..."

    def _update(self) -> None:
        if self.display.stop.is_set():
            raise StoppedError("interrupted")
        if self.display.bars is not None and self.task is not None:
            bytes, total, status = self.bytes, self.of or None, self._short()
            self.display.bars.update(self.task, completed=bytes, total=total, status=status)
        elif self.display.bars is None:
            self._print()

    def _print(self) -> None:
        with self.lock:
            now = time.monotonic()
            if now - self.shown < self.display.every:
                return
            self.shown = now
        is_fetched = 0 < self.of <= self.bytes
        more = "still running" if is_fetched or not self.status else ""
        status = ", ".join(filter(None, [self.status, more]))
        self.display.say(f"{self.key}: {status}, after {now - self.started:.0f} s")


def _bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        *([BarColumn(bar_width=_BAR)] if console.width >= _WIDE else []),
        TimeElapsedColumn(),
        TextColumn("{task.fields[status]}", markup=False),
        console=console,
        transient=True,
    )
