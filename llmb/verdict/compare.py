# SPDX-License-Identifier: Apache-2.0
"""Compares results with other results or with published figures: a row for each configuration. Pure."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llmb.results.description import Configuration
from llmb.results.result import CANCELLED, FAILED, PENDING, RUNNING, SUCCESS, UNKNOWN, Reference, Result, Verdict
from llmb.stats.measure import Window
from llmb.stats.metrics import LOWER, STEP_TIME
from llmb.text import typed
from llmb.verdict.differences import differences, differing_facts
from llmb.verdict.judge import BAD, INVALID, NO_REFERENCE, judge_values, pool_key, why_invalid
from llmb.verdict.reference import LOADS, comparable, metric_of, noise_of_pair, not_described, pooled

_Pool = Sequence[Result]  # the repeats of one configuration
_MOST = 2  # runs without a figure that are named


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The repeats of one configuration and their reference; a run that failed has a separate row.

    ``runs``: ids, or the paths of logs without one; ``failed``: as ``Result.is_failure``; ``value``: the mean of all of
    them in ``unit``, of the ``metric`` that they are compared by, as for the reference; ``step_time_s``: of training,
    whichever metric that is; ``reference``: the other side, its ``release`` the name of that side; ``differences``:
    settings that differ although both can be compared.
    """

    experiment: str
    runs: tuple[str, ...]
    status: str
    failed: bool = False
    window: Window | None = None
    metric: str | None = None
    value: float | None = None
    unit: str | None = None
    step_time_s: float | None = None
    reference: Reference | None = None
    ratio: float | None = None
    ratio_interval: tuple[float, float] | None = None
    repeats: int | None = None
    same_window: bool | None = None
    differences: tuple[str, ...] = ()
    verdict: str | None = None
    verdict_reason: str | None = None
    configuration: Configuration | None = None


def is_bad(row: Comparison) -> bool:
    """Whether it ends a command with exit code 3."""
    return row.failed or row.verdict in BAD


def summary(rows: Iterable[Comparison]) -> dict[str, int]:
    """The number of configurations with each verdict; those without one are counted by their status."""
    return dict(sorted(Counter(row.verdict or row.status for row in rows).items()))


def to_data(rows: Sequence[Comparison], against: str) -> dict[str, Any]:
    """Plain data: what ``compare --format json`` prints."""
    return {"against": against, "comparisons": [typed.to_data(row) for row in rows], "summary": summary(rows)}


def with_published(judged: Sequence[Result]) -> list[Comparison]:
    """The rows of results that are judged against published figures."""
    return [
        _row(
            pool,
            reference=verdict.reference,
            ratio=verdict.pooled_ratio,
            ratio_interval=verdict.ratio_interval,
            repeats=verdict.repeats,
            same_window=verdict.same_window,
            verdict=verdict.word,
            verdict_reason=verdict.reason or pool[0].reason,
        )
        for pool in _pools(judged)
        for verdict in [pool[0].verdict]
    ]


def with_measured(ours: Sequence[Result], theirs: Sequence[Result], name: str) -> list[Comparison]:
    """The rows of ``ours`` against the valid runs among ``theirs``, which is called ``name``."""
    others = [pool for pool in _pools(theirs) if measures(pool[0])]
    without = [[result] for result in theirs if not measures(result)]
    return [_against(pool, others, without, name) for pool in _pools(ours)]


def judged_against(ours: Sequence[Result], theirs: Sequence[Result], name: str) -> list[Result]:
    """``ours`` in their order, each with the verdict on its row of ``with_measured``.

    What differs in its settings and in where both ran is part of the verdict. A run without a valid measurement has the
    verdict that it has without a reference, or none.
    """
    found: dict[int, Result] = {}
    for pool, row in zip(_pools(ours), with_measured(ours, theirs, name), strict=True):
        for result in pool:
            found[id(result)] = replace(result, verdict=_verdict_of(result, row))
    return [found[id(result)] for result in ours]


def _verdict_of(result: Result, row: Comparison) -> Verdict:
    reference = row.reference
    own = None if reference is None else result.metrics.measured.get(reference.metric)
    ratio = None
    if row.ratio is not None and reference is not None and own is not None:
        ratio = reference.value / own.mean if own.better == LOWER else own.mean / reference.value
    return Verdict(
        word=row.verdict,
        reason=row.verdict_reason if row.verdict is not None else None,
        reference=reference,
        ratio=ratio,
        repeats=row.repeats,
        pooled_ratio=row.ratio,
        ratio_interval=row.ratio_interval,
        same_window=row.same_window,
        differences=row.differences,
    )


def without(ours: Sequence[Result], accepted: Iterable[Result]) -> list[Result]:
    """Those of ``ours`` that are not among the ``accepted`` ones; all of them where nothing else is left.

    A run of a baseline is not compared with itself.
    """
    known = {result.identity.run for result in accepted if result.identity.run is not None}
    return [result for result in ours if result.identity.run not in known] or list(ours)


def measures(result: Result) -> bool:
    """Whether it has a valid value of its headline metric, which others can be compared with."""
    loads = result.identity.configuration is not None and result.identity.configuration.loads
    return result.status == SUCCESS and result.metrics.value is not None and why_invalid(result) is None and not loads


def _pools(results: Iterable[Result]) -> list[list[Result]]:
    """The valid repeats of each configuration; any other run alone."""
    found: dict[Hashable, list[Result]] = {}
    for number, result in enumerate(results):
        found.setdefault(pool_key(result) if measures(result) else number, []).append(result)
    return list(found.values())


