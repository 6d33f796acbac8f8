# SPDX-License-Identifier: Apache-2.0
"""Judge every metric of a configuration that has a reference or limits; the worst decides. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from llmb.contract.metrics import LOWER, Measured, MetricSpec, shown
from llmb.core.values import dataclass
from llmb.judge.deviation import Deviations
from llmb.judge.reference import metric_of, relative
from llmb.judge.value import FAIL, PASS, WORST, Judgement, judge_values, outside_limits
from llmb.measure.result import MetricVerdict, ReferenceValue, Result, Verdict

_MOST_NAMED = 3  # further metrics that a reason names


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The published figure, or the runs of the other side, with which a metric is compared."""

    reference: ReferenceValue
    values: tuple[float, ...]  #: of the runs, or the one figure
    exact: bool  #: true for a figure, whose deviation is unknown
    steps: tuple[float, ...] = ()  #: relative deviations of the steps of the runs
    #: The ratio of each pair of runs, better above 1. They are judged in place of ``values``.
    pair_ratios: tuple[float, ...] = ()


def limited_metrics(results: Iterable[Result]) -> list[str]:
    """Return the judged metrics whose values have limits, also if only some runs measured them."""
    names = [
        name
        for result in results
        for name, measured in result.metrics.measured.items()
        if measured.judged and measured.bounds is not None and measured.bounds.has_limits
    ]
    return list(dict.fromkeys(names))


def only_by(result: Result, metric: str) -> Result:
    """Return ``result`` with ``metric`` as its headline, and no other metric judged."""
    metrics = result.metrics
    measured = {
        name: replace(value, judged=name == metric) for name, value in metrics.measured.items()
    }
    statistics = metrics.statistics if metrics.share_statistics(metric) else None
    about = replace(metrics, measured=measured, headline=metric, statistics=statistics)
    return replace(result, metrics=about)


def judge_metrics(
    repeats: Sequence[Result],
    targets: Mapping[str, Target],
    deviations: Mapping[str, Deviations],
) -> dict[str, MetricVerdict]:
    """Judge the repeats of one configuration by each metric with a target or limits."""
    measured = {name for result in repeats for name in result.metrics.measured}
    names = [name for name in targets if name in measured]
    names += [name for name in limited_metrics(repeats) if name not in targets]
    return {
        name: _judge_metric(repeats, name, targets.get(name), deviations.get(name))
        for name in names
    }


def _judge_metric(
    repeats: Sequence[Result], name: str, target: Target | None, deviations: Deviations | None
) -> MetricVerdict:
    having = [result for result in repeats if name in result.metrics.measured]
    metric, values = metric_of(having[0], name), values_of(having, name)
    if target is None or len(values) < len(having) or not target.values:
        return _by_limits(having, metric, target)
    if target.pair_ratios:
        judgement = _judge_pairs(target.pair_ratios, metric, deviations)
    else:
        sides = (values,) if target.exact else (values, target.values)
        steps = [*relative_steps(having, name), *target.steps]
        estimate = None if deviations is None else deviations.of(*sides, steps=steps)
        judgement = judge_values(values, target.values, metric, estimate, exact=target.exact)
    return MetricVerdict(
        word=judgement.verdict,
        reason=judgement.reason,
        reference=target.reference,
        repeats=judgement.repeats,
        pooled_ratio=judgement.ratio,
        interval=judgement.interval,
    )


def _judge_pairs(
    ratios: Sequence[float], metric: MetricSpec, deviations: Deviations | None
) -> Judgement:
    """Judge the ratios of pairs as the values of one side: what a pair shares cancels out."""
    ratio = replace(metric, better="higher", minimum=None, maximum=None)
    estimate = None if deviations is None else deviations.of(ratios)
    judgement = judge_values(ratios, [1.0], ratio, estimate, exact=True)
    return replace(judgement, reason=f"in pairs {judgement.reason}")


def _by_limits(
    repeats: Sequence[Result], metric: MetricSpec, target: Target | None
) -> MetricVerdict:
    """Judge a value without a ratio: it has no reference, or it is 0 in some of the runs."""
    means = [result.metrics.measured[metric.name].mean for result in repeats]
    mean, zeros = sum(means) / len(means), sum(value <= 0 for value in means)
    is_zero, is_partly_zero = f"{metric.name} is 0", 0 < zeros < len(means)
    if is_partly_zero:
        is_zero += f" in {zeros} of {len(means)} runs"
    broken = outside_limits(mean, metric)
    if broken is None and target is not None and metric.better != LOWER:
        broken = is_zero
    reference = None if target is None else target.reference
    reason = broken or f"{metric.name} {shown(mean, metric.unit)} is within its limits"
    if broken is None and is_partly_zero and target is not None:
        reason += f", without a ratio, as {is_zero}"
    return MetricVerdict(
        word=PASS if broken is None else FAIL,
        reason=reason,
        reference=reference,
        repeats=len(repeats),
    )


