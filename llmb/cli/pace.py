# SPDX-License-Identifier: Apache-2.0
"""How fast running jobs are, beside the published figure, and when they will probably end."""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmb.builtin.own_types import own_types
from llmb.cli.context import CliContext
from llmb.contract.job import Job
from llmb.contract.metrics import USUAL_BOUNDS
from llmb.contract.record import RunRecord
from llmb.contract.state import RUNNING, JobState
from llmb.measure.log_reader import LogProgress, progress
from llmb.measure.step_collector import ReadState

_SETTLED = 20  # steps after which a ratio is news: the first ones are slower in every run


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The newest step of a running job."""

    at: LogProgress
    #: Of its speed to the published one, better above 1. None without a comparable figure.
    ratio: float | None = None
    release: str = ""

    @property
    def seconds_left(self) -> float | None:
        """The time that its remaining steps take at the present speed."""
        step_time = self.at.step_time
        return None if step_time is None else (self.at.last - self.at.iteration) * step_time

    @property
    def is_too_slow(self) -> bool:
        """Return True if the run will probably FAIL."""
        is_settled = self.at.iteration + 1 >= _SETTLED and self.at.iteration < self.at.last
        return self.ratio is not None and self.ratio < USUAL_BOUNDS.fail_below and is_settled

    def in_words(self, *, short: bool = False) -> str:
        """Return ``2.933 s/step, 0.91 of 25.04``, or if ``short`` ``2.93 s 0.91``."""
        if self.at.step_time is None:
            return ""
        step_time = self.at.step_time
        time_text = f"{step_time:.2f} s" if short else f"{step_time:.3f} s/step"
        if self.ratio is None:
            return time_text
        return (
            f"{time_text} {self.ratio:.2f}"
            if short
            else (f"{time_text}, {self.ratio:.2f} of {self.release}")
        )


class Paces:
    """Reads the logs of running jobs, only what is new in each, and finds their references."""

    def __init__(self, context: CliContext | None = None) -> None:
        self.context = context
        self._read: dict[Path, ReadState] = {}
        self._published: dict[Hashable, tuple[float | None, str]] = {}

    def of(self, run: RunRecord) -> Pace | None:
        """Return the pace of ``run``, None before its first step."""
        at, self._read[run.log] = progress(run.log, self._read.get(run.log))
        if at is None:
            return None
        seconds, release = self.published(run)
        if seconds is None or not at.step_time:
            return Pace(at=at)
        return Pace(at=at, ratio=seconds / at.step_time, release=release)

    def published(self, run: RunRecord) -> tuple[float | None, str]:
        """Return the published step time in seconds for ``run``, and its release."""
        if self.context is None or run.job.training is None:
            return None, ""
        from llmb.plan.comparable import find_reference

        key = run.job.settings.key
        if key not in self._published:
            figure, _ = find_reference(run.job, self.context.figures([run.job.workload]))
            self._published[key] = (
                (None, "") if figure is None else (figure.seconds_per_step, figure.release)
            )
        return self._published[key]

    def estimate(self, job: Job) -> float:
        """Estimate how long ``job`` takes, in seconds."""
        from llmb.cli.estimates import estimates_of

        if self.context is None:
            return job.time_limit
        return estimates_of(self.context, [job])[0].seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """When jobs will probably end, in seconds since the epoch."""

    at: float
    #: They may end later: nobody knows when the scheduler starts those that wait.
    at_least: bool = False


def expected_end(
    runs: Sequence[RunRecord],
    states: Mapping[str, JobState],
    ends: Mapping[str, float],
    duration: Callable[[Job], float],
) -> End | None:
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
    others = [duration(run.job) for run in waiting if not is_queued_here(run)]
    return End(at=max(last + sum(queued), now + max(others, default=0.0)), at_least=bool(others))


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
