# SPDX-License-Identifier: Apache-2.0
"""Compares the speed of running jobs with their reference, and estimates their end."""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmb.builtin.own_types import own_types
from llmb.cli.context import CliContext
from llmb.cli.reading import spec_of
from llmb.contract.formats import NEMO2, ParseSpec
from llmb.contract.job import Job
from llmb.contract.metrics import USUAL_BOUNDS
from llmb.contract.record import RunRecord
from llmb.contract.state import RUNNING, JobState
from llmb.core import console
from llmb.core.values import dataclass
from llmb.errors import LlmbError
from llmb.measure.log_lines import PatternError
from llmb.measure.log_reader import LogProgress, progress
from llmb.measure.step_collector import ReadState

if TYPE_CHECKING:
    from llmb.judge.export import Baseline

_SETTLED = 20  # steps after which a ratio is news: the first ones are slower in every run


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReference:
    """The step time that a running job is compared with: published, or of a baseline."""

    seconds: float
    #: ``25.04.01``, a release, or ``baseline april``.
    name: str
    #: ``25.04.01`` or ``baseline``: baselines have names of any length.
    short: str
    #: Settings in which the job differs from the accepted runs.
    differences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestStep:
    """The newest step of a running job."""

    at: LogProgress
    #: None if nothing comparable is published or accepted.
    reference: StepReference | None = None

    @property
    def ratio(self) -> float | None:
        """The ratio of its speed to the reference, better above 1."""
        if self.reference is None or not self.at.step_time:
            return None
        return self.reference.seconds / self.at.step_time

    @property
    def seconds_left(self) -> float | None:
        """The time that its remaining steps take at the present speed."""
        step_time = self.at.step_time
        return None if step_time is None else (self.at.last - self.at.iteration) * step_time

    @property
    def is_too_slow(self) -> bool:
        """Return True if the run will probably FAIL."""
        is_settled = self.at.step_count + 1 >= _SETTLED and self.at.iteration < self.at.last
        return self.ratio is not None and self.ratio < USUAL_BOUNDS.fail_below and is_settled

    def in_words(self, *, short: bool = False) -> str:
        """Return ``2.933 s/step, 0.91 of 25.04``, or if ``short`` ``2.93 s 0.91``."""
        if self.at.step_time is None:
            return ""
        step_time = self.at.step_time
        time_text = f"{step_time:.2f} s" if short else f"{step_time:.3f} s/step"
        if self.reference is None or self.ratio is None:
            return time_text
        return (
            f"{time_text} {self.ratio:.2f}"
            if short
            else f"{time_text}, {self.ratio:.2f} of {self.reference.short}"
        )


class Paces:
    """Reads the logs of running jobs, only what is new in each, and finds their references."""

    def __init__(self, context: CliContext | None = None) -> None:
        self.context = context
        self._read: dict[Path, ReadState] = {}
        self._specs: dict[Path, ParseSpec | None] = {}  # None after a pattern failed
        self._references: dict[Hashable, StepReference | None] = {}
        self._baseline: Baseline | None = None

    def of(self, run: RunRecord) -> NewestStep | None:
        """Return the pace of ``run``, None before its first step."""
        spec = self._spec(run)
        if spec is None:
            return None
        try:
            at, self._read[run.log] = progress(run.log, self._read.get(run.log), spec)
        except PatternError as error:  # it may take seconds, and would again each time
            console.warn_once(error.message)
            self._specs[run.log] = None
            return None
        return None if at is None else NewestStep(at=at, reference=self.reference(run))

    def _spec(self, run: RunRecord) -> ParseSpec | None:
        """Return the format of the log, which is asked of the run's plugin once."""
        if run.log not in self._specs:
            self._specs[run.log] = NEMO2 if self.context is None else spec_of(self.context, run)
        return self._specs[run.log]

    def reference(self, run: RunRecord) -> StepReference | None:
        """Return the published step time for ``run``, else that of the newest baseline."""
        if self.context is None or run.job.training is None:
            return None
        key = run.job.settings.key
        if key not in self._references:
            self._references[key] = self._published(self.context, run.job) or self._accepted(
                self.context, run.job
            )
        return self._references[key]

    @staticmethod
    def _published(context: CliContext, job: Job) -> StepReference | None:
        from llmb.plan.find_reference import find_reference

        figure, _ = find_reference(job.settings, context.figures([job.workload]))
        if figure is None or figure.seconds_per_step is None:
            return None
        return StepReference(
            seconds=figure.seconds_per_step, name=figure.release, short=figure.release
        )

    def _accepted(self, context: CliContext, job: Job) -> StepReference | None:
        from llmb.judge import export
        from llmb.judge.compare import accepted_step_time

        install = context.config.llmb_install
        name = export.newest_baseline(install)
        if name is None:
            return None
        try:
            self._baseline = self._baseline or export.read_baseline(install, name)
        except LlmbError as error:  # compare names it too
            console.warn_once(error.message)
            return None
        accepted = accepted_step_time(job.settings, self._baseline.results)
        if accepted is None:
            return None
        seconds, differences = accepted
        return StepReference(
            seconds=seconds,
            name=self._baseline.called,
            short="baseline",
            differences=differences,
        )

    def estimate(self, job: Job) -> float:
        """Estimate how long ``job`` takes, in seconds."""
        from llmb.cli.estimates import estimates_of

        if self.context is None:
            return job.time_limit
        return estimates_of(self.context, [job])[0].seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedEnd:
    """The time at which jobs will probably end, in seconds since the epoch."""

    at: float
    #: They may end later: nobody knows when the scheduler starts those that wait.
    at_least: bool = False


def expected_end(
    runs: Sequence[RunRecord],
    states: Mapping[str, JobState],
    ends: Mapping[str, float],
    duration: Callable[[Job], float],
) -> ExpectedEnd | None:
    """Return when the last of ``runs`` will end, None if all have ended.

    ``ends``: of those that run, by their steps. ``duration``: the estimate of a job in seconds.
    """
    now = time.time()
    open_runs = [run for run in runs if not states[run.id].is_over]
    running = [run for run in open_runs if states[run.id].state == RUNNING]
    waiting = [run for run in open_runs if states[run.id].state != RUNNING]
    if not open_runs:
        return None
    last = max((_end_of(run, states[run.id], ends, duration, now) for run in running), default=now)
    queued = [duration(run.job) for run in waiting if is_queued_here(run)]
    other_seconds = [duration(run.job) for run in waiting if not is_queued_here(run)]
    return ExpectedEnd(
        at=max(last + sum(queued), now + max(other_seconds, default=0.0)),
        at_least=bool(other_seconds),
    )


def _end_of(
    run: RunRecord,
    state: JobState,
    ends: Mapping[str, float],
    duration: Callable[[Job], float],
    now: float,
) -> float:
    """Return the end by its steps, else by the estimate, which it may have exceeded."""
    return ends.get(run.id) or max(now, (state.started or now) + duration(run.job))


def is_queued_here(run: RunRecord) -> bool:
    """Return True if the run's cluster runs one job after another."""
    kind = own_types().get(run.cluster_type)
    return kind is not None and kind.traits_of(None).one_machine


def left_in_words(seconds: float) -> str:
    """Return ``40s left``, ``59m left`` or ``2.1h left``."""
    if seconds >= 5400:
        return f"{seconds / 3600:.1f}h left"
    return f"{seconds / 60:.0f}m left" if seconds >= 90 else f"{max(0.0, seconds):.0f}s left"
