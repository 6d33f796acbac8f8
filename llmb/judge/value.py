# SPDX-License-Identifier: Apache-2.0
"""Judge one metric: values of repeats relative to a reference, with the interval. Pure.

A ratio is better above 1 whichever way the metric is better. The interval of its logarithm has the
deviation of single runs, so it never reaches 0, and exchanging the sides gives exactly its inverse.
"""

import math
from collections.abc import Sequence

from llmb.contract.metrics import USUAL_BOUNDS, Bounds, MetricSpec, shown
from llmb.core.digits import exact, in_enough_digits
from llmb.core.values import dataclass
from llmb.judge.deviation import Estimate, Variance, half_width
from llmb.judge.reference import pool, relative
from llmb.measure.result import Result

PASS, WARN, SUSPICIOUS, INCONCLUSIVE = "PASS", "WARN", "SUSPICIOUS", "INCONCLUSIVE"
FAIL, INVALID, NO_REFERENCE = "FAIL", "INVALID", "NO_REFERENCE"
BAD = frozenset({FAIL, INVALID})  # they end a command with exit code 3

FAIL_BELOW, WARN_BELOW = USUAL_BOUNDS.fail_below, USUAL_BOUNDS.warn_below
SUSPICIOUS_ABOVE = USUAL_BOUNDS.suspicious_above
# The run's verdict is the worst of its metrics; the worst first.
WORST = (FAIL, INCONCLUSIVE, WARN, SUSPICIOUS, PASS)
MOST_REPEATS = 100
_WIDEST = 100.0  # of the logarithm of a ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict on ``repeats`` runs, with its reason."""

    verdict: str
    reason: str
    value: float  #: the mean of the repeats, in the unit of the metric
    ratio: float
    interval: tuple[float, float] | None  #: of the ratio (95 %), None if no deviation is known
    repeats: int
    #: How many repeats would probably decide an INCONCLUSIVE verdict, if the mean stays. None if it
    #: is decided, or if not even MOST_REPEATS would do.
    enough_repeats: int | None = None


def judge_values(
    values: Sequence[float],
    reference: Sequence[float],
    metric: MetricSpec,
    estimate: Estimate | None = None,
    *,
    exact: bool = False,
) -> Judgement:
    """Judge the values (all above 0) that one or more runs measured, relative to ``reference``.

    ``reference`` has the values of the other side's runs, or one ``exact`` figure, such as a
    published one, whose deviation is unknown. ``estimate`` is the deviation of single runs.
    """
    measured, other = pool(values, metric.name), pool(reference, metric.name)
    # rounded, so that the last bit of a sum cannot change a verdict
    ratio = round(relative(measured.mean, other.mean, metric.better), 9)
    counts = (len(values), *(() if exact else (len(reference),)))
    interval = None if estimate is None else _interval(ratio, estimate.variance, counts)
    verdict = ratio_verdict(ratio, interval, metric)
    enough = None
    reason = _reason(verdict, metric)
    if estimate is not None and interval is not None:
        if verdict == INCONCLUSIVE:
            enough = _enough_repeats(ratio, estimate.variance, counts, metric)
            reason += f" ({estimate}); {_would_decide(enough, estimate)}"
        elif verdict in (WARN, SUSPICIOUS) and interval[0] <= 1 <= interval[1]:
            reason += f", but its interval contains 1 ({estimate}): chance may explain it"
    reason = _measured(ratio, interval, counts, verdict, metric) + reason
    if (broken := outside_limits(measured.mean, metric)) is not None:
        verdict, reason = FAIL, f"{broken}; {reason}"
    return Judgement(
        verdict=verdict,
        reason=reason,
        value=measured.mean,
        ratio=ratio,
        interval=interval,
        repeats=measured.n,
        enough_repeats=enough,
    )


def _interval(ratio: float, variance: Variance, counts: Sequence[int]) -> tuple[float, float]:
    factor = math.exp(min(round(half_width(variance, *counts), 9), _WIDEST))
    return ratio / factor, ratio * factor


def outside_limits(value: float, metric: MetricSpec) -> str | None:
    """Return why a value breaks a limit in the metric's own unit, None if it keeps them."""
    if metric.minimum is not None and value < metric.minimum:
        limit, word = metric.minimum, "below the minimum"
    elif metric.maximum is not None and value > metric.maximum:
        limit, word = metric.maximum, "above the maximum"
    else:
        return None
    texts = in_enough_digits(value, limit, lambda number, more: shown(number, metric.unit, more))
    return f"{metric.name} {texts[0]} is {word} {texts[1]}"


