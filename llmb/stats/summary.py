# SPDX-License-Identifier: Apache-2.0
"""What the steps of a window say beyond their mean: how steady they were, and how far the mean can be trusted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llmb.logs.samples import Samples, Step
from llmb.stats.interval import half_width, spread
from llmb.stats.measure import Window, steps_in

OUTLIER_DEVIATIONS = 3.5  # from the median, in standard deviations as the median absolute deviation estimates them
OUTLIER_LEAST = 0.02  # of the median: logs round to 4 digits, so that quiet runs deviate by nothing at all
_MAD_TO_DEVIATION = 1.4826  # for a normal distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """The step times of a window, in seconds.

    ``interval``: of the mean, 95 %, as if the steps were independent of each other; ``outliers``: the iterations far
    from the median; ``drift``: how much the others grow from the first to the last, as a fraction of the median;
    ``tflops_by_formula``: the framework's own TFLOPS by those of our formula, None where one is not known.
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


def summarize(samples: Samples, window: Window, *, tflops: float | None = None) -> Statistics | None:
    """The statistics over ``window``, None where it holds no step; ``tflops`` of a GPU by our formula, their mean."""
    steps = [step for step in steps_in(samples, window) if math.isfinite(step.step_time)]
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
    """The value below which ``part`` of the ``ordered`` values lie (1 or more), on the line between two of them."""
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
    limit = max(OUTLIER_DEVIATIONS * usual, OUTLIER_LEAST * median)
    return {step.iteration for step in steps if abs(step.step_time - median) > limit}


def _drift(steps: Sequence[Step], median: float) -> float:
    """By the straight line of least squares."""
    if len(steps) < 3 or median <= 0:
        return 0.0
    middle = math.fsum(step.iteration for step in steps) / len(steps)
    mean = math.fsum(step.step_time for step in steps) / len(steps)
    square = math.fsum((step.iteration - middle) ** 2 for step in steps)
    slope = math.fsum((step.iteration - middle) * (step.step_time - mean) for step in steps) / square if square else 0.0
    return slope * (steps[-1].iteration - steps[0].iteration) / median


def _tflops_by_formula(steps: Sequence[Step], tflops: float | None) -> float | None:
    """TFLOPS × step time is a constant of the configuration, so the products are compared and not the means."""
    told = [step.tflops * step.step_time for step in steps if step.tflops is not None and math.isfinite(step.tflops)]
    if not tflops or len(told) != len(steps):
        return None
    mean_time = math.fsum(step.step_time for step in steps) / len(steps)
    return math.fsum(told) / len(told) / (tflops * mean_time)