def with_metrics(
    result: Result, verdict: Verdict, verdicts: Mapping[str, MetricVerdict]
) -> Verdict:
    """Return ``verdict`` of one of the repeats with the worst of these verdicts."""
    judged_by_name = {
        name: replace(judged, ratio=ratio_of_run(result, judged.reference, judged.pooled_ratio))
        for name, judged in verdicts.items()
    }
    name = min(judged_by_name, key=lambda name: WORST.index(judged_by_name[name].word))
    worst = judged_by_name[name]
    reason = worst.reason
    if name != result.metrics.headline and name not in reason:
        reason += f"; compared by {name}"
    further = [
        other
        for other in judged_by_name
        if other != name and judged_by_name[other].word == worst.word
    ]
    if worst.word != PASS and further:
        names = ", ".join(further[:_MOST_NAMED]) + (" ..." if len(further) > _MOST_NAMED else "")
        reason += f"; also {worst.word} by {names}"
    headline = judged_by_name.get(result.metrics.headline)
    if headline is not None and headline.word not in (worst.word, PASS):
        reason += f"; {headline.word} by {result.metrics.headline}"
    return replace(
        verdict,
        word=worst.word,
        reason=reason,
        reference=worst.reference,
        ratio=worst.ratio,
        repeats=worst.repeats,
        pooled_ratio=worst.pooled_ratio,
        ratio_interval=worst.interval,
        metrics=judged_by_name,
    )


def ratio_of_run(
    result: Result, reference: ReferenceValue | None, pooled_ratio: float | None
) -> float | None:
    """Return the ratio of this run alone, None if its repeats have no ratio or it measured 0."""
    measured = None if reference is None else result.metrics.measured.get(reference.metric)
    if measured is None or reference is None or pooled_ratio is None or not measured.mean:
        return None
    return relative(measured.mean, reference.value, measured.better)


def values_of(repeats: Iterable[Result], metric: str) -> list[float]:
    """Return the means above 0 that the runs measured of ``metric``."""
    measured = [result.metrics.measured.get(metric) for result in repeats]
    return [value.mean for value in measured if value is not None and value.mean > 0]


def relative_steps(repeats: Iterable[Result], metric: str) -> list[float]:
    """Return the deviation of single steps of each run, as a fraction of their mean.

    Outliers are not counted if the run's statistics say which they are: slow steps are a cause.
    """
    deviations = []
    for result in repeats:
        metrics, measured = result.metrics, result.metrics.measured.get(metric)
        shared = metrics.statistics if metrics.share_statistics(metric) else None
        if shared is not None and shared.deviation is not None:
            deviations.append(shared.deviation)
        elif measured is not None and measured.mean > 0 and measured.std is not None:
            deviations.append(measured.std / measured.mean)
    return deviations


def pair_ratios(
    repeats: Iterable[Result], reference_repeats: Iterable[Result], metric: str
) -> list[float]:
    """Return the ratio of ``metric`` of each complete pair of runs, better above 1.

    Empty if a submission of the runs has no other side. Those of two submissions of a session have
    equal numbers, so that it is unknown which of them are a pair.
    """
    values, references = _by_pair(repeats, metric), _by_pair(reference_repeats, metric)
    if values is None or references is None or values.side == references.side:
        return []
    if not values.submissions <= references.submissions:
        return []
    return [
        relative(value.mean, reference.mean, value.better)
        for pair, value in values.by_pair.items()
        if (reference := references.by_pair.get(pair)) is not None
    ]


_Submission = tuple[str | None, str]  # the id of its session, and its setting


class _Side(NamedTuple):
    """One side of runs in pairs."""

    side: str
    submissions: set[_Submission]
    #: Values above 0, by the submission and the number of the pair.
    by_pair: dict[tuple[_Submission, int], Measured]


def _by_pair(results: Iterable[Result], metric: str) -> _Side | None:
    """Return the values of one side, None if a run is in no pair or two have an equal number."""
    results = list(results)
    pairs = [result.identity.pair for result in results]
    keys = [
        ((result.identity.session, pair.setting), pair.number)
        for result, pair in zip(results, pairs, strict=True)
        if pair is not None
    ]
    sides = {pair.side for pair in pairs if pair is not None}
    if None in pairs or len(sides) != 1 or len(set(keys)) < len(keys):
        return None
    values = {
        key: value
        for key, result in zip(keys, results, strict=True)
        if (value := result.metrics.measured.get(metric)) is not None and value.mean > 0
    }
    return _Side(sides.pop(), {submission for submission, _ in keys}, values)
