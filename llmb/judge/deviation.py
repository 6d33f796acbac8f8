# SPDX-License-Identifier: Apache-2.0
"""Estimates how much runs of one configuration deviate from each other, as a fraction. Pure.

Few repeats say little about a deviation, but a session has many configurations, whose deviations
resemble each other. Each variance is therefore moderated towards the common one, as limma does for
thousands of genes (Smyth 2004, "Linear models and empirical Bayes methods", section 6): the more
the variances differ from what chance explains, the less each is moderated.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from llmb.measure.statistics import Z95, student_t

# A variance below this part of the median is counted as this part: logs round, so that two runs may
# be equal to the last digit.
_LEAST_PART = 1e-4
_TINY = 1e-12
# The spread of single steps weighs as much as this many degrees of freedom: it is no more than a
# good guess, since steps of one run resemble each other more than two runs do.
_STEPS_WEIGHT = 10.0


class Variance(NamedTuple):
    """The variance of the logarithm of a value, estimated with ``freedom`` degrees of freedom."""

    value: float
    freedom: float

    @property
    def deviation(self) -> float:
        """The standard deviation as a fraction of the value: 0.01 is 1 %."""
        return math.sqrt(self.value)


def variance_of(*sides: Sequence[float]) -> Variance | None:
    """The variance that the values (above 0) of each side have around the mean of that side.

    None if no side has two values.
    """
    squares, freedom = 0.0, 0
    for values in sides:
        logs = [math.log(value) for value in values]
        mean = math.fsum(logs) / len(logs) if logs else 0.0
        squares += math.fsum((log - mean) ** 2 for log in logs)
        freedom += max(len(logs) - 1, 0)
    return Variance(squares / freedom, freedom) if freedom else None


class Estimate(NamedTuple):
    """The variance of single runs of a configuration, and where it is known from."""

    variance: Variance
    source: str
    #: True if only the spread of single steps is known, no run beside another.
    is_guess: bool = False

    def __str__(self) -> str:
        """As in ``runs deviate by 0.9 %, known from 12 configurations``."""
        return f"runs deviate by {100 * self.variance.deviation:.2g} %, known from {self.source}"


class CommonVariance(NamedTuple):
    """The variance that configurations have in common, towards which each is moderated.

    ``freedom`` is the weight of the common variance in degrees of freedom, infinite if the
    variances differ no more than chance explains. ``total`` is the freedom of all estimates
    together, which no moderated variance can exceed.
    """

    value: float
    freedom: float
    total: float

    def moderate(self, variance: Variance | None) -> Variance:
        """Return the variance of one configuration, given its own estimate if it has one."""
        if variance is None:
            return Variance(self.value, min(self.freedom or self.total, self.total))
        if math.isinf(self.freedom):
            return Variance(self.value, max(self.total, variance.freedom))
        freedom = self.freedom + variance.freedom
        value = (self.freedom * self.value + variance.freedom * variance.value) / freedom
        return Variance(value, max(min(freedom, self.total), variance.freedom))


def common_variance(variances: Iterable[Variance]) -> CommonVariance | None:
    """Estimate the common variance of configurations; None if there is no variance at all."""
    measured = [variance for variance in variances if variance.freedom]
    if not measured:
        return None
    total = math.fsum(variance.freedom for variance in measured)
    pooled = math.fsum(variance.value * variance.freedom for variance in measured) / total
    if len(measured) == 1 or pooled < _TINY:
        return CommonVariance(pooled, 0.0 if len(measured) == 1 else math.inf, total)
    median = sorted(variance.value for variance in measured)[len(measured) // 2]
    least = max(_LEAST_PART * (median or pooled), _TINY)
    # The logarithm of an estimate is biased and scattered by its freedom alone; remove both.
    logs = [
        math.log(max(variance.value, least))
        - _digamma(variance.freedom / 2)
        + math.log(variance.freedom / 2)
        for variance in measured
    ]
    mean = math.fsum(logs) / len(logs)
    scatter = math.fsum((log - mean) ** 2 for log in logs) / (len(logs) - 1)
    excess = scatter - math.fsum(_trigamma(variance.freedom / 2) for variance in measured) / len(
        measured
    )
    if excess <= 0:
        return CommonVariance(pooled, math.inf, total)
    half = _inverse_trigamma(excess)
    return CommonVariance(math.exp(mean + _digamma(half) - math.log(half)), 2 * half, total)


class Deviations:
    """The deviations of one metric in a session, for each of its configurations.

    They are known from the repeats of several configurations of the session. As long as these are
    few, the spread of the steps counts too, unless repeats differ more than that.
    """

    def __init__(self, configurations: Iterable[Sequence[Sequence[float]]]) -> None:
        """``configurations`` has the sides of each, with the values (above 0) of their runs."""
        variances = [variance for sides in configurations if (variance := variance_of(*sides))]
        self._common = common_variance(variances) if len(variances) > 1 else None
        self._source = f"{len(variances)} configurations"

    def of(self, *sides: Sequence[float], steps: Iterable[float] = ()) -> Estimate | None:
        """Return the deviation of the runs of one configuration, or None if nothing says it.

        ``steps`` are the relative deviations of the single steps of its runs.
        """
        variance = variance_of(*sides)
        squares = [deviation**2 for deviation in steps if deviation > 0]
        common, source = self._common, self._source
        total = 0.0 if common is None else common.total
        if squares and total < _STEPS_WEIGHT:
            of_steps = math.fsum(squares) / len(squares)
            of_runs = 0.0 if common is None else common.value
            value = (total * of_runs + (_STEPS_WEIGHT - total) * of_steps) / _STEPS_WEIGHT
            source = " and ".join([*([source] if total else []), "the spread of the steps"])
            is_guess = variance is None and not total
            guess = CommonVariance(value, _STEPS_WEIGHT, math.inf)
            return Estimate(_believed(guess, variance), source, is_guess)
        if common is not None:
            return Estimate(common.moderate(variance), source)
        return None if variance is None else Estimate(variance, "its own repeats")


def _believed(guess: CommonVariance, own: Variance | None) -> Variance:
    """Return the variance by the spread of steps and by repeats.

    Calm steps do not prove that runs repeat: repeats that differ more are believed. The guess was
    wrong then, so that it adds the less freedom, the more they differ from it.
    """
    if own is None or own.value <= guess.value:
        return guess.moderate(own)
    return Variance(own.value, own.freedom + guess.freedom * (guess.value / own.value) ** 2)


def half_width(variance: Variance, *counts: int) -> float:
    """Half the 95 % interval of a log ratio of means of so many runs on each side.

    A side with an exact value, such as a published figure, has no count.
    """
    error = math.sqrt(variance.value * math.fsum(1 / count for count in counts))
    return quantile(variance.freedom) * error


def quantile(freedom: float) -> float:
    """Student's t, two-sided 95 %, for 1 or more degrees of freedom that need not be whole."""
    if math.isinf(freedom):
        return Z95
    low = max(math.floor(freedom), 1)
    if freedom <= low:
        return student_t(low)
    # 1/freedom is nearly linear in the quantile
    part = (1 / low - 1 / freedom) / (1 / low - 1 / (low + 1))
    return student_t(low) + part * (student_t(low + 1) - student_t(low))


