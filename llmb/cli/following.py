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
from llmb.errors import LlmbError
from llmb.follow import Watcher, wait
from llmb.handover import Handed
from llmb.logs.collect import ReadState
from llmb.logs.reader import progress
from llmb.runs.record import RunRecord
from llmb.state import PENDING, RUNNING, UNKNOWN, WAITING, JobState

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

RUN_FAILED = 3
INTERRUPTED = 130
_NAMED = 4  # runs that a line has room for


def follow_to_results(
    context: Context, runs: Sequence[RunRecord], fmt: str, *, before: Sequence[RunRecord] = (), retries: int = 0
) -> int:
    """Wait for ``runs`` and print the results of those ``before`` and of these; exit code 3 when one failed."""
    from llmb.cli.reporting import print_results

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
        say(f"stopped waiting; the jobs go on.  again: {again}    end them: {end}")
        raise click.exceptions.Exit(INTERRUPTED) from None  # all is said


@contextmanager
def _display(runs: Sequence[RunRecord]) -> Iterator[_Shower]:
    if not sys.stderr.isatty():
        yield _Lines()
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

    def __init__(self) -> None:
        self.told: dict[str, str] = {}
        self.reasons: set[str] = set()

    def __call__(self, runs: Sequence[RunRecord], states: Mapping[str, JobState]) -> None:
        for run in runs:
            state = states[run.id]
            if self.told.get(run.id, PENDING) != state.state:
                self.changed(run, state)
            self.told[run.id] = state.state
        # On this machine one job waits for the other, in the order of the list.
        self.waiting([states[run.id] for run in runs if run.cluster_type != "local"])
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
        cures = {one.reason: one.cure for one in idle if one.cure and f"{one.state}, {one.reason}" not in self.reasons}
        for reason, cure in cures.items():
            self.line(f"note: {reason}: {cure}")
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

    def changed(self, run: RunRecord, state: JobState) -> None:
        if state.is_over:
            super().changed(run, state)

    def line(self, text: str) -> None:
        self.bars.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def round(self, runs: Sequence[RunRecord], states: Mapping[str, JobState]) -> None:
        over = sum(state.is_over for state in states.values())
        self.bars.update(self.all, completed=over, word=f"{len(states) - over} to go")
        for run in runs:
            if states[run.id].state == RUNNING:
                self.step(run)
            elif run.id in self.tasks:
                self.bars.remove_task(self.tasks.pop(run.id))

    def step(self, run: RunRecord) -> None:
        if run.id not in self.tasks:
            self.tasks[run.id] = self.bars.add_task(run.job.experiment_name, total=run.job.max_steps, word="starting")
        at, self.read[run.log] = progress(run.log, self.read.get(run.log))
        if at is not None:
            self.bars.update(self.tasks[run.id], completed=at[0] + 1, total=at[1] + 1, word="steps")


def _now() -> str:
    return time.strftime("%H:%M:%S")
