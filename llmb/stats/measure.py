# SPDX-License-Identifier: Apache-2.0
"""Measures a window of iterations: mean, deviation, throughput, steadiness; and intervals of the mean of repeats."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from llmb.errors import UsageError
from llmb.logs.samples import Samples, Step
from llmb.stats.metrics import (
    STEP_TIME,
    TFLOPS_PER_GPU,
    TOKENS_PER_SECOND_PER_GPU,
    TRAINING_BY_NAME,
    Measured,
    MetricSpec,
)

SECONDS_PER_DAY = 86400
_MOST = 1e9  # seconds, TFLOPS: so that no square and no ratio of two is beyond what a float can hold
_MOST_DECLARED = 1e150  # of any unit: its square and the ratio of two are within what a float can hold


class Window(NamedTuple):
    """The first and the last iteration of a window; negative ones are from the end as in a list.

    Iterations are numbered from 0, and from 1 where the log does so (Megatron).
    """

    first: int
    last: int

    def of(self, steps: int, first: int = 0) -> Window:
        """The same window without negative iterations, for ``steps`` steps numbered from ``first``."""
        return Window(*(number + steps + first if number < 0 else number for number in self))

    def __str__(self) -> str:
        return "last" if self == LAST else f"{self.first}-{self.last}"


LAST = Window(-1, -1)


def default_window(steps: int, first: int = 0, *, framework: str | None = None) -> Window:
    """Iterations 11-44 of 50 (releases 25.05 to 25.07), the same part of another number of ``steps`` (1 or more).

    With Megatron-Bridge (``framework`` bridge) 35-44 of 50, the window of NVIDIA's exemplar-performance. As in the
    releases, the numbers are the same whether iterations are numbered from 0 or from another ``first``.
    """
    parts = (0.7, 0.88) if framework == "bridge" else (0.22, 0.88)
    return Window(*(max(first, min(round(part * steps), steps - 1 + first)) for part in parts))


def parse_window(text: str) -> Window:
    """The window that ``--window`` names: ``11-44``, or ``last`` for the last step alone. Raises UsageError."""
    if text.strip().lower() == "last":
        return LAST
    match = re.fullmatch(r"\s*([0-9]{1,9})\s*-\s*([0-9]{1,9})\s*", text)
    if match is None or int(match[1]) > int(match[2]):
        raise UsageError(
            f"--window {text} is not a range of iterations",
            hint="--window 11-44 (first and last iteration), or --window last",
            code="window-invalid",
            key="--window",
            value=text,
        )
    return Window(int(match[1]), int(match[2]))


def steps_in(samples: Samples, window: Window) -> list[Step]:
    """The steps in ``window``; a line that is the mean of several steps only if all of them are in it."""
    first, last = window.first - samples.first, window.last - samples.first
    return [step for step in samples.steps if first <= step.iteration - step.span + 1 and step.iteration <= last]


def covered(samples: Samples, window: Window) -> Window:
    """The part of ``window`` that whole lines cover, where a line is printed for several steps, at an interval.

    The whole run where no line is within the window.
    """
    interval = max((step.span for step in samples.steps), default=1)
    if interval == 1:
        return window
    first, end = window.first - samples.first, window.last - samples.first + 1
    first, end = math.ceil(first / interval) * interval, end // interval * interval
    if first < end:
        return Window(first + samples.first, end - 1 + samples.first)
    steps = samples.steps
    return Window(steps[0].iteration - steps[0].span + 1 + samples.first, steps[-1].iteration + samples.first)


def measure(samples: Samples, window: Window, declared: Sequence[MetricSpec] = ()) -> dict[str, Measured]:
    """What ``window`` measured, by name: the metrics of training in the log, and those that the workload declared.

    Of training: step time, the framework's TFLOPS, tokens per second of one GPU; none unless each iteration has a step
    time (positive, not nan or inf), or all lines have only a rate of tokens. TFLOPS are omitted unless each iteration
    has a finite one, and so is each declared metric. Impossible values are of damaged logs.
    """
    steps = steps_in(samples, window)
    if window.last < window.first or sum(step.span for step in steps) != window.last - window.first + 1:
        return {}
    found = _training(steps)
    for spec in declared:
        values = [step.values.get(spec.name) for step in steps]
        found[spec.name] = _figures(spec, steps, values, -_MOST_DECLARED, _MOST_DECLARED)
    return {name: own for name, own in found.items() if own is not None}


def _training(steps: Sequence[Step]) -> dict[str, Measured | None]:
    """What every training log has; nothing unless there are times, or rates alone."""
    specs = TRAINING_BY_NAME
    time = _figures(specs[STEP_TIME], steps, [step.step_time for step in steps])
    rate = _figures(specs[TOKENS_PER_SECOND_PER_GPU], steps, [step.tokens_rate for step in steps])
    if time is None and (rate is None or not all(math.isnan(step.step_time) for step in steps)):
        return {}
    tflops = _figures(specs[TFLOPS_PER_GPU], steps, [step.tflops for step in steps], least=-_MOST)
    return {STEP_TIME: time, TOKENS_PER_SECOND_PER_GPU: rate, TFLOPS_PER_GPU: tflops}


def _figures(
    spec: MetricSpec,
    steps: Sequence[Step],
    values: Sequence[float | None],
    least: float = 1 / _MOST,
    most: float = _MOST,
) -> Measured | None:
    """Mean and population deviation of ``values``, weighted by the steps of their lines; None unless all are valid."""
    sound = [(value, step.span) for value, step in zip(values, steps, strict=True) if value is not None]
    if len(sound) != len(steps) or not all(least < value < most for value, _ in sound):
        return None
    # The module statistics does the same, but its import takes as long as a whole command.
    count = sum(span for _, span in sound)
    mean = math.fsum(value * span for value, span in sound) / count
    deviation = math.sqrt(math.fsum((value - mean) ** 2 * span for value, span in sound) / count)
    return spec.measured(mean, deviation, count)


def why_unmeasured(samples: Samples, window: Window, name: str) -> str:
    """Which iterations of ``window`` lack a valid value of the declared metric ``name``; empty where none is known."""
    values = [(step.iteration + samples.first, step.values.get(name)) for step in steps_in(samples, window)]
    bad = [(number, value) for number, value in values if value is None or not abs(value) < _MOST_DECLARED]
    if not bad:
        return ""
    number, value = bad[0]
    more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
    return f"{name} is {'missing' if value is None else f'{value:g}'} at iteration {number}{more}"


def tokens_per_second(seq_length: int, gbs: int, step_time: float) -> float:
    """Tokens per second of the whole job: a step trains on ``gbs`` samples of ``seq_length`` tokens."""
    return seq_length * gbs / step_time


def model_tflops_per_gpu(gbs: int, model_flops: float, step_time: float, gpus: int) -> float:
    """Model TFLOPS of one GPU; ``model_flops`` are the operations for one sample."""
    return gbs * model_flops / step_time / gpus / 1e12


def mfu(tflops_per_gpu: float, peak_tflops: float) -> float:
    """Model FLOPs utilization, a fraction: ``tflops_per_gpu`` of the dense peak of one GPU at this dtype."""
    return tflops_per_gpu / peak_tflops


def days_to_train(tokens: float, rate: float) -> float:
    """Days for ``tokens`` tokens at ``rate`` tokens per second."""
    return tokens / rate / SECONDS_PER_DAY


OUTLIER_DEVIATIONS = 3.5  # from the median, in standard deviations as the median absolute deviation estimates them
OUTLIER_LEAST = 0.02  # of the median: logs round to 4 digits, so steady runs do not deviate at all
_MAD_TO_DEVIATION = 1.4826  # for a normal distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """The step times of a window in seconds, or the values of another headline metric in its unit.

    ``interval``: of the mean, 95 %, as if the steps were independent of each other; ``outliers``: the iterations far
    from the median; ``drift``: how much the others grow from the first to the last, as a fraction of the median;
    ``tflops_by_formula``: the framework's TFLOPS divided by those of our formula, None where one is unknown.
    """

    count: int
    median: float
    p95: float
    least: float
    most: float
    interval: tuple[float, float]
    outliers: tuple[int, ...]
    drift: float
    tflops_by_formula: float | None = None


def summarize(
    samples: Samples, window: Window, headline: str = STEP_TIME, *, tflops: float | None = None
) -> Statistics | None:
    """The statistics of ``headline`` over ``window``, None where it has no step.

    ``tflops``: mean of one GPU by our formula.
    """
    steps = steps_in(samples, window)
    if headline != STEP_TIME:
        steps = [replace(step, step_time=step.values.get(headline, math.nan)) for step in steps]
    steps = [step for step in steps if math.isfinite(step.step_time)]
    if not steps:
        return None
    times = [step.step_time for step in steps]
    ordered = sorted(times)
    median = quantile(ordered, 0.5)
    outliers = _outliers(steps, median)
    calm = [step for step in steps if step.iteration not in outliers]
    return Statistics(
        count=len(steps),
        median=median,
        p95=quantile(ordered, 0.95),
        least=ordered[0],
        most=ordered[-1],
        interval=_interval(times),
        outliers=tuple(sorted(number + samples.first for number in outliers)),
        drift=_drift(calm, median),
        tflops_by_formula=_tflops_by_formula(steps, tflops),
    )


def quantile(ordered: Sequence[float], part: float) -> float:
    """The value below which the fraction ``part`` of the ``ordered`` values is (1 or more), interpolated."""
    place = part * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _interval(times: Sequence[float]) -> tuple[float, float]:
    found = spread(times)
    width = half_width(found)
    return found.mean - width, found.mean + width


def _outliers(steps: Sequence[Step], median: float) -> set[int]:
    deviations = sorted(abs(step.step_time - median) for step in steps)
    usual = _MAD_TO_DEVIATION * quantile(deviations, 0.5)
    limit = max(OUTLIER_DEVIATIONS * usual, OUTLIER_LEAST * abs(median))
    return {step.iteration for step in steps if abs(step.step_time - median) > limit}


def _drift(steps: Sequence[Step], median: float) -> float:
    """By linear least squares."""
    if len(steps) < 3 or median <= 0:
        return 0.0
    middle = math.fsum(step.iteration for step in steps) / len(steps)
    mean = math.fsum(step.step_time for step in steps) / len(steps)
    square = math.fsum((step.iteration - middle) ** 2 for step in steps)
    slope = math.fsum((step.iteration - middle) * (step.step_time - mean) for step in steps) / square if square else 0.0
    return slope * (steps[-1].iteration - steps[0].iteration) / median


def _tflops_by_formula(steps: Sequence[Step], tflops: float | None) -> float | None:
    """TFLOPS × step time is constant for a configuration, so products are compared and not means."""
    logged = [step.tflops * step.step_time for step in steps if step.tflops is not None and math.isfinite(step.tflops)]
    if not tflops or len(logged) != len(steps):
        return None
    mean_time = math.fsum(step.step_time for step in steps) / len(steps)
    return math.fsum(logged) / len(logged) / (tflops * mean_time)


# Student's t, two-sided 95 %, for 1 to 30 degrees of freedom.
_T95_TEXT = (
    "12.706 4.303 3.182 2.776 2.571 2.447 2.365 2.306 2.262 2.228 2.201 2.179 2.160 2.145 2.131 "
    "2.120 2.110 2.101 2.093 2.086 2.080 2.074 2.069 2.064 2.060 2.056 2.052 2.048 2.045 2.042"
)
_T95 = tuple(map(float, _T95_TEXT.split()))
Z95 = 1.959964
MOST_REPEATS = 100


class Spread(NamedTuple):
    """The mean of ``n`` values, and the sample standard deviation of one of them (0 for a single value)."""

    mean: float
    deviation: float
    n: int


def spread(values: Sequence[float]) -> Spread:
    """The spread of one value or more; their order does not change even the last bit."""
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Spread(mean, 0.0, 1)
    return Spread(mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)), len(values))


def student_t(freedom: int) -> float:
    """Student's t, two-sided 95 %, for ``freedom`` degrees of freedom (1 or more), within 0.001."""
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    first, second = Z95**3 + Z95, 5 * Z95**5 + 16 * Z95**3 + 3 * Z95
    return Z95 + first / (4 * freedom) + second / (96 * freedom**2)


def half_width(found: Spread, count: int | None = None) -> float:
    """Half the 95 % interval of the mean of ``count`` values (as many as found where None) with the deviation found.

    0 for a single value, whose deviation is unknown.
    """
    count = found.n if count is None else count
    return student_t(count - 1) * found.deviation / math.sqrt(count) if count > 1 else 0.0


def relative_width(found: Spread, count: int | None = None) -> float:
    """``half_width`` divided by the mean (more than 0): half the interval of the mean's logarithm."""
    return half_width(found, count) / found.mean


def repeats_to_settle(distance: float, *sides: Spread) -> int | None:
    """How many more repeats, of each of the ``sides``, would make the interval of a ratio narrower than ``distance``.

    An estimate: if the means stay and the repeats deviate as these do. ``distance``: from the logarithm of the ratio to
    that of a limit; the means are more than 0. A single value stays alone, as a published one. None where even
    MOST_REPEATS of the side with most would not do.
    """
    most = MOST_REPEATS - max(side.n for side in sides)
    for more in range(1, most + 1):
        widths = [relative_width(side, side.n + more) for side in sides if side.n > 1]
        if math.hypot(*widths) < distance:
            return more
    return None
