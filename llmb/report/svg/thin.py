# SPDX-License-Identifier: Apache-2.0
"""Fewer marks where there would be thousands: a picture stays small, and what stands out is still in it. Pure."""

import math
from collections.abc import Iterable, Sequence


def thinned(points: Sequence[tuple[int, float]], most: int) -> list[tuple[int, float]]:
    """At most about ``most`` points: of each stretch the lowest and the highest, so that no peak is lost."""
    if len(points) <= most:
        return list(points)
    size = math.ceil(2 * len(points) / most)
    kept = set()
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        kept |= {min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])}
    return sorted(kept)


def few(values: Iterable[float], most: int) -> list[float]:
    """At most ``most`` (2 or more) of the values in their order by size, the smallest and the largest among them."""
    ordered = sorted(values)
    if len(ordered) <= most:
        return ordered
    return [ordered[round(number * (len(ordered) - 1) / (most - 1))] for number in range(most)]