def _row(pool: Sequence[Result], **values: Any) -> Comparison:
    first, reference = pool[0], values.get("reference")
    name = first.metrics.headline if reference is None else reference.metric
    together, times, own = pooled(pool, name), pooled(pool, STEP_TIME), first.metrics.measured.get(name)
    return Comparison(
        experiment=first.identity.experiment,
        runs=tuple(result.identity.name for result in pool),
        status=first.status,
        failed=first.is_failure,
        window=first.metrics.window,
        metric=None if own is None else name,
        value=together and together.mean,
        unit=None if own is None else own.unit,
        step_time_s=times and times.mean,
        configuration=first.identity.configuration,
        **values,
    )


def _against(pool: _Pool, others: Sequence[_Pool], without: Sequence[_Pool], name: str) -> Comparison:
    first = pool[0]
    if first.status != SUCCESS or first.metrics.value is None:
        return _row(pool, verdict_reason=first.reason)
    if (why := why_invalid(first)) is not None:
        return _row(pool, verdict=INVALID, verdict_reason=why)
    if first.identity.configuration is None:
        return _row(pool, verdict=NO_REFERENCE, verdict_reason=not_described(first))
    if first.identity.configuration.loads:
        return _row(pool, verdict=NO_REFERENCE, verdict_reason=LOADS)
    found, _ = _alike(first.identity.configuration, others)
    if not found:
        why = _why_nothing(first.identity.configuration, others, without, name)
        return _row(pool, verdict=NO_REFERENCE, verdict_reason=why)
    distances = [_distance(first.identity.configuration, first.metrics.window, other[0]) for other in found]
    nearest = [other for other, distance in zip(found, distances, strict=True) if distance == min(distances)]
    if len(nearest) > 1:
        several = f"{name} has runs of it with {len(nearest)} settings; choose the runs to compare with"
        return _row(pool, verdict=NO_REFERENCE, verdict_reason=several)
    theirs = nearest[0][0].metrics.measured.get(first.metrics.headline)
    if theirs is None or theirs.unit != first.metrics.value.unit:
        other = f"{name} did not measure {first.metrics.headline} in {first.metrics.value.unit}"
        return _row(pool, verdict=NO_REFERENCE, verdict_reason=other)
    return _compared(pool, nearest[0], name)


def _alike(configuration: Configuration, others: Sequence[_Pool]) -> tuple[list[_Pool], str]:
    """Those that can be compared with it; where there are none, what is missing."""
    known = [pool for pool in others if pool[0].identity.configuration is not None]
    return comparable(configuration, known, lambda pool, field: getattr(pool[0].identity.configuration, field))


def _why_nothing(configuration: Configuration, others: Sequence[_Pool], without: Sequence[_Pool], name: str) -> str:
    """Why the other side has nothing comparable: what is missing, or why the runs ``without`` a figure have none."""
    found, _ = _alike(configuration, without)
    if found:
        settled_last = sorted((result for (result,) in found), key=lambda result: not result.is_open)
        why = [f"{result.identity.name} {_state(result)}" for result in settled_last]
        return "; ".join([*why[:_MOST], *([f"and {len(why) - _MOST} more"] if len(why) > _MOST else [])])
    _, missing = _alike(configuration, others or without)
    return f"{name} has no runs {missing}"


NO_FIGURE = {FAILED: "failed", CANCELLED: "was cancelled", UNKNOWN: "has an unknown result"}


def _state(result: Result) -> str:
    reason = f" ({result.reason})" if result.reason else ""
    if result.status in (RUNNING, PENDING):
        return f"has not ended{reason}: compare again later"
    if words := NO_FIGURE.get(result.status):
        return f"{words}{reason}: choose a run that succeeded"
    return f"is invalid ({why_invalid(result) or LOADS}): choose another run"


def _distance(configuration: Configuration, window: Window | None, other: Result) -> int:
    assert other.identity.configuration is not None
    return len(differences(configuration, other.identity.configuration)) + (window != other.metrics.window)


def _compared(pool: Sequence[Result], other: Sequence[Result], name: str) -> Comparison:
    first, theirs = pool[0], other[0]
    assert first.identity.configuration is not None
    assert theirs.identity.configuration is not None
    metric = metric_of(first)
    reached = pooled(other, metric.name)
    assert reached is not None
    alone = len(pool) == len(other) == 1
    noise = noise_of_pair(*(one.metrics.measured[metric.name] for one in (first, theirs))) if alone else None
    values = [one.metrics.measured[metric.name].mean for one in pool if metric.name in one.metrics.measured]
    judgement = judge_values(values, reached, metric, noise)
    reference = Reference(
        release=name,
        window="" if theirs.metrics.window is None else str(theirs.metrics.window),
        step_time_s=reached.mean if metric.name == STEP_TIME else None,
        source=", ".join(result.identity.name for result in other),
        metric=metric.name,
        value=reached.mean,
        unit=metric.unit,
    )
    notes = [judgement.reason]
    if (len(pool) == 1) != (len(other) == 1):
        notes.append("the interval includes only the spread of the repeats, not that of the single run")
    same = first.metrics.window == theirs.metrics.window
    if not same:
        notes.append("the windows of the two differ")
    configurations = first.identity.configuration, theirs.identity.configuration
    changed = (*differences(*configurations), *differing_facts(first.log, theirs.log))
    return _row(
        pool,
        reference=reference,
        ratio=judgement.ratio,
        ratio_interval=judgement.interval,
        repeats=judgement.repeats,
        same_window=same,
        differences=changed,
        verdict=judgement.verdict,
        verdict_reason="; ".join(notes),
    )
