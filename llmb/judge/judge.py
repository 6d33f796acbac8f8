# SPDX-License-Identifier: Apache-2.0
"""Judge results: find the reference of each, pool repeats, and add ratio and verdict. Pure."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

from llmb.contract.formats import TRAINER_NAME
from llmb.contract.gpus import CPU
from llmb.contract.metrics import STEP_TIME
from llmb.contract.window import parse_window
from llmb.core.grouping import grouped
from llmb.judge import fabrics, far_runs, reference as refs
from llmb.judge.deviation import Deviations
from llmb.judge.differences import settings_of_framework, window_in_words
from llmb.judge.per_metric import (
    Target,
    judge_metrics,
    limited_metrics,
    values_of,
    with_metrics,
)
from llmb.judge.reference import References
from llmb.judge.value import INCONCLUSIVE, INVALID, NO_REFERENCE
from llmb.measure.facts import INCOMPLETE, ON_CPU, PROFILED
from llmb.measure.result import SUCCESS, MetricVerdict, ReferenceValue, Result, Verdict
from llmb.plan.published import Figure, mfu_as_published

_ENOUGH = 3  # steps of a training, of which the default window omits the first


def judge(
    results: Iterable[Result],
    figures: Sequence[Figure],
    release: str | None = None,
) -> list[Result]:
    """Return ``results`` in their order, each with its reference and its configuration's verdict.

    A run that failed or has not ended has none. An invalid run has its own verdict, and is not one
    of the repeats. The order of the results does not change their verdicts.
    """
    references = References(figures, release)
    compared = [(result, *_compared(result, references)) for result in results]
    # The key is equal for results that are judged together.
    keys = [
        None if targets is None else (pool_key(result), tuple(targets))
        for result, _, targets in compared
    ]
    members = grouped(
        (key, (result, targets))
        for (result, _, targets), key in zip(compared, keys, strict=True)
        if targets is not None
    )
    pools = {key: [result for result, _ in pool] for key, pool in members.items()}
    deviations = {
        name: Deviations([[values_of(pool, name)] for pool in pools.values()])
        for name in {name for pool in members.values() for name in pool[0][1]}
    }
    verdicts = {
        key: judge_metrics(repeats, members[key][0][1], deviations)
        for key, repeats in pools.items()
    }
    far = {
        key: far_runs.in_words(repeats)
        for key, repeats in pools.items()
        if any(verdict.word == INCONCLUSIVE for verdict in verdicts[key].values())
    }
    return [
        replace(
            result,
            verdict=verdict
            if key is None
            else _judged(result, verdict, verdicts[key], far.get(key, "")),
        )
        for (result, verdict, _), key in zip(compared, keys, strict=True)
    ]


def pools_of(results: Iterable[Result]) -> list[list[Result]]:
    """Return the repeats of each configuration."""
    return list(grouped((pool_key(result), result) for result in results).values())


def pool_key(result: Result) -> Hashable:
    """Return a key that repeats share.

    It has session, settings, window, kind of device, and unit and direction of the headline.
    """
    identity, metrics = result.identity, result.metrics
    settings = identity.experiment if identity.configuration is None else identity.configuration.key
    device = result.log and result.log.device
    value = metrics.value
    headline = None if value is None else (metrics.headline, value.unit, value.better)
    return identity.session, settings, metrics.window, metrics.steps, device, headline


def without_session(result: Result) -> Result:
    """Return ``result`` as of one session with all others: runs that were accepted together."""
    return result.with_identity(session=None)


def why_invalid(result: Result) -> str | None:
    """Return why a measurement is invalid, whatever its reference, or None if it is valid."""
    configuration = result.identity.configuration
    profiled = [PROFILED] if configuration is not None and configuration.profile else []
    return (
        "; ".join(
            [*result.metrics.invalid, *profiled, *_without_ratio(result, result.metrics.headline)]
        )
        or None
    )


def _without_ratio(result: Result, metric: str) -> list[str]:
    """Return why the value of ``metric`` has no ratio to another one."""
    measured = result.metrics.measured.get(metric)
    return (
        []
        if measured is None
        or measured.mean > 0
        or (measured.bounds is not None and measured.bounds.has_limits)
        else [f"{metric} is {measured.mean:g}: a ratio needs a value above 0"]
    )


def _compared(result: Result, references: References) -> tuple[Verdict, dict[str, Target] | None]:
    """Return the verdict of ``result`` so far, and what it is compared with by metric.

    None if the verdict is final.
    """
    if INCOMPLETE in result.metrics.invalid:
        return Verdict(word=INVALID, reason=INCOMPLETE), None
    metrics, configuration = result.metrics, result.identity.configuration
    if result.status != SUCCESS or metrics.value is None:
        return result.verdict, None
    if (unproven := _of_one_line(result)) is not None:
        return Verdict(reason=unproven), None
    figures: Sequence[Figure] = ()
    if configuration is None:
        missing = refs.not_described(result)
    elif configuration.loads:
        missing = refs.LOADS
    else:
        figures, missing = references.find(configuration, metrics)
    invalid = why_invalid(result)
    if invalid is None and fabrics.decides(result, figures):
        expected, missing = fabrics.find_expected(result)
        if expected is not None:
            target = Target(reference=expected, values=(expected.value,), exact=True)
            return Verdict(reference=expected, same_window=True), {expected.metric: target}
        figures = ()
    if not figures:
        if invalid is None and limited_metrics([result]):
            return result.verdict, {}
        return Verdict(word=INVALID if invalid else NO_REFERENCE, reason=invalid or missing), None
    if invalid is None and (unproven := _of_warm_up(result)) is not None:
        return Verdict(reason=unproven), None
    first, time = figures[0], metrics.step_time
    targets = {figure.metric.name: _target(figure) for figure in figures}
    is_on_cpu = result.log is not None and result.log.device is not None
    if invalid is None and is_on_cpu and first.gpu_type != CPU:
        invalid = ON_CPU
    invalid = invalid or "; ".join(_without_ratio(result, first.metric.name)) or None
    window = refs.same_window(metrics.window, metrics.steps, first, metrics.first_iteration)
    verdict = Verdict(
        word=None if invalid is None else INVALID,
        reason=invalid,
        same_window=window if invalid is None else None,
        reference=targets[first.metric.name].reference,
        mfu_reference_convention=None if time is None else mfu_as_published(first, time),
        reference_flops_convention=first.flops_convention,
        differences=tuple(settings_of_framework(configuration.dotted)) if configuration else (),
    )
    return verdict, targets if invalid is None else None


def _target(figure: Figure) -> Target:
    reference = ReferenceValue(
        release=figure.release,
        window=str(figure.window),
        step_time_s=figure.step_time_s,
        source=figure.source,
        metric=figure.metric.name,
        value=figure.value,
        unit=figure.metric.unit,
    )
    return Target(reference=reference, values=(figure.value,), exact=True)


def _of_one_line(result: Result) -> str | None:
    """Return why the figure has no verdict, if a single line of the log measures several steps.

    The Trainer of Hugging Face's transformers prints no other line.
    """
    statistics, value = result.metrics.statistics, result.metrics.value
    if statistics is None or value is None or statistics.count > 1 or value.n == 1:
        return None
    if result.log is not None and result.log.framework == TRAINER_NAME:
        return None
    return (
        f"no verdict: one line of the log measures all {value.n} iterations of the window; log more"
        " often, or run more steps"
    )


def _of_warm_up(result: Result) -> str | None:
    """Return why the figure has no verdict, if a short training has no step behind its first."""
    metrics = result.metrics
    if metrics.metric_of_statistics != STEP_TIME or metrics.window is None:
        return None
    if metrics.window.first > metrics.first_iteration or (metrics.steps or _ENOUGH) >= _ENOUGH:
        return None
    return (
        "no verdict: the window has the first step of the run, which is a warm-up; run"
        f" {_ENOUGH} steps or more"
    )


def _judged(
    result: Result, verdict: Verdict, verdicts: Mapping[str, MetricVerdict], far: str
) -> Verdict:
    """Return the verdict by ``verdicts`` of its metrics. ``far``: runs that are far from its
    repeats.
    """
    verdict = with_metrics(result, verdict, verdicts)
    notes = [far] if far and verdict.word == INCONCLUSIVE else []
    if verdict.reference is not None and not verdict.same_window:
        measured = window_in_words(result.metrics.window)
        published = window_in_words(parse_window(verdict.reference.window))
        notes.append(f"measured over {measured}, the published figure over {published}")
    if not notes:
        return verdict
    return replace(verdict, reason="; ".join(filter(None, [verdict.reason, *notes])))
