# SPDX-License-Identifier: Apache-2.0
"""Judges results: finds the reference of each, pools repeats, and adds ratio and verdict. Pure."""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from llmb.results.facts import ON_CPU, PROFILED
from llmb.results.result import FAILED, SUCCESS, Reference, Result, Verdict
from llmb.stats.metrics import LOWER, MetricSpec
from llmb.stats.statistics import MOST_REPEATS, Spread, repeats_to_settle
from llmb.verdict import reference as refs
from llmb.verdict.reference import Ratio, References, metric_of, ratio_of
from llmb.workload.gpus import CPU
from llmb.workload.published import Figure, mfu_as_published

PASS, WARN, SUSPICIOUS, INCONCLUSIVE = "PASS", "WARN", "SUSPICIOUS", "INCONCLUSIVE"
FAIL, INVALID, NO_REFERENCE = "FAIL", "INVALID", "NO_REFERENCE"
BAD = frozenset({FAIL, INVALID})  # they end a command with exit code 3

FAIL_BELOW, WARN_BELOW, SUSPICIOUS_ABOVE = 0.95, 0.98, 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict on ``repeats`` runs, its reason, the ``ratio`` and its 95 % interval (None for one run).

    ``value``: the mean of the repeats, in the unit of the metric. ``more``: how many more repeats of each side that has
    several would probably decide; None where it is decided, or unknown.
    """

    verdict: str
    reason: str
    value: float
    ratio: float
    interval: tuple[float, float] | None
    repeats: int
    more: int | None = None


def judge_values(
    values: Sequence[float], reference: Spread, metric: MetricSpec, noise: float | None = None
) -> Judgement:
    """The verdict on the values of ``metric`` in one run or more (all above 0), relative to the ``reference``.

    ``noise``: the part of the ratio of two single runs that the spread of their steps explains, as a factor (1.05 for
    5 %); None otherwise.
    """
    found = refs.pool(values, metric.name)
    compared = ratio_of(found, reference, metric.better)
    ratio, interval = compared
    within = interval if noise is None else (ratio / noise, ratio * noise)
    verdict = _verdict(ratio, within)
    if noise is not None and within is not None and verdict != PASS and within[0] <= 1 <= within[1]:
        verdict = INCONCLUSIVE  # a difference that noise explains is no difference, for better or worse
    more = None
    if noise is not None and within is not None and verdict == INCONCLUSIVE:
        why = f": from the spread of both runs' own steps, it may be {within[0]:.3f} to {within[1]:.3f}; "
        why += "repeats on both sides would decide"
    else:
        limit = _undecided(verdict, compared)
        sides = [side for side in (found, reference) if side.n > 1]
        more = None if limit is None else repeats_to_settle(abs(math.log(ratio / limit)), *sides)
        why = _WHY[verdict]
        if limit is not None:
            why = f"{_WHY_UNDECIDED[verdict]}; {_would_decide(more, found, reference)}"
    return Judgement(
        verdict=verdict,
        reason=_measured(compared, found, reference) + why,
        value=found.mean,
        ratio=ratio,
        interval=interval,
        repeats=found.n,
        more=more,
    )


def _measured(ratio: Ratio, found: Spread, reference: Spread) -> str:
    """The ratio with its interval, and the runs that both are from."""
    if ratio.interval is None:
        return f"{ratio.value:.3f} (n={found.n})"
    runs = f"n={found.n}" if reference.n == 1 else f"n={found.n} and {reference.n}"
    return f"{ratio.value:.3f} ({ratio.interval[0]:.3f} to {ratio.interval[1]:.3f}, {runs})"


def _verdict(ratio: float, interval: tuple[float, float] | None) -> str:
    if interval is not None and interval[0] < FAIL_BELOW < interval[1]:
        return INCONCLUSIVE
    if ratio < FAIL_BELOW:
        return FAIL
    if ratio < WARN_BELOW:
        return WARN
    return SUSPICIOUS if ratio > SUSPICIOUS_ABOVE else PASS


_WHY = {
    PASS: f" is {WARN_BELOW} or more",
    FAIL: f" is below {FAIL_BELOW}",
    WARN: f" is below {WARN_BELOW}",
    SUSPICIOUS: f" is above {SUSPICIOUS_ABOVE}, which is implausible: check what differs",
    INCONCLUSIVE: "",
}
_BUT_NOISE = "but its interval contains 1: the repeats differ too much to tell it from the reference"
_WHY_UNDECIDED = {
    WARN: f" is below {WARN_BELOW}, {_BUT_NOISE}",
    SUSPICIOUS: f" is above {SUSPICIOUS_ABOVE}, {_BUT_NOISE}",
    INCONCLUSIVE: f": the interval contains {FAIL_BELOW}",
}


def _undecided(verdict: str, ratio: Ratio) -> float | None:
    """The ratio that the interval should not contain: 0.95, or 1 where that alone is no news; None where it is well."""
    if verdict == INCONCLUSIVE:
        return FAIL_BELOW
    noisy = ratio.interval is not None and ratio.interval[0] <= 1 <= ratio.interval[1]
    return 1.0 if noisy and verdict in (WARN, SUSPICIOUS) else None


def _would_decide(more: int | None, found: Spread, reference: Spread) -> str:
    """How many more repeats would narrow the interval enough, if they deviate as those that there are."""
    whose = "" if reference.n == 1 else " of the other side" if found.n == 1 else " of each side"
    if more is None:
        return f"not even {MOST_REPEATS} more repeats{whose} would decide"
    return f"{'about ' if more > 1 else ''}{more} more repeat{'s' if more > 1 else ''}{whose} would decide"


def judge(results: Iterable[Result], figures: Sequence[Figure], release: str | None = None) -> list[Result]:
    """``results`` in their order, each with its reference and the verdict on its configuration.

    A run that failed or has not ended has none. An invalid run has its own verdict, and is not one of the repeats. The
    order of the results does not change their verdicts.
    """
    references = References(figures, release)
    compared = [_compared(result, references) for result in results]
    # The key is equal for results that are judged together.
    keys = [
        None if (own := result.verdict).ratio is None else (pool_key(result), own.reference and own.reference.metric)
        for result in compared
    ]
    pools: dict[Hashable, list[Result]] = {}
    for result, key in zip(compared, keys, strict=True):
        if key is not None:
            pools.setdefault(key, []).append(result)
    judgements = {key: judge_pool(found) for key, found in pools.items()}
    return [
        result if key is None else _judged(result, judgements[key]) for result, key in zip(compared, keys, strict=True)
    ]


def judge_pool(repeats: Sequence[Result]) -> Judgement:
    """The verdict on results of one configuration, which have one reference and a ratio to it."""
    reference = repeats[0].verdict.reference
    assert reference is not None
    metric = metric_of(repeats[0], reference.metric)
    values = [result.metrics.measured[reference.metric].mean for result in repeats]
    return judge_values(values, refs.published(reference.value), metric)


def pool_key(result: Result) -> Hashable:
    """Equal for the repeats of one configuration: all settings, the window and the kind of device are the same."""
    own, metrics = result.identity, result.metrics
    what = own.experiment if own.configuration is None else own.configuration.key
    return what, metrics.window, metrics.steps, result.log and result.log.device


def why_invalid(result: Result) -> str | None:
    """Why a measurement is invalid, whatever it is compared with; None where it is valid."""
    own = result.identity.configuration
    profiled = [PROFILED] if own is not None and own.profile else []
    return "; ".join([*result.metrics.invalid, *profiled, *_without_ratio(result, result.metrics.headline)]) or None


def _without_ratio(result: Result, metric: str) -> list[str]:
    """Why the value of ``metric`` has no ratio to another one."""
    own = result.metrics.measured.get(metric)
    return [] if own is None or own.mean > 0 else [f"{metric} is {own.mean:g}: a ratio needs a value above 0"]


def _compared(result: Result, references: References) -> Result:
    """``result`` with its reference and its own ratio, or with the verdict that it has without one."""
    if _has_gaps(result):
        return replace(result, verdict=Verdict(word=INVALID, reason="the window is not complete"))
    metrics, configuration = result.metrics, result.identity.configuration
    if result.status != SUCCESS or metrics.value is None:
        return result
    if configuration is None:
        figure, missing = None, refs.not_described(result)
    elif configuration.loads:
        figure, missing = None, refs.LOADS
    else:
        figure, missing = references.find(configuration, metrics)
    invalid = why_invalid(result)
    if figure is None:
        verdict = Verdict(word=INVALID if invalid else NO_REFERENCE, reason=invalid or missing)
        return replace(result, verdict=verdict)
    name, time = figure.metric.name, metrics.step_time
    reference = Reference(
        release=figure.release,
        window=str(figure.window),
        step_time_s=figure.step_time_s,
        source=figure.source,
        metric=name,
        value=figure.value,
        unit=figure.metric.unit,
    )
    verdict = Verdict(
        reference=reference,
        mfu_reference_convention=None if time is None else mfu_as_published(figure, time),
        reference_flops_convention=figure.flops_convention,
    )
    if invalid is None and result.log is not None and result.log.device is not None and figure.gpu_type != CPU:
        invalid = ON_CPU
    invalid = invalid or "; ".join(_without_ratio(result, name)) or None
    if invalid is not None:
        return replace(result, verdict=replace(verdict, word=INVALID, reason=invalid))
    same = refs.same_window(metrics.window, metrics.steps, figure, metrics.first_iteration)
    own = metrics.measured[name]
    ratio = figure.value / own.mean if own.better == LOWER else own.mean / figure.value
    return replace(result, verdict=replace(verdict, ratio=ratio, same_window=same))


def _has_gaps(result: Result) -> bool:
    """Whether the run reached its last step, but its log lacks iterations of the window."""
    metrics = result.metrics
    if metrics.max_iteration is None or metrics.steps is None:
        return False
    return result.status == FAILED and metrics.max_iteration >= metrics.steps - 1 and metrics.value is None


def _judged(result: Result, judgement: Judgement) -> Result:
    verdict, reason = result.verdict, judgement.reason
    if verdict.reference is not None and verdict.reference.metric != result.metrics.headline:
        reason += f"; compared by {verdict.reference.metric}"
    if verdict.reference is not None and not verdict.same_window:
        window = result.metrics.window or "no iteration"
        reason += f"; measured over {window}, the published figure over {verdict.reference.window}"
    return replace(
        result,
        verdict=replace(
            verdict,
            word=judgement.verdict,
            reason=reason,
            repeats=judgement.repeats,
            pooled_ratio=judgement.ratio,
            ratio_interval=judgement.interval,
        ),
    )
