# SPDX-License-Identifier: Apache-2.0
"""The live view of runs on a terminal: steps, speed, clock and expected end of each."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
)
from rich.table import Column
from rich.text import Text

from llmb.cli.context import CliContext, completed
from llmb.cli.follower import Follower, counted, held_states
from llmb.cli.pace import ExpectedEnd, Paces, StepReference, expected_end, left_in_words
from llmb.contract.job import Job
from llmb.contract.record import RunRecord
from llmb.contract.state import RUNNING, JobState
from llmb.core import colours, console
from llmb.core.names import apart
from llmb.core.tables import shorten
from llmb.plan.estimate import Alike, alike

# Characters of a terminal from which on there are bars, and words beside the figures.
_WITH_BARS, _WITH_WORDS = 100, 120
_BAR = 16
_LEAST_NAME = 12  # characters: shorter names are omitted
# The widest texts of a pace without and with words, without and with a reference.
_WIDEST = (("12.34 s", "12.34 s 0.91"), ("12.345 s/step", "12.345 s/step, 0.91 of 25.04.01"))


class LiveView(Progress):
    """One row for all jobs, one for each running job, and a line on those that wait."""

    def __init__(self, terminal: Console) -> None:
        bars = [BarColumn(bar_width=_BAR)] if terminal.width >= _WITH_BARS else []
        self.waiting = ""  # before the view draws itself for the first time
        super().__init__(
            # In a narrow terminal the name is shortened, and never the figures.
            TextColumn(
                "{task.description}",
                markup=False,
                table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
            ),
            *bars,
            MofNCompleteColumn(),
            TextColumn("{task.fields[pace]}", markup=False),
            _ClockColumn(),
            _LeftColumn(),
            console=terminal,
            transient=True,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return what is drawn: the rows, and why jobs wait."""
        yield self.make_tasks_table(self.tasks)
        if self.waiting:
            yield Text(self.waiting)


class _ClockColumn(ProgressColumn):
    """Shows how long a job has been running by its own clock, also if llmb came later."""

    def render(self, task: Task) -> Text:
        seconds = int(max(0.0, time.time() - task.fields["since"]))
        minutes = seconds // 60
        return Text(f"{minutes // 60}:{minutes % 60:02d}:{seconds % 60:02d}")


class _LeftColumn(ProgressColumn):
    """Shows the time to the expected end."""

    def render(self, task: Task) -> Text:
        end: ExpectedEnd | None = task.fields["end"]
        if end is None:
            return Text("")
        remaining = left_in_words(end.at - time.time())
        return Text(remaining.replace(" left", "+ left") if end.at_least else remaining)


@contextmanager
def shown(context: CliContext, count: int) -> Iterator[Bars]:
    """Show ``count`` jobs on the terminal of standard error while the context lasts."""
    with LiveView(Console(stderr=True)) as view:
        yield Bars(count, view, Paces(context))


def labels(runs: Sequence[RunRecord], width: int, *, compared: bool = False) -> dict[str, str]:
    """The id and name before the bar of each run, in a terminal of ``width`` characters.

    Different names stay different if possible. Without enough space for a name, only the id
    remains. ``compared``: some run has a ratio beside its step time.
    """
    steps = 2 * len(str(max((run.job.max_steps for run in runs), default=0))) + len("/")
    pace = _WIDEST[width >= _WITH_WORDS][compared]
    figures = ["9" * steps, pace, "0:00:00", "2.1h+ left"]
    figures += ["━" * _BAR] if width >= _WITH_BARS else []
    taken = sum(len(text) + 1 for text in figures) + len(" ")  # a blank before each, and the id's
    names = [run.job.experiment_name for run in runs]
    space = width - taken - max((len(run.id) for run in runs), default=0)
    if space < _LEAST_NAME:
        return {run.id: run.id for run in runs}
    texts = apart(names, space) or [shorten(name, space) for name in names]
    return {run.id: f"{run.id} {name}" for run, name in zip(runs, texts, strict=True)}