def chance_below(limit: float, interval: tuple[float, float]) -> float:
    """Return the probability that chance alone takes a ratio of 1 below ``limit`` (0.98).

    ``interval`` is the 95 % interval of the ratio, which says how much the mean deviates.
    """
    error = math.log(interval[1] / interval[0]) / 2 / Z95
    if not error:
        return 0.0
    return 0.5 * math.erfc(-math.log(limit) / error / math.sqrt(2))


def _digamma(x: float) -> float:
    """The derivative of the logarithm of the gamma function (Abramowitz and Stegun 6.3.5, .18)."""
    result = 0.0
    while x < 8:
        result -= 1 / x
        x += 1
    square = 1 / x**2
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square / 240)))
    return result + math.log(x) - 0.5 / x - series


def _trigamma(x: float) -> float:
    """The derivative of the digamma function (Abramowitz and Stegun 6.4.6, 6.4.12)."""
    result = 0.0
    while x < 8:
        result += 1 / x**2
        x += 1
    square = 1 / x**2
    series = square * (1 / 6 - square * (1 / 30 - square * (1 / 42 - square / 30)))
    return result + (1 + 0.5 / x + series) / x


def _inverse_trigamma(value: float) -> float:
    """The x (above 0) whose trigamma is ``value``: bisection, since trigamma falls steadily."""
    low, high = 1e-8, 1e8
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _trigamma(middle) > value else (low, middle)
    return math.sqrt(low * high)
