# SPDX-License-Identifier: Apache-2.0
"""Follows runs: progress bars on a terminal, else a line for each change."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llmb.builtin.own_types import own_types
from llmb.cli.context import CliContext, completed, say
from llmb.contract.record import RunRecord
from llmb.contract.state import (
    ELSEWHERE_CODE,
    NEXT_CODE,
    PENDING,
    RUNNING,
    UNKNOWN,
    WAITING,
    JobState,
)
from llmb.core import console
from llmb.core.names import apart
from llmb.core.tables import shorten
from llmb.errors import INTERRUPTED, LlmbError
from llmb.measure.log_reader import progress
from llmb.measure.step_collector import ReadState
from llmb.run.follow import Watcher, wait
from llmb.run.submit import SubmitResult

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from llmb.run.backlog import Backlog

_NAMED = 4  # runs that fit in a line
_WIDE = 100  # characters of a terminal from which on bars are wider and have a word after them
_BAR, _WIDE_BAR = 10, 20
_LEAST_NAME = 12  # characters: shorter names are omitted
_QUIET = 60.0  # seconds after which a run without news has a line for its steps


def follow(
    context: CliContext,
    runs: Sequence[RunRecord],
    retries: int = 0,
    backlog: Backlog[Any] | None = None,
) -> tuple[list[RunRecord], dict[str, JobState]]:
    """Show the steps of ``runs`` until all have ended and return runs and states.

    With retries, the returned runs are the last attempts. The jobs of ``backlog`` are submitted as
    others end. Ctrl-C stops watching and keeps the jobs running.
    """
    cluster = context.need_cluster()
    count = len(runs) + (backlog.count if backlog is not None else 0)
    try:
        with _display(count) as show:
            watcher = Watcher(
                on_round=show,
                on_retry=show.retried,
                on_trouble=show.trouble,
                on_submit=show.submitted,
            )
            return wait(cluster, runs, watcher, retries=retries, source=backlog)
    except KeyboardInterrupt:
        names = "".join(f" {run.id}" for run in runs) if len(runs) <= _NAMED else ""
        cancel = f"llmb-run jobs cancel{names or ' --all'}"
        say("Stopped watching. The jobs keep running.")
        if backlog is not None and backlog.count:
            jobs = "1 job is" if backlog.count == 1 else f"{backlog.count} jobs are"
            say(f"{jobs} not submitted. Submit the rest: {backlog.command}")
        say(f"Watch again: llmb-run jobs wait{names}")
        say(f"Cancel: {cancel}")
        raise click.exceptions.Exit(INTERRUPTED) from None


@contextmanager
def _display(count: int) -> Iterator[_Follower]:
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console

    with _progress(Console(stderr=True)) as bars:
        yield _Bars(count, bars)


def _progress(terminal: Console) -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    wide = terminal.width >= _WIDE
    columns = [
        # In a narrow terminal the name is shortened, and never the figures.
        TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
        ),
        BarColumn(bar_width=_WIDE_BAR if wide else _BAR),
        MofNCompleteColumn(),
        *([TextColumn("{task.fields[word]}")] if wide else []),
        TimeElapsedColumn(),
    ]
    return Progress(*columns, console=terminal, transient=True)


def labels(runs: Sequence[RunRecord], width: int) -> dict[str, str]:
    """The id and name before the bar of each run, in a terminal of ``width`` characters.

    Different names stay different if possible. Without enough space for a name, only the id
    remains.
    """
    count = 2 * len(str(max((run.job.max_steps for run in runs), default=0))) + len("/")
    figures = _WIDE_BAR + len(" starting") if width >= _WIDE else _BAR
    # the blanks are between columns, and after the id
    figures += count + len("0:00:00") + len("    ")
    names = [run.job.experiment_name for run in runs]
    space = width - figures - max((len(run.id) for run in runs), default=0)
    if space < _LEAST_NAME:
        return {run.id: run.id for run in runs}
    shown = apart(names, space) or [shorten(name, space) for name in names]
    return {run.id: f"{run.id} {name}" for run, name in zip(runs, shown, strict=True)}


def _behind_others(states: Sequence[JobState]) -> Sequence[JobState]:
    """The first of this machine's runs, if none has started and other jobs are before them.

    That runs of one list wait for each other is not worth a line.
    """
    return (
        states[:1]
        if all(
            state.state == PENDING and state.reason and state.code != NEXT_CODE for state in states
        )
        else []
    )


def _waits_for_others(run: RunRecord) -> bool:
    """Return True if the run's cluster runs one job after another."""
    kind = own_types().get(run.cluster_type)
    return kind is not None and kind.traits_of(None).one_machine


