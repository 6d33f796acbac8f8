# SPDX-License-Identifier: Apache-2.0
"""Repeats taken together: their one step time, and the ratio of two throughputs with its interval. Pure.

Every figure on several runs is made here. The step time is the arithmetic mean over the runs, as a run's own is over
its steps: each run does the same work, so that this is the time of all of them by their steps, and tokens by it the
throughput of all of them together (the harmonic mean of the single throughputs).
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from llmb.results.result import Result
from llmb.stats.interval import Spread, relative_width, spread

_Z95 = 1.959964
_MOST_WIDTH = 100.0


class Ratio(NamedTuple):
    """Throughput by throughput, and where it lies (95 %; None where no side has repeats)."""

    value: float
    interval: tuple[float, float] | None


def pooled(results: Iterable[Result]) -> Spread | None:
    """The step time in seconds of those that have one, together; None where none has."""
    times = [result.time_mean_seconds for result in results if result.time_mean_seconds is not None]
    return spread(times) if times else None


def published(step_time: float) -> Spread:
    """A published step time in seconds: one figure, of whose spread nothing is known."""
    return Spread(step_time, 0.0, 1)


def noise_of_pair(ours: Result, theirs: Result) -> float:
    """The factor by which the ratio of one run by one run may be off, by the spread of their own steps (95 %).

    By the deviation of single steps and not of their mean: steps of a run resemble each other more than two runs do.
    """
    widths = [
        _Z95 * (one.time_std_dev_seconds or 0.0) / one.time_mean_seconds
        for one in (ours, theirs)
        if one.time_mean_seconds
    ]
    return math.exp(min(round(math.hypot(*widths), 9), _MOST_WIDTH))


def throughput_ratio(ours: Spread, theirs: Spread) -> Ratio:
    """The throughput at the step times ``ours`` by that at ``theirs``.

    The interval is that of the quotient's logarithm (Student's t for each mean, both widths as the root of the sum of
    their squares): it never reaches 0, and with the sides exchanged it is exactly its own inverse.
    """
    value = round(theirs.mean / ours.mean, 9)  # so that a sum's last bit decides nothing
    if ours.n < 2 and theirs.n < 2:
        return Ratio(value, None)
    factor = math.exp(round(math.hypot(relative_width(ours), relative_width(theirs)), 9))
    return Ratio(value, (value / factor, value * factor))
