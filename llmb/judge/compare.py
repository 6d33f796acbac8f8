# SPDX-License-Identifier: Apache-2.0
"""Compare results with other results or published figures: a row for each configuration. Pure."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

from llmb.contract.metrics import STEP_TIME, TRAINING_BY_NAME, Bounds, Measured
from llmb.contract.settings import Settings
from llmb.contract.window import Window
from llmb.core import typed
from llmb.core.grouping import grouped
from llmb.core.node_lists import fold, short_name
from llmb.core.values import dataclass
from llmb.errors import UsageError
from llmb.judge import correctness, far_runs
from llmb.judge.deviation import Deviations
from llmb.judge.differences import differences, differing_facts
from llmb.judge.judge import pool_key, why_invalid, without_session
from llmb.judge.per_metric import (
    Target,
    judge_metrics,
    pair_ratios,
    ratio_of_run,
    relative_steps,
    values_of,
    with_metrics,
)
from llmb.judge.reference import (
    LOADS,
    not_described,
    pooled,
)
from llmb.judge.value import BAD, INCONCLUSIVE, INVALID, NO_REFERENCE
from llmb.measure.columns import SCHEMA_VERSION, verdicts_in_json
from llmb.measure.result import (
    CANCELLED,
    FAILED,
    PENDING,
    RUNNING,
    SUCCESS,
    UNKNOWN,
    MetricVerdict,
    ReferenceValue,
    Result,
    Verdict,
)
from llmb.plan.find_reference import comparable

_Pool = Sequence[Result]  # the repeats of one configuration
_NAMED_RUNS = 2  # at most, without a figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The repeats of one configuration and their reference. A run that failed has its own row."""

    experiment: str
    runs: tuple[str, ...]  #: ids, or the paths of logs without one
    status: str
    failed: bool = False  #: as ``Result.is_failure``
    window: Window | None = None
    metric: str | None = None  #: the metric that both sides are compared by
    value: float | None = None  #: the mean of all runs, in ``unit``
    unit: str | None = None
    step_time_s: float | None = None  #: of training, whichever metric is compared
    reference: ReferenceValue | None = None  #: the other side, whose name is its ``release``
    ratio: float | None = None
    ratio_interval: tuple[float, float] | None = None
    repeats: int | None = None
    same_window: bool | None = None
    differences: tuple[str, ...] = ()  #: settings that differ although both can be compared
    verdict: str | None = None
    verdict_reason: str | None = None
    configuration: Settings | None = None
    metrics: Mapping[str, MetricVerdict] = field(default_factory=dict)  #: each judged one
    session: str | None = None  #: the id of the session of the runs
    nodelist: str | None = None  #: the nodes of its runs, as ``n[1-4]``, if their logs show them
    reference_nodelist: str | None = None  #: the nodes of the other side's runs
    #: Why the loss of a training was not compared, None if it was.
    loss_not_compared: str | None = None
    #: The limits of ``metric``, None for the usual ones.
    bounds: Bounds | None = field(default=None, metadata=typed.INTERNAL)

    @property
    def faults(self) -> tuple[str, ...]:
        """As ``Verdict.faults``."""
        return Verdict(metrics=self.metrics).faults

    @property
    def is_on_other_nodes(self) -> bool:
        """True if both sides are known to have run on different nodes."""
        return (
            None not in (self.nodelist, self.reference_nodelist)
            and self.nodelist != self.reference_nodelist
        )


def is_bad(row: Comparison) -> bool:
    """Return True if the row ends a command with exit code 3."""
    return row.failed or row.verdict in BAD


def summary(rows: Iterable[Comparison]) -> dict[str, int]:
    """Count the configurations by verdict, or by status if they have none."""
    return dict(sorted(Counter(row.verdict or row.status for row in rows).items()))


def to_data(rows: Sequence[Comparison], against: str) -> dict[str, Any]:
    """Return plain data: the output of ``compare --format json``."""
    return {
        "schema_version": SCHEMA_VERSION,
        "against": against,
        "comparisons": [
            {**typed.to_data(row), "metrics": verdicts_in_json(row.metrics)} for row in rows
        ],
        "summary": summary(rows),
    }


