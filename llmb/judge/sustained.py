# SPDX-License-Identifier: Apache-2.0
"""Judge how a long training held out: drift, share of time in steps, heat. Pure.

The drift has the bounds of every ratio: above 2 % it is WARN, above 5 % FAIL.
Meta reports more than 90 % effective training time for Llama 3 405B (arXiv 2407.21783, 3.3.4).
"""

from collections.abc import Iterator
from dataclasses import replace

from llmb.contract.metrics import STEP_TIME, MetricSpec
from llmb.core.digits import in_enough_digits
from llmb.judge.value import FAIL, INCONCLUSIVE, PASS, WARN, WORST, ratio_verdict
from llmb.measure.result import SUCCESS, Result, SustainedVerdict
from llmb.measure.sustained import Sustained

GOODPUT_FAILS, GOODPUT_WARNS = 0.90, 0.95
# Telemetry is up to 4 s off, which in shorter runs is more than 1 %.
SHORTEST = 400.0  # seconds
_BOUNDS = MetricSpec(name=STEP_TIME, suspicious_above=float("inf"))
_DRIFT_LIMITS = (round(1 - _BOUNDS.warn_below, 9), round(1 - _BOUNDS.fail_below, 9))


def with_sustained(result: Result) -> Result:
    """Return ``result`` with the verdict on how it held out, if it succeeded and values are known.

    A run that was cut off did not hold out, and one without values may not have.
    """
    sustained = result.metrics.sustained
    if sustained is None or result.status != SUCCESS:
        return result
    return replace(result, verdict=replace(result.verdict, sustained=judge(sustained)))


def judge(sustained: Sustained) -> SustainedVerdict | None:
    """Return the verdict, the worst of drift, share of time and heat, and the reason for it.

    None if none of them is known: that no GPU was slowed by heat is not enough.
    """
    if sustained.drift is sustained.goodput is None and not sustained.slowed_nodes:
        return None
    parts = [*_parts(sustained)]
    worst = min((word for word, _ in parts), key=WORST.index)
    texts = [text for word, text in parts if word == worst]
    return SustainedVerdict(verdict=worst, reason="; ".join(texts))


def in_words(result: Result) -> list[str]:
    """Return the verdict on a judged result and all values, a line each; none for other runs."""
    sustained, verdict = result.metrics.sustained, result.verdict.sustained
    if sustained is None:
        return []
    word, reason = (None, "") if verdict is None else (verdict.verdict, verdict.reason)
    return [
        f"{word or 'no verdict'} over {sustained.steps} steps{': ' if reason else ''}{reason}",
        *(text for own_word, text in _parts(sustained) if own_word != word),
        *_unknown(sustained),
    ]


def _parts(sustained: Sustained) -> Iterator[tuple[str, str]]:
    """Yield the verdict on each value that is known, with the value in words."""
    if sustained.drift is not None and sustained.drift_interval is not None:
        low, high = sustained.drift_interval
        # rounded, so that the last bit of a difference cannot change a verdict
        ratio, *ends = (round(1 - drift, 9) for drift in (sustained.drift, high, low))
        word = ratio_verdict(ratio, (ends[0], ends[1]), _BOUNDS)
        drift = _percent(abs(round(sustained.drift, 9)), *_DRIFT_LIMITS)
        if drift == _percent(0.0):
            drift = "no drift"
        elif sustained.drift > 0:
            drift += " slower"
        else:
            drift += " faster"
            low, high = -high, -low
        yield word, f"{drift} from begin to end ({100 * low:z.1f} to {_percent(high)})"
    if sustained.goodput is not None and sustained.elapsed_s is not None:
        yield _goodput_word(sustained), _goodput(sustained)
    if sustained.slowed_nodes:
        yield WARN, f"GPUs were slowed: {'; '.join(sustained.slowed_nodes)}"
    elif sustained.hottest_c is not None:
        yield PASS, f"at most {sustained.hottest_c:g} °C, nothing slowed a GPU"


def _goodput_word(sustained: Sustained) -> str:
    goodput, elapsed = sustained.goodput or 0.0, sustained.elapsed_s or 0.0
    if goodput >= GOODPUT_WARNS:
        return PASS
    if elapsed < SHORTEST and not sustained.restarts:
        return INCONCLUSIVE
    return WARN if goodput >= GOODPUT_FAILS else FAIL


def _goodput(sustained: Sustained) -> str:
    goodput = _percent(sustained.goodput or 0.0, GOODPUT_FAILS, GOODPUT_WARNS)
    share = f"{goodput} of {sustained.elapsed_s:,.0f} s in steps"
    lost = f"{sustained.between_steps_s:,.0f} s between steps"
    if sustained.restarts:
        times = f"{sustained.restarts} restart{'s' if sustained.restarts > 1 else ''}"
        lost += f", {sustained.lost_to_restarts_s:,.0f} s lost to {times}"
    return f"{share} ({lost})"


def _percent(fraction: float, *limits: float) -> str:
    """Return a fraction in percent, in as many digits as show its side of the nearest limit."""
    limit = min(limits, key=lambda value: abs(value - fraction), default=fraction)
    return in_enough_digits(fraction, limit, lambda value, more: f"{100 * value:z.{1 + more}f} %")[
        0
    ]


def _unknown(sustained: Sustained) -> Iterator[str]:
    if sustained.drift is None:
        yield "drift unknown: too few lines of steps from the begin of the window on"
    if sustained.goodput is None:
        yield "share of time in steps unknown: no telemetry of the first node"
    if sustained.goodput is None and sustained.restarts:
        yield f"restarts: {sustained.restarts}"
    if sustained.hottest_c is None:
        yield "temperature unknown: no telemetry"
