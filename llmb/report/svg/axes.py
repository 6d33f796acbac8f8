# SPDX-License-Identifier: Apache-2.0
"""Axes: from values to places in a picture, and the round numbers to write beside them. Pure."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Values from ``low`` to ``high`` (larger) at places from ``start`` to ``end``; ``log``: by their logarithms."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """The place of a value; of one that lies outside, the nearer end."""
        inside = min(max(value, self.low), self.high)
        low, high, own = (math.log(v) if self.log else v for v in (self.low, self.high, inside))
        return self.start + (own - low) / (high - low) * (self.end - self.start)

    def holds(self, value: float) -> bool:
        """Whether the value lies on the axis."""
        return self.low <= value <= self.high

    def ticks(self, most: int) -> list[float]:
        """Round values on the axis, ``most`` or a few less."""
        step = round_step((self.high - self.low) / max(most, 1))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def round_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10 ... and their tenths that is ``least`` (more than 0) or more."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def in_digits(values: Sequence[float]) -> list[str]:
    """The values of a tick list with as many decimals as their distance needs."""
    if len(values) < 2:
        return [f"{value:,.6g}" for value in values]
    decimals = max(0, -math.floor(math.log10(values[1] - values[0]) + 1e-9))
    return [f"{value:,.{decimals}f}" for value in values]


def around(values: Iterable[float], least: float) -> tuple[float, float]:
    """A lower and an upper end that hold ``values`` (one or more, positive), with room on both sides.

    They lie at least the part ``least`` of the middle away from it, so that noise does not look like a mountain.
    """
    known = list(values)
    low, high = min(known), max(known)
    middle = (low + high) / 2
    reach = max((high - low) / 2 * 1.15, least * middle)
    return max(0.0, middle - reach), middle + reach


def spaced(places: Iterable[tuple[float, str]], room: float) -> list[tuple[float, str]]:
    """Those of the labels at their places that keep ``room`` between them; those that come first count more."""
    kept: list[tuple[float, str]] = []
    for place, words in places:
        if all(abs(place - other) >= room for other, _ in kept):
            kept.append((place, words))
    return kept