def with_published(judged: Sequence[Result]) -> list[Comparison]:
    """Return the rows of results that were judged against published figures."""
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


def with_measured(
    results: Sequence[Result], reference_results: Sequence[Result], name: str
) -> list[Comparison]:
    """Return the rows of ``results`` against the valid ``reference_results`` of ``name``."""
    pools = _pools(results)
    # A reference is one side, also if its runs were accepted from several sessions.
    reference_pools = _pools(reference_results, of_one_side=True)
    candidates = [pool for pool in reference_pools if measures(pool[0])]
    unmeasured = [[result] for result in reference_results if not measures(result)]
    sides = [_other_side(pool, candidates, unmeasured, name) for pool in pools]
    deviations = _deviations(pools, sides)
    return [
        side if isinstance(side, Comparison) else _compared(pool, side, name, deviations)
        for pool, side in zip(pools, sides, strict=True)
    ]


def with_pairs(results: Sequence[Result]) -> tuple[str, list[Comparison]] | None:
    """Return the name of side A, and the rows of side B against it.

    None unless the runs in pairs are of one submission with ``--ab``.
    """
    pairs = [(result.identity.pair, result) for result in results if result.identity.pair]
    names = {pair.side: str(pair) for pair, _ in pairs}
    submissions = {(result.identity.session, pair.setting) for pair, result in pairs}
    if len(names) < 2 or len(submissions) > 1:
        return None
    sides = {side: [result for pair, result in pairs if pair.side == side] for side in names}
    return names["A"], with_measured(sides["B"], sides["A"], names["A"])


def _deviations(
    pools: Sequence[_Pool], sides: Sequence[Comparison | _Pool]
) -> dict[str, Deviations]:
    """Return the deviations of each metric over all configurations, each with both sides."""
    pairs = [
        (pool, side)
        for pool, side in zip(pools, sides, strict=True)
        if not isinstance(side, Comparison)
    ]
    names = {name for pair in pairs for name in _common_metrics(*pair)}
    return {
        name: Deviations([_values(*sides, name) for sides in _each_once(pairs)]) for name in names
    }


def _each_once(pairs: Sequence[tuple[_Pool, _Pool]]) -> list[tuple[_Pool, _Pool]]:
    """Return both sides of each configuration, with every side once.

    Several configurations, such as those of a sweep, may be compared with the same runs, which say
    only once how much they deviate: beside the runs with their settings, else by themselves.
    """
    sides: list[tuple[_Pool, _Pool]] = []
    for same_side in grouped((id(pair[1]), pair) for pair in pairs).values():
        side = same_side[0][1]
        alike = [pool for pool, _ in same_side if _settings_key(pool) == _settings_key(side)]
        alone = [pool for pool, _ in same_side]
        (partner,) = next((pools for pools in (alike, alone) if len(pools) == 1), [None])
        sides += [(pool, side if pool is partner else ()) for pool, _ in same_side]
        sides += [] if partner is not None else [((), side)]
    return sides


def _settings_key(pool: _Pool) -> Hashable:
    configuration = pool[0].identity.configuration
    return None if configuration is None else configuration.key


def _values(pool: _Pool, reference_pool: _Pool, metric: str) -> list[list[float]]:
    """Return what deviates from run to run: the values of both sides, or the ratios of pairs."""
    ratios = pair_ratios(pool, reference_pool, metric)
    return [ratios] if ratios else [values_of(side, metric) for side in (pool, reference_pool)]


def _common_metrics(pool: _Pool, reference_pool: _Pool) -> list[str]:
    """Return the judged metrics that both sides measured in the same unit, the headline first.

    The metrics of training follow from each other, so that its headline is enough.
    """
    headline = pool[0].metrics.headline
    ours, theirs = _measured_by_any(pool), _measured_by_any(reference_pool)
    names = [headline, *(name for name in ours if name not in TRAINING_BY_NAME)]
    return [
        name
        for name in dict.fromkeys(names)
        if (measured := ours.get(name)) is not None
        and (measured.judged or name == headline)
        and (reference := theirs.get(name)) is not None
        and reference.unit == measured.unit
        and (name == headline or _is_above_zero(reference_pool, name))
    ]


