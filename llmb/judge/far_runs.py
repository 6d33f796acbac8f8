# SPDX-License-Identifier: Apache-2.0
"""Find runs that are far from their own repeats: one stalled run widens every interval. Pure."""

import statistics
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from llmb.judge.judge import pool_key
from llmb.judge.reference import relative
from llmb.measure.result import Result
from llmb.measure.statistics import OUTLIER_DEVIATIONS, usual_deviation

_LEAST_REPEATS = 3  # of which two agree
_FAR = 0.05  # as a fraction: what a verdict calls FAIL or SUSPICIOUS


class FarRun(NamedTuple):
    """A run and its headline relative to the median of its repeats, better above 1."""

    result: Result
    ratio: float
    repeats: int

    def __str__(self) -> str:
        """As in ``k2x00cde is 0.45 of the median of its 4 repeats``."""
        run = self.result.identity.run or self.result.identity.path
        return f"{run} is {self.ratio:.3g} of the median of its {self.repeats} repeats"


def far_runs(results: Iterable[Result]) -> list[FarRun]:
    """Return the runs whose headline is far from the median of three repeats or more.

    Far is as for steps: by 3.5 deviations of the median, and here by 5 % at least.
    """
    pools: dict[Hashable, list[Result]] = {}
    for result in results:
        if (value := result.metrics.value) is not None and value.mean > 0:
            pools.setdefault(pool_key(result), []).append(result)
    return [
        far_run
        for pool in pools.values()
        if len(pool) >= _LEAST_REPEATS
        for far_run in _far_in(pool)
    ]


def _far_in(pool: list[Result]) -> list[FarRun]:
    values = [value for result in pool if (value := result.metrics.value) is not None]
    median = statistics.median(value.mean for value in values)
    differences = [value.mean / median - 1 for value in values]
    limit = max(OUTLIER_DEVIATIONS * usual_deviation(differences), _FAR)
    return [
        FarRun(result, relative(value.mean, median, value.better), len(pool))
        for result, value, difference in zip(pool, values, differences, strict=True)
        if abs(difference) > limit
    ]
