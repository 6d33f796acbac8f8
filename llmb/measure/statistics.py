# SPDX-License-Identifier: Apache-2.0
"""Statistics: steadiness of a run, spread of repeats, and confidence intervals of their mean."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from llmb.contract.metrics import STEP_TIME
from llmb.contract.samples import Samples, Step
from llmb.contract.window import Window, steps_in
from llmb.core.values import dataclass

# a fraction: the product of TFLOPS and step time is a constant of the configuration
TFLOPS_OFF = 0.025
# from the median, in standard deviations as the median absolute deviation estimates them
OUTLIER_DEVIATIONS = 3.5
OUTLIER_LEAST = 0.02  # of the median: logs round to 4 digits, so steady runs do not deviate at all
_MAD_TO_DEVIATION = 1.4826  # for a normal distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """The step times of a window (seconds), or the values of another headline metric."""

    count: int
    median: float
    p95: float
    least: float
    most: float
    #: Of the mean, 95 %, as if the steps were independent. None for a single one.
    interval: tuple[float, float] | None
    outliers: tuple[int, ...]  #: the iterations far from the median
    drift: float  #: growth of the others from first to last, as a fraction of the median
    #: The standard deviation of the steps that are no outliers, as a fraction of their mean. A line
    #: for several steps has their mean, which deviates less by the root of their number. None for a
    #: single line.
    deviation: float | None = None
    #: The framework's TFLOPS divided by TFLOPS by our formula, None if one is unknown.
    tflops_by_formula: float | None = None
    #: The same by the formula of the framework itself, as far as llmb knows that.
    tflops_by_framework: float | None = None


def summarize(
    samples: Samples,
    window: Window,
    headline: str = STEP_TIME,
    *,
    tflops: float | None = None,
    causal: float | None = None,
) -> Statistics | None:
    """Return the statistics of ``headline`` over ``window``, None if it has no step.

    ``tflops`` is the mean of one GPU by our formula. ``causal`` is the part of it that counts only
    the causal half of the attention, if the framework may do so.
    """
    steps = steps_in(samples, window)
    if headline != STEP_TIME:
        steps = [replace(step, step_time=step.values.get(headline, math.nan)) for step in steps]
    steps = [step for step in steps if math.isfinite(step.step_time)]
    if not steps:
        return None
    ordered = sorted(step.step_time for step in steps)
    median, mean = quantile(ordered, 0.5), spread(ordered)
    outliers = _outliers(steps, median)
    ratio = _tflops_by_formula(steps, tflops)
    calm = [step for step in steps if step.iteration not in outliers]
    return Statistics(
        count=len(steps),
        median=median,
        p95=quantile(ordered, 0.95),
        least=ordered[0],
        most=ordered[-1],
        interval=_interval(mean),
        outliers=tuple(sorted(number + samples.first for number in outliers)),
        drift=_drift(calm, median),
        deviation=_deviation(calm),
        tflops_by_formula=ratio,
        tflops_by_framework=_nearest(ratio, causal),
    )


def quantile(ordered: Sequence[float], part: float) -> float:
    """Return the interpolated quantile ``part`` (0 to 1) of one or more ``ordered`` values."""
    place = part * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _outliers(steps: Sequence[Step], median: float) -> set[int]:
    usual = usual_deviation([step.step_time - median for step in steps])
    limit = max(OUTLIER_DEVIATIONS * usual, OUTLIER_LEAST * abs(median))
    return {step.iteration for step in steps if abs(step.step_time - median) > limit}


def usual_deviation(differences: Sequence[float]) -> float:
    """Return the standard deviation by the median of the ``differences`` from a median."""
    return _MAD_TO_DEVIATION * quantile(sorted(map(abs, differences)), 0.5)


def _interval(mean: "Spread") -> tuple[float, float] | None:
    half = half_width(mean)
    return None if mean.n == 1 else (mean.mean - half, mean.mean + half)


def _deviation(steps: Sequence[Step]) -> float | None:
    if len(steps) < 2:
        return None
    times = spread([step.step_time for step in steps])
    steps_of_line = math.fsum(step.span for step in steps) / len(steps)
    return times.deviation / times.mean * math.sqrt(steps_of_line) if times.mean > 0 else None


def _drift(steps: Sequence[Step], median: float) -> float:
    """Return the drift by linear least squares."""
    if len(steps) < 3 or median <= 0:
        return 0.0
    middle = math.fsum(step.iteration for step in steps) / len(steps)
    mean = math.fsum(step.step_time for step in steps) / len(steps)
    square = math.fsum((step.iteration - middle) ** 2 for step in steps)
    slope = (
        math.fsum((step.iteration - middle) * (step.step_time - mean) for step in steps) / square
        if square
        else 0.0
    )
    return slope * (steps[-1].iteration - steps[0].iteration) / median


def _tflops_by_formula(steps: Sequence[Step], tflops: float | None) -> float | None:
    """Return the framework's TFLOPS divided by our formula's, None if one is unknown.

    TFLOPS × step time is constant for a configuration, so products are compared and not means.
    """
    logged = [
        step.tflops * step.step_time
        for step in steps
        if step.tflops is not None and math.isfinite(step.tflops)
    ]
    if not tflops or len(logged) != len(steps):
        return None
    mean_time = math.fsum(step.step_time for step in steps) / len(steps)
    return math.fsum(logged) / len(logged) / (tflops * mean_time)


def _nearest(ratio: float | None, causal: float | None) -> float | None:
    """Return the ratio to the ``causal`` part of the formula, or ``ratio`` if that is 1.

    Older releases of the same framework count all of the attention, and none prints what it counts.
    """
    if ratio is None or not causal:
        return ratio
    return ratio if abs(ratio - 1) <= TFLOPS_OFF else ratio / causal


# Student's t, two-sided 95 %, for 1 to 30 degrees of freedom.
_T95_TEXT = (
    "12.706 4.303 3.182 2.776 2.571 2.447 2.365 2.306 2.262 2.228 2.201 2.179 2.160 2.145 2.131 "
    "2.120 2.110 2.101 2.093 2.086 2.080 2.074 2.069 2.064 2.060 2.056 2.052 2.048 2.045 2.042"
)
_T95 = tuple(map(float, _T95_TEXT.split()))
Z95 = 1.959964


class Spread(NamedTuple):
    """The spread of ``n`` values."""

    mean: float
    deviation: float  #: the sample standard deviation, 0 for a single value
    n: int


def spread(values: Sequence[float]) -> Spread:
    """Return the spread of one or more values. Their order does not change even the last bit."""
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Spread(mean, 0.0, 1)
    return Spread(
        mean,
        math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)),
        len(values),
    )


def student_t(freedom: int) -> float:
    """Return Student's t, two-sided 95 %, for ``freedom`` (1 or more) degrees, within 0.001."""
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    first, second = Z95**3 + Z95, 5 * Z95**5 + 16 * Z95**3 + 3 * Z95
    return Z95 + first / (4 * freedom) + second / (96 * freedom**2)


def half_width(measured: Spread, count: int | None = None) -> float:
    """Return half the 95 % interval of the mean of ``count`` values (None: as many as measured).

    It is 0 for a single value, whose deviation is unknown.
    """
    count = measured.n if count is None else count
    return student_t(count - 1) * measured.deviation / math.sqrt(count) if count > 1 else 0.0
