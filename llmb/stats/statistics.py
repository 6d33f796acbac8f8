# SPDX-License-Identifier: Apache-2.0
"""How steady a run is, how far repeats spread, and the confidence interval of their mean."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from llmb.logs.samples import Samples, Step
from llmb.stats.measure import Window, steps_in
from llmb.stats.metrics import STEP_TIME

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
    ordered = sorted(step.step_time for step in steps)
    median, mean = quantile(ordered, 0.5), spread(ordered)
    outliers = _outliers(steps, median)
    calm = [step for step in steps if step.iteration not in outliers]
    return Statistics(
        count=len(steps),
        median=median,
        p95=quantile(ordered, 0.95),
        least=ordered[0],
        most=ordered[-1],
        interval=(mean.mean - half_width(mean), mean.mean + half_width(mean)),
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
    MOST_REPEATS more would not do.
    """
    for more in range(1, MOST_REPEATS + 1):
        widths = [relative_width(side, side.n + more) for side in sides if side.n > 1]
        if math.hypot(*widths) < distance:
            return more
    return None