class Bars(Follower):
    """Keeps the live view up to date with each round of polling."""

    def __init__(self, count: int, view: LiveView, paces: Paces) -> None:
        super().__init__()
        self.view, self.count, self.paces = view, count, paces
        self.all = view.add_task("jobs", total=count, pace="", since=time.time(), end=None)
        self.tasks: dict[str, TaskID] = {}
        self.ends: dict[str, float] = {}  # of running jobs, by their steps
        self.durations: dict[Alike, float] = {}
        self.width, self.labels = 0, dict[str, str]()
        self.is_explained = False

    def changed(self, run: RunRecord, state: JobState) -> None:
        if state.is_over:
            self.durations.pop(alike(run.job), None)  # its repeats may take as long
            super().changed(run, state)

    def waiting(self, states: Sequence[JobState]) -> None:
        """Show why runs wait as it is now. What to do about a reason is printed once."""
        held = held_states(states)
        self.view.waiting = f"waiting: {console.printable(counted(held))}" if held else ""
        new = [state for state in held if state.reason not in self.reasons]
        self.print_fixes(new)
        self.reasons |= {state.reason for state in new}

    def named(self, run: RunRecord) -> str:
        """Return the name, short enough for a line with time, id and state."""
        width = len(f"00:00:00 {run.id}  COMPLETED")
        return shorten(run.job.experiment_name, max(self.view.console.width - width, _LEAST_NAME))

    def line(self, text: str) -> None:
        text = console.wrap(completed(text), self.view.console.width, prose=True)
        self.view.console.print(Text.from_ansi(colours.paint(text)), soft_wrap=True)

    def round(self, runs: Sequence[RunRecord], states: Mapping[str, JobState]) -> None:
        self.name_runs(runs)
        for run in runs:
            if states[run.id].state == RUNNING:
                self.step(run, states[run.id])
            elif run.id in self.tasks:
                self.view.remove_task(self.tasks.pop(run.id))
                self.ends.pop(run.id, None)
        over = sum(state.is_over for state in states.values())
        end = expected_end(runs, states, self.ends, self.duration)
        if end is not None and len(runs) < self.count:  # others are not submitted yet
            end = ExpectedEnd(at=end.at, at_least=True)
        self.view.update(self.all, completed=over, pace=f"{self.count - over} to go", end=end)

    def name_runs(self, runs: Sequence[RunRecord]) -> None:
        """Choose the label of each run anew for a new width or a new run."""
        width = self.view.console.width
        if self.width == width and all(run.id in self.labels for run in runs):
            return
        self.width = width
        compared = any(self.paces.reference(run) is not None for run in runs)
        self.labels = labels(runs, width, compared=compared)
        # The rows use all of the width only where names are shortened.
        self.view.expand = any(run.job.experiment_name not in self.labels[run.id] for run in runs)
        for id_, task in self.tasks.items():
            self.view.update(task, description=self.labels[id_])

    def step(self, run: RunRecord, state: JobState) -> None:
        if run.id not in self.tasks:
            self.tasks[run.id] = self.view.add_task(
                self.labels[run.id],
                total=run.job.max_steps,
                pace="starting",
                since=state.started or time.time(),
                end=None,
            )
        if (pace := self.paces.of(run)) is None:
            return
        self.warn(run, pace)
        if pace.reference is not None:
            self.explain_ratio(pace.reference)
        if (seconds_left := pace.seconds_left) is not None:
            self.ends[run.id] = time.time() + seconds_left
        self.view.update(
            self.tasks[run.id],
            completed=pace.at.iteration + 1,
            total=pace.at.last + 1,
            pace=pace.in_words(short=self.width < _WITH_WORDS),
            end=None if seconds_left is None else ExpectedEnd(at=self.ends[run.id]),
        )

    def explain_ratio(self, reference: StepReference) -> None:
        """Print once what the number after a step time is, where its words do not fit."""
        if self.width < _WITH_WORDS and not self.is_explained:
            self.is_explained = True
            self.line(f"the number after a step time is the speed compared with {reference.name}'s")

    def duration(self, job: Job) -> float:
        """Return the estimate of a job in seconds: past runs, a published time, or its limit."""
        key = alike(job)
        if key not in self.durations:
            self.durations[key] = self.paces.estimate(job)
        return self.durations[key]
