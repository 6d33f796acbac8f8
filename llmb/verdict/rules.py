# SPDX-License-Identifier: Apache-2.0
"""The rules of a verdict: from the step times of repeats to a word and the sentence behind it. Pure.

Every figure of several runs is computed here. Their step time is the arithmetic mean over the runs, as that of a run is
over its steps: each run does the same work, so this is the total time divided by all steps, and tokens divided by it
are the throughput of all runs together (the harmonic mean of the single throughputs).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llmb.results.result import Result
from llmb.stats.measure import MOST_REPEATS, Spread, relative_width, repeats_to_settle, spread

_Z95 = 1.959964
_MOST_WIDTH = 100.0


class Ratio(NamedTuple):
    """A ratio of throughputs, and its 95 % interval (None where neither side has repeats)."""

    value: float
    interval: tuple[float, float] | None


def pooled(results: Iterable[Result]) -> Spread | None:
    """The step time in seconds of all results that have one; None where none has."""
    times = [result.metrics.step_time for result in results if result.metrics.step_time is not None]
    return spread(times) if times else None


def published(step_time: float) -> Spread:
    """A published step time in seconds: one figure, whose spread is unknown."""
    return Spread(step_time, 0.0, 1)


def noise_of_pair(ours: Result, theirs: Result) -> float:
    """The factor by which noise may change the ratio of two single runs, from the spread of their steps (95 %).

    Uses the deviation of single steps, not of their mean: steps of one run resemble each other more than two runs do.
    """
    widths = [
        _Z95 * (one.metrics.step_time_deviation or 0.0) / one.metrics.step_time
        for one in (ours, theirs)
        if one.metrics.step_time
    ]
    return math.exp(min(round(math.hypot(*widths), 9), _MOST_WIDTH))


def throughput_ratio(ours: Spread, theirs: Spread) -> Ratio:
    """The throughput at the step times ``ours`` relative to that at ``theirs``.

    The interval is that of the ratio's logarithm (Student's t for each mean, both widths combined as the root of their
    summed squares): it never reaches 0, and exchanging the sides gives exactly its inverse.
    """
    value = round(theirs.mean / ours.mean, 9)  # so that the last bit of a sum cannot change a verdict
    if ours.n < 2 and theirs.n < 2:
        return Ratio(value, None)
    factor = math.exp(round(math.hypot(relative_width(ours), relative_width(theirs)), 9))
    return Ratio(value, (value / factor, value * factor))


PASS, WARN, SUSPICIOUS, INCONCLUSIVE = "PASS", "WARN", "SUSPICIOUS", "INCONCLUSIVE"
FAIL, INVALID, NO_REFERENCE = "FAIL", "INVALID", "NO_REFERENCE"
BAD = frozenset({FAIL, INVALID})  # they end a command with exit code 3

FAIL_BELOW, WARN_BELOW, SUSPICIOUS_ABOVE = 0.95, 0.98, 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict on ``repeats`` runs, its reason, the ``ratio`` of throughputs and its 95 % interval (None for one run).

    ``step_time``: the mean of the repeats, in seconds.
    """

    verdict: str
    reason: str
    step_time: float
    ratio: float
    interval: tuple[float, float] | None
    repeats: int


def judge_times(times: Sequence[float], reference: Spread, noise: float | None = None) -> Judgement:
    """The verdict on the step times of one run or more, in seconds, relative to the ``reference``.

    ``noise``: the part of the ratio of two single runs that the spread of their steps explains, as a factor (1.05 for
    5 %); None otherwise.
    """
    found = spread(times)
    ratio, interval = throughput_ratio(found, reference)
    within = interval if noise is None else (ratio / noise, ratio * noise)
    verdict = _verdict(ratio, within)
    if noise is not None and within is not None and verdict != PASS and within[0] <= 1 <= within[1]:
        verdict = INCONCLUSIVE  # a difference that noise explains is no difference, for better or worse
    why = _why(verdict, found, reference)
    if noise is not None and within is not None and verdict == INCONCLUSIVE:
        why = f": the spread of both runs' own steps explains {within[0]:.3f} to {within[1]:.3f}; "
        why += "repeats on both sides would decide"
    measured = f"{ratio:.3f} (n=1)"
    if interval is not None:
        measured = f"{ratio:.3f} ({interval[0]:.3f} to {interval[1]:.3f}, n={found.n})"
    return Judgement(
        verdict=verdict, reason=measured + why, step_time=found.mean, ratio=ratio, interval=interval, repeats=found.n
    )


def _verdict(ratio: float, interval: tuple[float, float] | None) -> str:
    if interval is not None and interval[0] < FAIL_BELOW < interval[1]:
        return INCONCLUSIVE
    if ratio < FAIL_BELOW:
        return FAIL
    if ratio < WARN_BELOW:
        return WARN
    return SUSPICIOUS if ratio > SUSPICIOUS_ABOVE else PASS


def _settling(found: Spread, reference: Spread) -> str:
    if reference.n > 1:
        return "more repeats on both sides"
    more = repeats_to_settle(found, reference.mean / FAIL_BELOW)
    return f"more than {MOST_REPEATS} repeats" if more is None else f"{more} more repeat{'s' if more > 1 else ''}"


def _why(verdict: str, found: Spread, reference: Spread) -> str:
    if verdict == INCONCLUSIVE:
        return f" is on both sides of {FAIL_BELOW}; {_settling(found, reference)} would decide"
    return {
        FAIL: f" is below {FAIL_BELOW}",
        WARN: f" is below {WARN_BELOW}",
        SUSPICIOUS: f" is above {SUSPICIOUS_ABOVE}, which is implausible: check what differs",
    }.get(verdict, f" is {WARN_BELOW} or more")