def _is_above_zero(pool: _Pool, metric: str) -> bool:
    """Return True unless a run of ``pool`` measured 0: nothing has a ratio to it."""
    measured = [run.metrics.measured.get(metric) for run in pool]
    return all(value.mean > 0 for value in measured if value is not None)


def _measured_by_any(pool: _Pool) -> dict[str, Measured]:
    """Return each metric that a run of ``pool`` measured, with the value of the first that did."""
    return {name: value for run in reversed(pool) for name, value in run.metrics.measured.items()}


def judged_against(
    results: Sequence[Result], reference_results: Sequence[Result], name: str
) -> list[Result]:
    """Return ``results`` in their order, each with the verdict on its row of ``with_measured``.

    Different settings and conditions (clock, driver, network) are part of the verdict. A run
    without a valid measurement keeps the verdict that it has without a reference, or none.
    """
    judged: dict[int, Result] = {}
    for pool, row in zip(
        _pools(results), with_measured(results, reference_results, name), strict=True
    ):
        for result in pool:
            judged[id(result)] = replace(result, verdict=_verdict_of(result, row))
    return [judged[id(result)] for result in results]


def _verdict_of(result: Result, row: Comparison) -> Verdict:
    return Verdict(
        word=row.verdict,
        reason=row.verdict_reason if row.verdict is not None else None,
        reference=row.reference,
        ratio=ratio_of_run(result, row.reference, row.ratio),
        repeats=row.repeats,
        pooled_ratio=row.ratio,
        ratio_interval=row.ratio_interval,
        same_window=row.same_window,
        differences=row.differences,
        metrics=row.metrics,
        loss_not_compared=row.loss_not_compared,
    )


def without_accepted(
    results: Sequence[Result], accepted: Iterable[Result], baseline: str
) -> list[Result]:
    """Return the ``results`` that are not among the ``accepted`` ones of ``baseline``.

    A run is not compared with itself. Raises UsageError if all of them are accepted.
    """
    later = without_runs_of(accepted, results)
    if results and not later:
        runs = f"all {len(results)} runs are" if len(results) > 1 else "the run is"
        raise UsageError(
            f"nothing to compare: {runs} in {baseline}",
            hint="submit the same jobs again: the new runs are compared with the baseline",
            code="baseline-same-runs",
            value=baseline,
        )
    return later


def without_runs_of(omitted: Iterable[Result], results: Iterable[Result]) -> list[Result]:
    """Return the ``results`` of other runs than ``omitted``; those without an id all remain."""
    omitted_runs = {result.identity.run for result in omitted} - {None}
    return [result for result in results if result.identity.run not in omitted_runs]


def accepted_step_time(
    configuration: Settings, accepted: Iterable[Result]
) -> tuple[float, tuple[str, ...]] | None:
    """Return the mean step time in seconds of the accepted runs that ``configuration`` repeats.

    Its second value are the settings in which they differ. None if nothing accepted is comparable,
    or if several configurations are equally near.
    """
    measured = _measured_pools(accepted)
    by_distance = grouped(
        (_distance(configuration, None, pool[0]), pool)
        for pool in _alike(configuration, measured)[0]
    )
    nearest = by_distance[min(by_distance)] if by_distance else []
    spread = pooled(nearest[0], STEP_TIME) if len(nearest) == 1 else None
    if spread is None:
        return None
    accepted_configuration = nearest[0][0].identity.configuration
    assert accepted_configuration is not None
    return spread.mean, tuple(differences(configuration, accepted_configuration))


def is_comparable(results: Iterable[Result], accepted: Iterable[Result]) -> bool:
    """Return True if one of ``results`` repeats a configuration that was ``accepted``."""
    measured = _measured_pools(accepted)
    configurations = {  # repeats share them
        id(result.identity.configuration): result.identity.configuration
        for result in results
        if measures(result)
    }
    return any(
        configuration is not None and _alike(configuration, measured)[0]
        for configuration in configurations.values()
    )


def _measured_pools(results: Iterable[Result]) -> list[_Pool]:
    return [pool for pool in _pools(results) if measures(pool[0])]


