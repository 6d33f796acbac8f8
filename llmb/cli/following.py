# SPDX-License-Identifier: Apache-2.0
"""Follows runs on the terminal: a live table of progress, or a line for each change where there is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from llmb.cli.context import Context, say
from llmb.follow import wait
from llmb.logs.reader import progress
from llmb.runs.record import RunRecord
from llmb.state import RUNNING, JobState

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

RUN_FAILED = 3


def follow_to_results(context: Context, runs: Sequence[RunRecord], fmt: str) -> int:
    """Wait for ``runs`` and print their results; exit code 3 when one failed."""
    from llmb.cli.reporting import print_results

    follow(context, runs)
    return print_results(context, runs, fmt)


def follow(context: Context, runs: Sequence[RunRecord]) -> dict[str, JobState]:
    """Wait until all ``runs`` have ended, showing each one's step. Ctrl-C stops waiting and leaves the jobs alone."""
    cluster = context.need_cluster()
    try:
        with _display(runs) as show:
            return wait(cluster, runs, show)
    except KeyboardInterrupt:
        say("stopped waiting; the jobs go on.  again: llmb-run jobs wait    end them: llmb-run jobs cancel --all")
        raise


@contextmanager
def _display(runs: Sequence[RunRecord]) -> Iterator[_Shower]:
    if not sys.stderr.isatty():
        yield _Lines(runs)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[word]}"),
    )
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bars:
        yield _Bars(runs, bars)


class _Shower:
    """Sees each round of polling; tells every end once."""

    def __init__(self, runs: Sequence[RunRecord]) -> None:
        self.runs = runs
        self.told: dict[str, str] = {}

    def __call__(self, states: Mapping[str, JobState]) -> None:
        for run in self.runs:
            state = states[run.id]
            if self.told.get(run.id) != state.state:
                self.told[run.id] = state.state
                self.changed(run, state)
        self.round(states)

    def changed(self, run: RunRecord, state: JobState) -> None:
        reason = f": {state.reason}" if state.reason and state.is_end else ""
        self.line(f"{_now()} {run.id} {run.job.experiment_name} {state.state}{reason}")

    def line(self, text: str) -> None:
        say(text)

    def round(self, states: Mapping[str, JobState]) -> None:
        """Show what has no line of its own."""


class _Lines(_Shower):
    """Without a terminal: a line for each change, nothing between."""


class _Bars(_Shower):
    """On a terminal: one bar over all jobs, and one for each that runs."""

    def __init__(self, runs: Sequence[RunRecord], bars: Progress) -> None:
        super().__init__(runs)
        self.bars = bars
        self.all = bars.add_task("jobs", total=len(runs), word="")
        self.tasks: dict[str, TaskID] = {}

    def changed(self, run: RunRecord, state: JobState) -> None:
        if state.is_end:
            super().changed(run, state)

    def line(self, text: str) -> None:
        self.bars.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def round(self, states: Mapping[str, JobState]) -> None:
        ended = sum(state.is_end for state in states.values())
        self.bars.update(self.all, completed=ended, word=f"{len(states) - ended} to go")
        for run in self.runs:
            if states[run.id].state == RUNNING:
                self.step(run)
            elif run.id in self.tasks:
                self.bars.remove_task(self.tasks.pop(run.id))

    def step(self, run: RunRecord) -> None:
        if run.id not in self.tasks:
            self.tasks[run.id] = self.bars.add_task(run.job.experiment_name, total=run.job.max_steps, word="starting")
        at = progress(run.log)
        if at is not None:
            self.bars.update(self.tasks[run.id], completed=at[0] + 1, total=at[1] + 1, word="steps")


def _now() -> str:
    return time.strftime("%H:%M:%S")
