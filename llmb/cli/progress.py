# SPDX-License-Identifier: Apache-2.0
"""Follows runs on the terminal: a live table of progress, or a line for each change where there is no terminal."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llmb.cli.context import Context, say
from llmb.errors import INTERRUPTED, LlmbError
from llmb.logs.collect import ReadState
from llmb.logs.reader import progress
from llmb.runs.record import RunRecord
from llmb.runs.state import NEXT, PENDING, RUNNING, UNKNOWN, WAITING, JobState
from llmb.submission.dispatch import Handed
from llmb.submission.follow import Watcher, wait
from llmb.text.names import apart
from llmb.text.tables import shorten

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

_NAMED = 4  # runs that a line has room for
_WIDE = 100  # characters of a terminal that has room for wider bars, and a word behind them
_BAR, _WIDE_BAR = 10, 20
_LEAST_NAME = 12  # characters of a name that still says something


def follow_to_results(
    context: Context, runs: Sequence[RunRecord], fmt: str, *, before: Sequence[RunRecord] = (), retries: int = 0
) -> int:
    """Wait for ``runs`` and print the results of those ``before`` and of these; exit code 3 when one failed."""
    from llmb.cli.results.judged import print_results

    followed, _ = follow(context, runs, retries)
    return print_results(context, [*before, *followed], fmt)


def follow(
    context: Context, runs: Sequence[RunRecord], retries: int = 0
) -> tuple[list[RunRecord], dict[str, JobState]]:
    """Wait until all ``runs`` are over, showing their steps; the runs, with retries their last attempts, and states.

    Ctrl-C stops waiting and leaves the jobs alone.
    """
    cluster = context.need_cluster()
    try:
        with _display(runs) as show:
            watcher = Watcher(on_round=show, on_retry=show.retried, on_trouble=show.trouble)
            return wait(cluster, runs, watcher, retries=retries)
    except KeyboardInterrupt:
        names = "".join(f" {run.id}" for run in runs) if len(runs) <= _NAMED else ""
        again, end = f"llmb-run jobs wait{names}", f"llmb-run jobs cancel{names or ' --all'}"
        say(f"stopped waiting; the jobs go on; to follow them again: {again}; to end them: {end}")
        raise click.exceptions.Exit(INTERRUPTED) from None  # all is said


@contextmanager
def _display(runs: Sequence[RunRecord]) -> Iterator[_Shower]:
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console

    with _progress(Console(stderr=True)) as bars:
        yield _Bars(runs, bars)


def _progress(console: Console) -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    wide = console.width >= _WIDE
    columns = [
        # Where a terminal is too narrow, a name gives way and never what it is of.
        TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=_WIDE_BAR if wide else _BAR),
        MofNCompleteColumn(),
        *([TextColumn("{task.fields[word]}")] if wide else []),
        TimeElapsedColumn(),
    ]
    return Progress(*columns, console=console, transient=True)


def described(runs: Sequence[RunRecord], width: int) -> dict[str, str]:
    """What stands before the bar of each of ``runs`` in a terminal of ``width`` characters: its id, and its name.

    Different names stay different where that can be; with less room than a name needs the id stands alone.
    """
    count = 2 * len(str(max((run.job.max_steps for run in runs), default=0))) + len("/")
    figures = _WIDE_BAR + len(" starting") if width >= _WIDE else _BAR
    figures += count + len("0:00:00") + len("    ")  # the blanks are between columns, and behind the id
    names = [run.job.experiment_name for run in runs]
    room = width - figures - max((len(run.id) for run in runs), default=0)
    if room < _LEAST_NAME:
        return {run.id: run.id for run in runs}
    shown = apart(names, room) or [shorten(name, room) for name in names]
    return {run.id: f"{run.id} {name}" for run, name in zip(runs, shown, strict=True)}


def _behind_others(states: Sequence[JobState]) -> Sequence[JobState]:
    """The first of this machine's runs as long as none of them has begun, and jobs that are not among them go before.

    That one of a list waits for the other is no news.
    """
    return states[:1] if all(one.state == PENDING and one.reason not in ("", NEXT) for one in states) else []


class _Shower:
    """Sees each round of polling; tells every end once."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}
        self.reasons: set[str] = set()

    def __call__(self, runs: Sequence[RunRecord], states: Mapping[str, JobState]) -> None:
        for run in runs:
            state = states[run.id]
            if self.told.get(run.id, PENDING) != state.state:
                self.changed(run, state)
            self.told[run.id] = state.state
        here = [states[run.id] for run in runs if run.cluster_type == "local"]
        self.waiting([*(states[run.id] for run in runs if run.cluster_type != "local"), *_behind_others(here)])
        self.round(runs, states)

    def changed(self, run: RunRecord, state: JobState) -> None:
        is_told = state.is_over or state.state == UNKNOWN
        reason = f": {state.reason}" if state.reason and is_told else ""
        self.line(f"{_now()} {run.id} {run.job.experiment_name} {state.state}{reason}")

    def retried(self, handed: Handed, end: JobState) -> None:
        run, error = handed.run, handed.error
        self.told.pop(run.id, None)
        what = f"is retried after {end.state}: attempt {run.attempt}"
        why = "" if error is None else f", which was not taken: {error.message}"
        self.line(f"{_now()} {run.id} {run.job.experiment_name} {what}{why}")

    def trouble(self, error: LlmbError) -> None:
        self.line(f"{_now()} the cluster does not answer and is asked again: {error.message}")

    def waiting(self, states: Sequence[JobState]) -> None:
        """Say why runs wait: one line for all of them, when a reason is new."""
        idle = [one for one in states if one.reason and not one.is_over and one.state not in (RUNNING, UNKNOWN)]
        counts = Counter(f"{one.state}, {one.reason}" for one in idle)
        if self.reasons.issuperset(counts):
            return
        told = "; ".join(f"{number} {why}" for why, number in counts.most_common())
        self.line(f"{_now()} waiting: {told}")
        fixes = {one.reason: one.fix for one in idle if one.fix and f"{one.state}, {one.reason}" not in self.reasons}
        for reason, fix in fixes.items():
            self.line(f"note: {reason}: {fix}")
        self.reasons |= set(counts)

    def line(self, text: str) -> None:
        say(text)

    def round(self, runs: Sequence[RunRecord], states: Mapping[str, JobState]) -> None:
        """Show what has no line of its own."""


