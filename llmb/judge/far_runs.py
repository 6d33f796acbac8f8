# SPDX-License-Identifier: Apache-2.0
"""Find runs that are far from their own repeats: one stalled run widens every interval. Pure."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from llmb.core.names import listed
from llmb.judge.reference import relative
from llmb.measure.result import Result
from llmb.measure.statistics import OUTLIER_DEVIATIONS, quantile, usual_deviation

_LEAST_REPEATS = 3  # of which two agree
_NAMED = 3  # in a reason
_FAR = 0.05  # as a fraction: what a verdict calls FAIL or SUSPICIOUS


class FarRun(NamedTuple):
    """A run and its headline relative to the median of its repeats, better above 1."""

    result: Result
    ratio: float
    repeats: int

    def __str__(self) -> str:
        """As in ``k2x00cde is 0.45 of the median of its 4 repeats``."""
        name = self.result.identity.name
        return f"{name} is {self.ratio:.3g} of the median of its {self.repeats} repeats"


def far_runs(pools: Iterable[Sequence[Result]]) -> list[FarRun]:
    """Return the runs of each pool of repeats that are far from its median, as ``far_in``."""
    return [far_run for pool in pools for far_run in far_in(pool)]


def far_in(pool: Sequence[Result]) -> list[FarRun]:
    """Return the runs of a pool of repeats whose headline is far from the median of three or more.

    Far is as for steps: by 3.5 deviations of the median, and here by 5 % at least.
    """
    measured = [
        (result, value)
        for result in pool
        if (value := result.metrics.value) is not None and value.mean > 0
    ]
    if len(measured) < _LEAST_REPEATS:
        return []
    median = quantile(sorted(value.mean for _, value in measured), 0.5)
    differences = [value.mean / median - 1 for _, value in measured]
    limit = max(OUTLIER_DEVIATIONS * usual_deviation(differences), _FAR)
    return [
        FarRun(result, relative(value.mean, median, value.better), len(measured))
        for (result, value), difference in zip(measured, differences, strict=True)
        if abs(difference) > limit
    ]


def in_words(pool: Sequence[Result]) -> str:
    """Return the far runs of a pool for a reason, the slowest first, empty if none is far."""
    far = [str(run) for run in sorted(far_in(pool), key=lambda run: (run.ratio, str(run)))]
    return f"{listed(far, _NAMED, '; ')}, which widens the interval" if far else ""