def measures(result: Result) -> bool:
    """Return True if the result has a valid value of its headline metric to compare others with."""
    loads = result.identity.configuration is not None and result.identity.configuration.loads
    return (
        result.status == SUCCESS
        and result.metrics.value is not None
        and why_invalid(result) is None
        and not loads
    )


def _pools(results: Iterable[Result], *, of_one_side: bool = False) -> list[list[Result]]:
    """Group the valid repeats of each configuration. Any other run is a group of its own.

    Runs ``of_one_side`` are repeats across sessions.
    """
    pools: dict[Hashable, list[Result]] = grouped(
        (
            pool_key(without_session(result) if of_one_side else result)
            if measures(result)
            else number,
            result,
        )
        for number, result in enumerate(results)
    )
    return list(pools.values())


def _row(pool: Sequence[Result], **values: Any) -> Comparison:
    first, reference = pool[0], values.get("reference")
    name = first.metrics.headline if reference is None else reference.metric
    together, times, measured = (
        pooled(pool, name),
        pooled(pool, STEP_TIME),
        first.metrics.measured.get(name),
    )
    return Comparison(
        experiment=first.identity.experiment,
        runs=tuple(result.identity.name for result in pool),
        status=first.status,
        failed=first.is_failure,
        window=first.metrics.window,
        metric=None if measured is None else name,
        value=together and together.mean,
        unit=None if measured is None else measured.unit,
        bounds=None if measured is None else measured.bounds,
        step_time_s=times and times.mean,
        configuration=first.identity.configuration,
        session=first.identity.session,
        nodelist=_nodelist_of(pool),
        **values,
    )


def _nodelist_of(results: Iterable[Result]) -> str | None:
    """Return the list of all nodes that the logs of ``results`` show, without domains."""
    names = {short_name(host) for result in results if result.log for host in result.log.hosts}
    return fold(sorted(names)) if names else None


def _other_side(
    pool: _Pool, candidates: Sequence[_Pool], unmeasured: Sequence[_Pool], name: str
) -> Comparison | _Pool:
    """Return the runs that ``pool`` is compared with, or its row if there are none."""
    first = pool[0]
    if first.status != SUCCESS or first.metrics.value is None:
        return _row(pool, verdict_reason=first.reason)
    if (invalid := why_invalid(first)) is not None:
        return _row(pool, verdict=INVALID, verdict_reason=invalid)
    no_reference = partial(_row, pool, verdict=NO_REFERENCE)
    configuration = first.identity.configuration
    if configuration is None:
        return no_reference(verdict_reason=not_described(first))
    if configuration.loads:
        return no_reference(verdict_reason=LOADS)
    matches, _ = _alike(configuration, candidates)
    if not matches:
        missing = _why_nothing(configuration, candidates, unmeasured, name)
        return no_reference(verdict_reason=missing)
    distances = [_distance(configuration, first.metrics.window, match[0]) for match in matches]
    nearest = [
        match
        for match, distance in zip(matches, distances, strict=True)
        if distance == min(distances)
    ]
    if len(nearest) > 1:
        several = (
            f"{name} has runs of it with {len(nearest)} settings; choose the runs to compare with"
        )
        return no_reference(verdict_reason=several)
    measured = nearest[0][0].metrics.measured.get(first.metrics.headline)
    if measured is None or measured.unit != first.metrics.value.unit:
        headline, unit = first.metrics.headline, first.metrics.value.unit
        if measured is not None:
            units = f"in {measured.unit or 'no unit'}, not {unit or 'no unit'}"
            return no_reference(verdict_reason=f"{name} measured {headline} {units}")
        metric = f"{headline} in {unit}"
        return no_reference(verdict_reason=f"{name} did not measure {metric}")
    return nearest[0]


def _alike(configuration: Settings, candidates: Sequence[_Pool]) -> tuple[list[_Pool], str]:
    """Return the comparable candidates and, if there are none, what is missing."""
    described = [pool for pool in candidates if pool[0].identity.configuration is not None]
    return comparable(
        configuration, described, lambda pool, field: getattr(pool[0].identity.configuration, field)
    )