class _Follower:
    """Receives each round of polling, and prints each end once."""

    def __init__(self) -> None:
        self.printed: dict[str, str] = {}
        self.reasons: set[str] = set()

    def __call__(self, runs: Sequence[RunRecord], states: Mapping[str, JobState]) -> None:
        for run in runs:
            state = states[run.id]
            if self.printed.get(run.id, PENDING) != state.state:
                self.changed(run, state)
            self.printed[run.id] = state.state
        queued_here = [states[run.id] for run in runs if _waits_for_others(run)]
        self.waiting(
            [
                *(states[run.id] for run in runs if not _waits_for_others(run)),
                *_behind_others(queued_here),
            ]
        )
        self.round(runs, states)

    def changed(self, run: RunRecord, state: JobState) -> None:
        with_reason = state.reason and (state.is_over or state.state == UNKNOWN)
        reason = f": {state.reason}" if with_reason else ""
        self.line(f"{_now()} {run.id} {run.job.experiment_name} {state.state}{reason}")

    def retried(self, outcome: SubmitResult, end: JobState) -> None:
        run, error = outcome.run, outcome.error
        self.printed.pop(run.id, None)
        event = f"retried after {end.state}: attempt {run.attempt}"
        refusal = "" if error is None else f", which was refused: {error.message}"
        self.line(f"{_now()} {run.id} {run.job.experiment_name} {event}{refusal}")

    def submitted(self, result: SubmitResult) -> None:
        run, error = result.run, result.error
        if result.is_turned_away:
            return
        event = "submitted" if error is None else f"was not submitted: {error.message}"
        self.line(f"{_now()} {run.id} {run.job.experiment_name} {event}")

    def trouble(self, error: LlmbError) -> None:
        is_elsewhere = error.code == ELSEWHERE_CODE
        problem = (
            f"{error.value} is elsewhere"
            if is_elsewhere
            else "the cluster does not answer, retrying"
        )
        self.line(f"{_now()} {problem}: {error.message}")

    def waiting(self, states: Sequence[JobState]) -> None:
        """Print why runs wait: one line for all of them, when a reason is new."""
        held = [
            state
            for state in states
            if state.reason and not state.is_over and state.state not in (RUNNING, UNKNOWN)
        ]
        counts = Counter(f"{state.state}, {state.reason}" for state in held)
        if self.reasons.issuperset(counts):
            return
        reasons = "; ".join(
            f"{number} {reason_text}" for reason_text, number in counts.most_common()
        )
        self.line(f"{_now()} waiting: {reasons}")
        fixes = {
            state.reason: state.fix
            for state in held
            if state.fix and f"{state.state}, {state.reason}" not in self.reasons
        }
        for reason, fix in fixes.items():
            self.line(f"note: {reason}: {fix}")
        self.reasons |= set(counts)

    def line(self, text: str) -> None:
        say(text)

    def round(self, runs: Sequence[RunRecord], states: Mapping[str, JobState]) -> None:
        """Show progress between changes."""


class _Lines(_Follower):
    """Prints a line for each change, and in a long run a line for each tenth of its steps.

    A short run needs no progress: no run has more than one line of steps a minute.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.clock = clock
        self.last_news: dict[str, float] = {}
        self.tenths: dict[Path, int] = {}
        self.read: dict[Path, ReadState] = {}

    def changed(self, run: RunRecord, state: JobState) -> None:
        super().changed(run, state)
        self.last_news[run.id] = self.clock()
        if state.state in WAITING:  # requeued: it starts again
            self.tenths.pop(run.log, None)

    def round(self, runs: Sequence[RunRecord], states: Mapping[str, JobState]) -> None:
        for run in runs:
            is_quiet = self.clock() - self.last_news.get(run.id, 0.0) >= _QUIET
            if is_quiet and states[run.id].state == RUNNING:
                self.step(run)

    def step(self, run: RunRecord) -> None:
        at, self.read[run.log] = progress(run.log, self.read.get(run.log))
        if at is not None and (tenth := 10 * (at[0] + 1) // (at[1] + 1)) > self.tenths.get(
            run.log, 0
        ):
            self.tenths[run.log] = tenth
            self.last_news[run.id] = self.clock()
            self.line(
                f"{_now()} {run.id} {run.job.experiment_name} step {at[0] + 1} of {at[1] + 1}"
            )


class _Bars(_Follower):
    """Shows one bar for all jobs, and one for each running job."""

    def __init__(self, count: int, bars: Progress) -> None:
        super().__init__()
        self.bars, self.count = bars, count
        self.all = bars.add_task("jobs", total=count, word="")
        self.tasks: dict[str, TaskID] = {}
        self.read: dict[Path, ReadState] = {}
        self.width, self.labels = 0, dict[str, str]()

    def changed(self, run: RunRecord, state: JobState) -> None:
        if state.is_over:
            super().changed(run, state)

    def line(self, text: str) -> None:
        text = console.wrap(completed(text), self.bars.console.width, prose=True)
        self.bars.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def round(self, runs: Sequence[RunRecord], states: Mapping[str, JobState]) -> None:
        over = sum(state.is_over for state in states.values())
        self.bars.update(self.all, completed=over, word=f"{self.count - over} to go")
        if self.width != self.bars.console.width or not all(run.id in self.labels for run in runs):
            self.width = self.bars.console.width
            self.labels = labels(runs, self.width)
            # The bars use all of the width only where names are shortened.
            self.bars.expand = any(
                run.job.experiment_name not in self.labels[run.id] for run in runs
            )
            for id_, task in self.tasks.items():
                self.bars.update(task, description=self.labels[id_])
        for run in runs:
            if states[run.id].state == RUNNING:
                self.step(run)
            elif run.id in self.tasks:
                self.bars.remove_task(self.tasks.pop(run.id))

    def step(self, run: RunRecord) -> None:
        if run.id not in self.tasks:
            self.tasks[run.id] = self.bars.add_task(
                self.labels[run.id], total=run.job.max_steps, word="starting"
            )
        at, self.read[run.log] = progress(run.log, self.read.get(run.log))
        if at is not None:
            self.bars.update(self.tasks[run.id], completed=at[0] + 1, total=at[1] + 1, word="steps")


def _now() -> str:
    return time.strftime("%H:%M:%S")