class _Lines(_Shower):
    """Without a terminal: a line for each change, and for each tenth of a run's steps."""

    def __init__(self) -> None:
        super().__init__()
        self.tenths: dict[Path, int] = {}
        self.read: dict[Path, ReadState] = {}

    def changed(self, run: RunRecord, state: JobState) -> None:
        super().changed(run, state)
        if state.state in WAITING:  # again: it was requeued, and begins anew
            self.tenths.pop(run.log, None)

    def round(self, runs: Sequence[RunRecord], states: Mapping[str, JobState]) -> None:
        for run in runs:
            if states[run.id].state == RUNNING:
                self.step(run)

    def step(self, run: RunRecord) -> None:
        at, self.read[run.log] = progress(run.log, self.read.get(run.log))
        if at is not None and (tenth := 10 * (at[0] + 1) // (at[1] + 1)) > self.tenths.get(run.log, 0):
            self.tenths[run.log] = tenth
            self.line(f"{_now()} {run.id} {run.job.experiment_name} step {at[0] + 1} of {at[1] + 1}")


class _Bars(_Shower):
    """On a terminal: one bar over all jobs, and one for each that runs."""

    def __init__(self, runs: Sequence[RunRecord], bars: Progress) -> None:
        super().__init__()
        self.bars = bars
        self.all = bars.add_task("jobs", total=len(runs), word="")
        self.tasks: dict[str, TaskID] = {}
        self.read: dict[Path, ReadState] = {}
        self.width, self.described = 0, dict[str, str]()

    def changed(self, run: RunRecord, state: JobState) -> None:
        if state.is_over:
            super().changed(run, state)

    def line(self, text: str) -> None:
        self.bars.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def round(self, runs: Sequence[RunRecord], states: Mapping[str, JobState]) -> None:
        over = sum(state.is_over for state in states.values())
        self.bars.update(self.all, completed=over, word=f"{len(states) - over} to go")
        if self.width != self.bars.console.width or not all(run.id in self.described for run in runs):
            self.width = self.bars.console.width
            self.described = described(runs, self.width)
            # All of the width is taken only where names had to give way: else bars stand beside them.
            self.bars.expand = any(run.job.experiment_name not in self.described[run.id] for run in runs)
            for id_, task in self.tasks.items():
                self.bars.update(task, description=self.described[id_])
        for run in runs:
            if states[run.id].state == RUNNING:
                self.step(run)
            elif run.id in self.tasks:
                self.bars.remove_task(self.tasks.pop(run.id))

    def step(self, run: RunRecord) -> None:
        if run.id not in self.tasks:
            self.tasks[run.id] = self.bars.add_task(self.described[run.id], total=run.job.max_steps, word="starting")
        at, self.read[run.log] = progress(run.log, self.read.get(run.log))
        if at is not None:
            self.bars.update(self.tasks[run.id], completed=at[0] + 1, total=at[1] + 1, word="steps")


def _now() -> str:
    return time.strftime("%H:%M:%S")