def _why_nothing(
    configuration: Settings,
    candidates: Sequence[_Pool],
    unmeasured: Sequence[_Pool],
    name: str,
) -> str:
    """Return why the other side has nothing comparable, or why its comparable runs lack values."""
    matches, _ = _alike(configuration, unmeasured)
    if matches:
        ended_last = sorted(
            (result for (result,) in matches), key=lambda result: not result.is_open
        )
        states = [f"{result.identity.name} {_state(result)}" for result in ended_last]
        return "; ".join(
            [
                *states[:_NAMED_RUNS],
                *([f"and {len(states) - _NAMED_RUNS} more"] if len(states) > _NAMED_RUNS else []),
            ]
        )
    _, missing = _alike(configuration, candidates or unmeasured)
    return f"{name} has no runs {missing}"


NO_FIGURE = {FAILED: "failed", CANCELLED: "was cancelled", UNKNOWN: "has an unknown result"}


def _state(result: Result) -> str:
    reason = f" ({result.reason})" if result.reason else ""
    if result.status in (RUNNING, PENDING):
        return f"has not ended{reason}: compare again later"
    if words := NO_FIGURE.get(result.status):
        return f"{words}{reason}: choose a run that succeeded"
    return f"is invalid ({why_invalid(result) or LOADS}): choose another run"


def _distance(configuration: Settings, window: Window | None, candidate: Result) -> int:
    assert candidate.identity.configuration is not None
    return len(differences(configuration, candidate.identity.configuration)) + (
        window != candidate.metrics.window
    )


def _compared(
    pool: _Pool, reference_pool: _Pool, name: str, deviations: Mapping[str, Deviations]
) -> Comparison:
    first, first_reference = pool[0], reference_pool[0]
    assert first.identity.configuration is not None
    assert first_reference.identity.configuration is not None
    targets = {
        metric: replace(
            _target(reference_pool, metric, name),
            pair_ratios=tuple(pair_ratios(pool, reference_pool, metric)),
        )
        for metric in _common_metrics(pool, reference_pool)
    }
    verdicts = judge_metrics(pool, targets, deviations)
    verdict = correctness.with_checks(
        with_metrics(first, Verdict(), verdicts), correctness.check(pool, reference_pool, name)
    )
    notes = [verdict.reason or ""]
    if verdict.word == INCONCLUSIVE:
        sides = (pool, reference_pool)
        notes += filter(None, dict.fromkeys(far_runs.in_words(side) for side in sides))
    same_window = first.metrics.window == first_reference.metrics.window
    if not same_window:
        notes.append("the windows of the two differ")
    configurations = first.identity.configuration, first_reference.identity.configuration
    changed = (*differences(*configurations), *differing_facts(first.log, first_reference.log))
    return _row(
        pool,
        reference=verdict.reference,
        ratio=verdict.pooled_ratio,
        ratio_interval=verdict.ratio_interval,
        repeats=verdict.repeats,
        same_window=same_window,
        differences=changed,
        verdict=verdict.word,
        verdict_reason="; ".join(notes),
        # of all runs together: ``with_metrics`` has the ratios of one
        metrics={
            metric: judged
            if judged.pooled_ratio is None
            else replace(judged, ratio=judged.pooled_ratio)
            for metric, judged in verdict.metrics.items()
        },
        loss_not_compared=verdict.loss_not_compared,
        reference_nodelist=_nodelist_of(reference_pool),
    )


def _target(reference_pool: _Pool, metric: str, name: str) -> Target:
    """Return the runs of the other side, called ``name``, as what a metric is compared with."""
    first = reference_pool[0]
    reached = pooled(reference_pool, metric)
    assert reached is not None
    reference = ReferenceValue(
        release=name,
        window=str(first.metrics.window or ""),
        step_time_s=reached.mean if metric == STEP_TIME else None,
        source=", ".join(result.identity.name for result in reference_pool),
        metric=metric,
        value=reached.mean,
        unit=_measured_by_any(reference_pool)[metric].unit,
    )
    values = tuple(values_of(reference_pool, metric))
    steps = tuple(relative_steps(reference_pool, metric))
    return Target(reference=reference, values=values, exact=False, steps=steps)
