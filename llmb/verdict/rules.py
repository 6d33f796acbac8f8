# SPDX-License-Identifier: Apache-2.0
"""The rules of a verdict: from the step times of repeats to a word and the sentence behind it. Pure.

Every figure on several runs is made here. The step time is the arithmetic mean over the runs, as a run's own is over
its steps: each run does the same work, so that this is the time of all of them by their steps, and tokens by it the
throughput of all of them together (the harmonic mean of the single throughputs).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llmb.results.result import Result
from llmb.stats.interval import MOST_REPEATS, Spread, relative_width, repeats_to_settle, spread

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


PASS, WARN, SUSPICIOUS, INCONCLUSIVE = "PASS", "WARN", "SUSPICIOUS", "INCONCLUSIVE"
FAIL, INVALID, NO_REFERENCE = "FAIL", "INVALID", "NO_REFERENCE"
BAD = frozenset({FAIL, INVALID})  # they end a command with exit code 3

FAIL_BELOW, WARN_BELOW, SUSPICIOUS_ABOVE = 0.95, 0.98, 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict on ``repeats`` runs: their ``ratio`` of throughputs, its 95 % interval (None for one run), and why.

    ``step_time``: of the repeats together, in seconds.
    """

    verdict: str
    reason: str
    step_time: float
    ratio: float
    interval: tuple[float, float] | None
    repeats: int


def judge_times(times: Sequence[float], reference: Spread, noise: float | None = None) -> Judgement:
    """The verdict on the step times of one run or more, in seconds, by those of the ``reference``.

    ``noise``: of one run by one run, the part of the ratio that the spread of their own steps explains, as a factor
    (1.05 for 5 %); None where the other side is not a run.
    """
    found = spread(times)
    ratio, interval = throughput_ratio(found, reference)
    if noise is not None:
        within = (ratio / noise, ratio * noise)
        verdict = _word_of_pair(ratio, within)
        reason = _shown(ratio, None, found.n) + (
            _why_pair(within) if verdict == INCONCLUSIVE else _why(verdict, found, reference)
        )
    else:
        verdict = _word(ratio, interval)
        reason = f"{_shown(ratio, interval, found.n)}{_why(verdict, found, reference)}"
    return Judgement(
        verdict=verdict, reason=reason, step_time=found.mean, ratio=ratio, interval=interval, repeats=found.n
    )


def _word(ratio: float, interval: tuple[float, float] | None) -> str:
    if interval is not None and interval[0] < FAIL_BELOW < interval[1]:
        return INCONCLUSIVE
    if ratio < FAIL_BELOW:
        return FAIL
    if ratio < WARN_BELOW:
        return WARN
    return SUSPICIOUS if ratio > SUSPICIOUS_ABOVE else PASS


def _word_of_pair(ratio: float, within: tuple[float, float]) -> str:
    """The word on one run by one run, whose ratio is ``within`` these by the noise of both.

    What is not larger than the noise is no difference, neither to the worse nor to the better.
    """
    word = _word(ratio, within)
    return INCONCLUSIVE if word != PASS and within[0] <= 1 <= within[1] else word


def _why_pair(within: tuple[float, float]) -> str:
    return (
        f": the spread of both runs' own steps explains {within[0]:.3f} to {within[1]:.3f}; "
        "repeats on both sides would settle it"
    )


def _settling(found: Spread, reference: Spread) -> str:
    if reference.n > 1:
        return "more repeats on both sides"
    more = repeats_to_settle(found, reference.mean / FAIL_BELOW)
    return f"more than {MOST_REPEATS} repeats" if more is None else f"{more} more repeat{'s' if more > 1 else ''}"


def _shown(ratio: float, interval: tuple[float, float] | None, count: int) -> str:
    if interval is None:
        return f"{ratio:.3f} (n=1)"
    return f"{ratio:.3f} ({interval[0]:.3f} to {interval[1]:.3f}, n={count})"


def _why(verdict: str, found: Spread, reference: Spread) -> str:
    if verdict == INCONCLUSIVE:
        return f" is on both sides of {FAIL_BELOW}; {_settling(found, reference)} would settle it"
    return {
        FAIL: f" is below {FAIL_BELOW}",
        WARN: f" is below {WARN_BELOW}",
        SUSPICIOUS: f" is above {SUSPICIOUS_ABOVE}: better than can be expected",
    }.get(verdict, f" is {WARN_BELOW} or more")
