# SPDX-License-Identifier: Apache-2.0
"""Pools what repeats measured, and compares two sides: every ratio and its interval is computed here. Pure.

A ratio is about one metric, and better above 1 whichever way the metric is better. Repeats are pooled as the arithmetic
mean of what the metric measured in each run. So the step time of several runs is the total time divided by all steps,
as that of one run is; rates of training are those at this time.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from llmb.results.result import Result
from llmb.stats import metrics
from llmb.stats.metrics import LOWER, Better, Measured, MetricSpec
from llmb.stats.statistics import Z95, Spread, relative_width, spread

_MOST_WIDTH = 100.0
# What a run derives from its step time: a constant divided by it.
_BY_TIME = (metrics.TOKENS_PER_SECOND, metrics.TOKENS_PER_SECOND_PER_GPU, metrics.MODEL_TFLOPS_PER_GPU, metrics.MFU)


class Ratio(NamedTuple):
    """A ratio of two values, better above 1, and its 95 % interval (None where neither side has repeats)."""

    value: float
    interval: tuple[float, float] | None


def pooled(results: Iterable[Result], metric: str | None = None) -> Spread | None:
    """What all results that measured ``metric`` (None: the headline of each) measured; None where none did."""
    found = [(metric or one.metrics.headline, one) for one in results]
    known = [(name, one.metrics.measured[name].mean) for name, one in found if name in one.metrics.measured]
    return pool([value for _, value in known], known[0][0]) if known else None


def pool(values: Sequence[float], metric: str) -> Spread:
    """The values (1 or more) of ``metric`` in several runs, as one.

    Rates of training are those at the mean step time: their harmonic mean.
    """
    if metric not in _BY_TIME or not all(values):
        return spread(values)
    times = spread([1 / value for value in values])
    return Spread(1 / times.mean, times.deviation / times.mean**2, times.n)


def published(value: float) -> Spread:
    """A published value: one figure, whose spread is unknown."""
    return Spread(value, 0.0, 1)


def noise_of_pair(ours: Measured, theirs: Measured) -> float:
    """The factor by which noise may change the ratio of two single runs, from the spread of their steps (95 %).

    Uses the deviation of single steps, not of their mean: steps of one run resemble each other more than two runs do.
    """
    widths = [Z95 * one.std / one.mean for one in (ours, theirs) if one.mean]
    return math.exp(min(round(math.hypot(*widths), 9), _MOST_WIDTH))


def ratio_of(ours: Spread, theirs: Spread, better: Better) -> Ratio:
    """How ``ours`` compares with ``theirs``: above 1 is better.

    The interval is that of the ratio's logarithm (Student's t for each mean, both widths combined as the root of their
    summed squares): it never reaches 0, and exchanging the sides gives exactly its inverse.
    """
    ratio = theirs.mean / ours.mean if better == LOWER else ours.mean / theirs.mean
    value = round(ratio, 9)  # so that the last bit of a sum cannot change a verdict
    if ours.n < 2 and theirs.n < 2:
        return Ratio(value, None)
    factor = math.exp(round(math.hypot(relative_width(ours), relative_width(theirs)), 9))
    return Ratio(value, (value / factor, value * factor))


def metric_of(result: Result, name: str | None = None) -> MetricSpec:
    """The metric ``name`` (None: the headline) that a result measured."""
    name = name or result.metrics.headline
    own = result.metrics.measured[name]
    return MetricSpec(name=name, unit=own.unit, better=own.better)