def ratio_verdict(ratio: float, interval: tuple[float, float] | None, bounds: Bounds) -> str:
    """Return the word: the mean decides, unless the ratio may be a PASS as well as a FAIL."""
    if interval and interval[0] < bounds.fail_below and interval[1] > bounds.warn_below:
        return INCONCLUSIVE
    if ratio < bounds.fail_below:
        return FAIL
    if ratio < bounds.warn_below:
        return WARN
    return SUSPICIOUS if ratio > bounds.suspicious_above else PASS


def _reason(verdict: str, bounds: Bounds) -> str:
    fail, warn, most = map(exact, (bounds.fail_below, bounds.warn_below, bounds.suspicious_above))
    return {
        PASS: f" is {warn} or more",
        FAIL: f" is below {fail}",
        WARN: f" is below {warn}",
        SUSPICIOUS: f" is above {most}, which is implausible: check what differs",
        INCONCLUSIVE: f" may be below {fail} or above {warn}",
    }[verdict]


def _measured(
    ratio: float,
    interval: tuple[float, float] | None,
    counts: Sequence[int],
    verdict: str,
    bounds: Bounds,
) -> str:
    """Return the ratio with its interval, and the number of runs behind both sides.

    Their digits show on which side of the limits of the ``verdict`` they are.
    """
    fail, warn, most = bounds.fail_below, bounds.warn_below, bounds.suspicious_above
    side = {FAIL: fail, WARN: warn, SUSPICIOUS: most}.get(verdict)
    if verdict == PASS and float(_ratio(ratio)) < warn:
        side = warn
    runs = f"n={' and '.join(map(str, counts))}" if any(n > 1 for n in counts) else "n=1"
    if interval is None:
        return f"{_ratio(ratio, side)} ({runs})"
    low, high = (fail, warn) if verdict == INCONCLUSIVE else (None, None)
    ends = f"{_ratio(interval[0], low)} to {_ratio(interval[1], high)}"
    return f"{_ratio(ratio, side)} ({ends}, {runs})"


def _ratio(value: float, limit: float | None = None, decimals: int = 3) -> str:
    """Return a ratio in three decimals, or in more if it would be equal to its limit."""
    limit = value if limit is None else limit
    return in_enough_digits(value, limit, lambda number, more: f"{number:.{decimals + more}f}")[0]


def ratio_in_digits(ratio: float, bounds: Bounds | None = None, decimals: int = 3) -> str:
    """Return a ratio in as many decimals as show on which side of each limit it is.

    ``bounds`` are those of its metric, None for the usual ones.
    """
    bounds = bounds or USUAL_BOUNDS
    distances = [
        (abs(ratio - limit), limit)
        for limit in (bounds.fail_below, bounds.warn_below, bounds.suspicious_above)
    ]
    distance, nearest = min(distances)
    # rounded like the ratio of a verdict; most are far from any limit
    return (
        _ratio(round(ratio, 9), nearest, decimals) if distance < 0.001 else f"{ratio:.{decimals}f}"
    )


def bounds_of(result: Result) -> Bounds | None:
    """Return the limits of the metric that decided, None for the usual ones."""
    reference = result.verdict.reference
    measured = None if reference is None else result.metrics.measured.get(reference.metric)
    return None if measured is None else measured.bounds


def _enough_repeats(
    ratio: float, variance: Variance, counts: Sequence[int], bounds: Bounds
) -> int | None:
    """Return how many repeats of the judged side would make the interval narrow enough."""
    distance = max(math.log(ratio / bounds.fail_below), math.log(bounds.warn_below / ratio))
    repeats, *reference = counts
    for enough in range(repeats + 1, MOST_REPEATS + 1):
        estimate = Variance(variance.value, variance.freedom + enough - repeats)
        if half_width(estimate, enough, *reference) < distance:
            return enough
    return None


def _would_decide(enough: int | None, estimate: Estimate) -> str:
    if estimate.is_guess:
        return "repeats would show how much runs really deviate"
    if enough is None:
        return f"not even {MOST_REPEATS} repeats would decide"
    return f"about {enough} repeats would decide"
