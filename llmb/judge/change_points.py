# SPDX-License-Identifier: Apache-2.0
"""Find when a series of measurements changed its level. Deterministic and pure.

A split of the series is a change if chance hardly explains how far the means of its parts are
apart. Both parts are searched in the same way. In the end each change is tested once more between
its neighbours, the weakest first. This is how Otava works, with Student's t in place of
permutations (Fleming et al. 2023, "Hunter: Using Change Point Detection to Hunt for Performance
Regressions"). It splits by the means of the parts (Scott and Knott 1974).
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from llmb.core.values import dataclass

_CHANCE = 0.01  # of a change in a series without any
_LEAST_PART = 2  # values: a single one may be an outlier
# Of single values, as a fraction: logs round, so that values may be equal to the last digit.
_LEAST_DEVIATION = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """A change of the level of a series."""

    #: The position of the first value after it, from 0.
    index: int
    #: The geometric mean since the change before it, or since the first value.
    before: float
    #: The geometric mean until the next change, or the last value.
    after: float
    #: The number of values of each mean.
    counts: tuple[int, int]

    @property
    def moved(self) -> float:
        """Return the level after it relative to the one before, less 1."""
        return self.after / self.before - 1


class _Split(NamedTuple):
    position: int
    #: Student's t of the difference of the means, without its sign.
    t: float
    #: That a series without a change has at least this t. Two clear splits may both have 0.
    chance: float


def change_points(values: Sequence[float], least: float = 0.01) -> list[ChangePoint]:
    """Return the changes by at least the fraction ``least`` of a series (values above 0), in order.

    The last value alone is no new level, it may be an outlier.
    """
    sums = _Sums([math.log(value) for value in values])
    indices = sorted(_search(sums, 0, len(values)))
    while indices:
        bounds = [0, *indices, len(values)]
        splits = [
            split if abs(sums.step(*part)) >= math.log1p(least) else split._replace(chance=1.0)
            for part in zip(bounds, bounds[1:], bounds[2:], strict=False)
            for split in [sums.split(*part)]
        ]
        weakest = max(splits, key=lambda split: (split.chance, -split.t))
        if weakest.chance <= _CHANCE:
            break
        indices.remove(weakest.position)
    if not indices:
        return []
    bounds = [0, *indices, len(values)]
    levels = [
        (math.exp(sums.mean(first, last)), last - first)
        for first, last in itertools.pairwise(bounds)
    ]
    return [
        ChangePoint(index=index, before=before, after=after, counts=(n_before, n_after))
        for index, ((before, n_before), (after, n_after)) in zip(
            indices, itertools.pairwise(levels), strict=True
        )
    ]


def _search(sums: "_Sums", first: int, last: int) -> Iterator[int]:
    """Yield the splits between ``first`` and ``last`` that chance hardly explains."""
    candidates = range(first + _LEAST_PART, last - _LEAST_PART + 1)
    if not candidates:
        return
    # The least chance is that of the greatest t, and unlike it, t is exact for a clear change.
    best = max((sums.split(first, index, last) for index in candidates), key=lambda split: split.t)
    # Each split is another chance to be wrong.
    if best.chance * len(candidates) <= _CHANCE:
        yield best.position
        yield from _search(sums, first, best.position)
        yield from _search(sums, best.position, last)


class _Sums:
    """Sums of a series, by which the mean and the variance of any part take constant time."""

    def __init__(self, values: Sequence[float]) -> None:
        self._values = [0.0, *itertools.accumulate(values)]
        self._squares = [0.0, *itertools.accumulate(value * value for value in values)]

    def mean(self, first: int, last: int) -> float:
        return (self._values[last] - self._values[first]) / (last - first)

    def step(self, first: int, index: int, last: int) -> float:
        """Return how much higher the mean after ``index`` is than the mean before it."""
        return self.mean(index, last) - self.mean(first, index)

    def _scatter(self, first: int, last: int) -> float:
        squares = self._squares[last] - self._squares[first]
        return max(squares - (last - first) * self.mean(first, last) ** 2, 0.0)

    def split(self, first: int, index: int, last: int) -> _Split:
        """Return how clearly the mean changes at ``index``."""
        freedom = last - first - 2
        scatter = self._scatter(first, index) + self._scatter(index, last)
        variance = max(scatter / freedom, _LEAST_DEVIATION**2)
        error = math.sqrt(variance * (1 / (index - first) + 1 / (last - index)))
        t = abs(self.step(first, index, last)) / error
        return _Split(position=index, t=t, chance=two_sided(t, freedom))


def two_sided(t: float, freedom: int) -> float:
    """Return the chance of at least ``t`` (0 or more) or at most -``t`` with Student's t.

    Abramowitz and Stegun 26.7.3 and 26.7.4, finite sums for a whole ``freedom`` of 1 or more. It is
    exact to 1e-12, so that any smaller chance may be 0.
    """
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = freedom % 2 == 1
    term, total = (cosine, 0.0) if is_odd else (1.0, 0.0)
    for number in range(2 if is_odd else 1, freedom, 2):
        total += term
        term *= cosine * cosine * number / (number + 1)
    inside = (angle + sine * total) * 2 / math.pi if is_odd else sine * total
    return max(1.0 - inside, 0.0)
