# SPDX-License-Identifier: Apache-2.0
"""The rules of a verdict: from the ratios of one configuration's repeats to one word and the sentence behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmb.interval import MOST_REPEATS, Spread, half_width, repeats_to_settle, spread

PASS, WARN, SUSPICIOUS, INCONCLUSIVE = "PASS", "WARN", "SUSPICIOUS", "INCONCLUSIVE"
FAIL, INVALID, NO_REFERENCE = "FAIL", "INVALID", "NO_REFERENCE"
BAD = frozenset({FAIL, INVALID})  # they end a command with exit code 3

FAIL_BELOW, WARN_BELOW, SUSPICIOUS_ABOVE = 0.95, 0.98, 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict on ``repeats`` runs: their mean ``ratio`` of throughputs, its 95 % interval (None for one run), why.

    A ratio of throughputs is never below 0, so neither is the interval's lower end.
    """

    verdict: str
    reason: str
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    repeats: int | None = None


def judge_ratios(ratios: Sequence[float], *, reference: Spread | None = None) -> Judgement:
    """The verdict on one ratio or more of measured by reference throughput.

    ``reference`` is the spread of the reference's own repeats, where it is not a published figure.
    """
    found = spread(ratios)
    ratio = round(found.mean, 9)  # so that a sum's last bit decides nothing
    width = round(_width(found, reference), 9)
    more = len(ratios) > 1 or (reference is not None and reference.n > 1)
    interval = (max(0.0, ratio - width), ratio + width) if more else None
    verdict = _word(ratio, interval)
    reason = f"{_shown(ratio, interval, len(ratios))}{_why(verdict, found, reference)}"
    return Judgement(verdict=verdict, reason=reason, ratio=ratio, interval=interval, repeats=len(ratios))


def _width(found: Spread, reference: Spread | None) -> float:
    own = half_width(found)
    if reference is None or reference.n < 2:
        return own
    other = half_width(reference) / reference.mean * found.mean
    return float((own**2 + other**2) ** 0.5)


def _word(ratio: float, interval: tuple[float, float] | None) -> str:
    if interval is not None and interval[0] < FAIL_BELOW < interval[1]:
        return INCONCLUSIVE
    if ratio < FAIL_BELOW:
        return FAIL
    if ratio < WARN_BELOW:
        return WARN
    return SUSPICIOUS if ratio > SUSPICIOUS_ABOVE else PASS


def _settling(found: Spread, reference: Spread | None) -> str:
    if reference is not None and reference.n > 1:
        return "more repeats on both sides"
    more = repeats_to_settle(found, FAIL_BELOW)
    return f"more than {MOST_REPEATS} repeats" if more is None else f"{more} more repeat{'s' if more > 1 else ''}"


def _shown(ratio: float, interval: tuple[float, float] | None, count: int) -> str:
    if interval is None:
        return f"{ratio:.3f} (n=1)"
    return f"{ratio:.3f} ({interval[0]:.3f} to {interval[1]:.3f}, n={count})"


def _why(verdict: str, found: Spread, reference: Spread | None) -> str:
    if verdict == INCONCLUSIVE:
        return f" is on both sides of {FAIL_BELOW}; {_settling(found, reference)} would settle it"
    return {
        FAIL: f" is below {FAIL_BELOW}",
        WARN: f" is below {WARN_BELOW}",
        SUSPICIOUS: f" is above {SUSPICIOUS_ABOVE}: better than can be expected",
    }.get(verdict, f" is {WARN_BELOW} or more")
