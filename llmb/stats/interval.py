# SPDX-License-Identifier: Apache-2.0
"""The confidence interval of the mean of a few repeats, and how many repeats would make it narrow enough."""

import math
from collections.abc import Sequence
from typing import NamedTuple

# Student's t, two-sided 95 %, for 1 to 30 degrees of freedom.
_T95 = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
    2.120,
    2.110,
    2.101,
    2.093,
    2.086,
    2.080,
    2.074,
    2.069,
    2.064,
    2.060,
    2.056,
    2.052,
    2.048,
    2.045,
    2.042,
)
_Z95 = 1.959964
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
    first, second = _Z95**3 + _Z95, 5 * _Z95**5 + 16 * _Z95**3 + 3 * _Z95
    return _Z95 + first / (4 * freedom) + second / (96 * freedom**2)


def half_width(found: Spread, count: int | None = None) -> float:
    """Half the 95 % interval of the mean of ``count`` values (as many as found where None) with the deviation found.

    0 for a single value, whose deviation is unknown.
    """
    count = found.n if count is None else count
    return student_t(count - 1) * found.deviation / math.sqrt(count) if count > 1 else 0.0


def relative_width(found: Spread, count: int | None = None) -> float:
    """``half_width`` divided by the mean (more than 0): half the interval of the mean's logarithm."""
    return half_width(found, count) / found.mean


def repeats_to_settle(found: Spread, limit: float) -> int | None:
    """How many more repeats would put the whole interval on one side of ``limit``, if they deviate as these do.

    Uses logarithms, as for ratios; mean and ``limit`` are more than 0. None where even MOST_REPEATS in all would not.
    """
    distance = abs(math.log(found.mean / limit))
    counts = range(found.n + 1, MOST_REPEATS + 1)
    return next((count - found.n for count in counts if relative_width(found, count) < distance), None)
