# SPDX-License-Identifier: Apache-2.0
"""Compares a set of results with another set, or with what was published: a row for each configuration. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from llmb import typed
from llmb.interval import spread
from llmb.measure import Window
from llmb.results.configuration import Configuration
from llmb.results.facts import LogFacts
from llmb.results.result import FAILED, SUCCESS, Reference, Result
from llmb.verdict.judge import LOADS, pool_key, why_invalid
from llmb.verdict.reference import SAME, comparable
from llmb.verdict.rules import BAD, INVALID, NO_REFERENCE, Judgement, judge_ratios


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The repeats of one configuration against what they compare with; a run that failed has a row of its own.

    ``runs``: ids, or the logs of runs without one; ``step_time_s``: their mean; ``reference``: the other side's, whose
    ``release`` is its name; ``differences``: settings that differ and still let both be compared.
    """

    experiment: str
    runs: tuple[str, ...]
    status: str
    window: Window | None = None
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
    return row.status == FAILED or row.verdict in BAD


def summary(rows: Iterable[Comparison]) -> dict[str, int]:
    """How many configurations have each verdict; those of runs that failed or go on count under their status."""
    return dict(sorted(Counter(row.verdict or row.status for row in rows).items()))


def to_data(rows: Sequence[Comparison], against: str) -> dict[str, Any]:
    """Plain data: what ``compare --format json`` prints."""
    return {"against": against, "comparisons": [typed.to_data(row) for row in rows], "summary": summary(rows)}


def with_published(judged: Sequence[Result]) -> list[Comparison]:
    """The rows of results that are judged by what was published."""
    rows = []
    for pool in _pools(judged):
        first = pool[0]
        ratios = [result.ratio for result in pool if result.ratio is not None]
        rows.append(
            _row(
                pool, reference=first.reference, ratio=spread(ratios).mean if ratios else None,
                ratio_interval=first.ratio_interval, repeats=first.repeats, same_window=first.same_window,
                verdict=first.verdict, verdict_reason=first.verdict_reason or first.reason,
            )
        )  # fmt: skip
    return rows


def with_measured(ours: Sequence[Result], theirs: Sequence[Result], name: str) -> list[Comparison]:
    """The rows of ``ours`` against the valid runs among ``theirs``, which are called ``name``."""
    others = [pool for pool in _pools(theirs) if measures(pool[0])]
    return [_against(pool, others, name) for pool in _pools(ours)]


def measures(result: Result) -> bool:
    """Whether it has a step time that others can be compared with."""
    loads = result.configuration is not None and result.configuration.loads
    return (
        result.status == SUCCESS and result.time_mean_seconds is not None and why_invalid(result) is None and not loads
    )


def _pools(results: Iterable[Result]) -> list[list[Result]]:
    """The repeats of each configuration that count; any other run by itself."""
    found: dict[Hashable, list[Result]] = {}
    for number, result in enumerate(results):
        found.setdefault(pool_key(result) if measures(result) else number, []).append(result)
    return list(found.values())


def _row(pool: Sequence[Result], **values: Any) -> Comparison:
    first, times = pool[0], _times(pool)
    return Comparison(
        experiment=first.experiment, runs=tuple(result.run or result.path for result in pool), status=first.status,
        window=first.window, step_time_s=spread(times).mean if times else None, configuration=first.configuration,
        **values,
    )  # fmt: skip


def _times(pool: Iterable[Result]) -> list[float]:
    return [result.time_mean_seconds for result in pool if result.time_mean_seconds is not None]


def _against(pool: Sequence[Result], others: Sequence[Sequence[Result]], name: str) -> Comparison:
    first = pool[0]
    if first.status != SUCCESS or first.time_mean_seconds is None:
        return _row(pool, verdict_reason=first.reason)
    if (why := why_invalid(first)) is not None:
        return _row(pool, verdict=INVALID, verdict_reason=why)
    if first.configuration is None:
        return _row(pool, verdict=NO_REFERENCE, verdict_reason="the log does not say what it was")
    if first.configuration.loads:
        return _row(pool, verdict=NO_REFERENCE, verdict_reason=LOADS)
    other, why = _other(first.configuration, first.window, others)
    if other is None:
        return _row(pool, verdict=NO_REFERENCE, verdict_reason=f"{name} has {why}")
    return _compared(pool, other, name)


def _other(
    configuration: Configuration, window: Window | None, others: Sequence[Sequence[Result]]
) -> tuple[Sequence[Result] | None, str]:
    """The comparable pool whose settings differ least; None and the reason where there is none, or no single one."""
    known = [pool for pool in others if pool[0].configuration is not None]
    found, missing = comparable(configuration, known, lambda pool, field: getattr(pool[0].configuration, field))
    if not found:
        return None, f"nothing {missing}"
    distances = [_distance(configuration, window, pool[0]) for pool in found]
    nearest = [pool for pool, distance in zip(found, distances, strict=True) if distance == min(distances)]
    return (nearest[0], "") if len(nearest) == 1 else (None, f"{len(nearest)} settings of it; name the runs")


def _distance(configuration: Configuration, window: Window | None, other: Result) -> int:
    assert other.configuration is not None
    return len(differences(configuration, other.configuration)) + (window != other.window)


def differences(ours: Configuration, theirs: Configuration) -> list[str]:
    """The settings beside those of SAME that differ, as ``tp 4, not 2``."""
    names = (own.name for own in fields(Configuration) if own.name not in (*SAME, "env"))
    found = [(name, getattr(ours, name), getattr(theirs, name)) for name in names]
    variables = sorted({*ours.env, *theirs.env})
    found += [(name, ours.env.get(name), theirs.env.get(name)) for name in variables]
    return [f"{name} {_word(own)}, not {_word(other)}" for name, own, other in found if own != other]


def _said_differently(ours: LogFacts | None, theirs: LogFacts | None) -> list[str]:
    """What both logs say of where they ran, and not the same."""
    if ours is None or theirs is None:
        return []
    said = (
        ("NCCL", ours.nccl_version, theirs.nccl_version),
        ("network", ", ".join(ours.networks), ", ".join(theirs.networks)),
        ("driver", ", ".join(ours.drivers), ", ".join(theirs.drivers)),
        ("GPU", ", ".join(ours.gpu_models), ", ".join(theirs.gpu_models)),
        ("SM clock in MHz", ours.max_sm_clock_mhz, theirs.max_sm_clock_mhz),
        ("power limit in W", ours.power_limit_w, theirs.power_limit_w),
        ("framework", ours.framework, theirs.framework),
    )
    return [f"{what} {_word(own)}, not {_word(other)}" for what, own, other in said if own and other and own != other]


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return "unset" if value is None else str(value)


def _compared(pool: Sequence[Result], other: Sequence[Result], name: str) -> Comparison:
    first, theirs = pool[0], other[0]
    assert first.configuration is not None
    assert theirs.configuration is not None
    rates = spread([1 / time for time in _times(other)])
    judgement = judge_ratios([1 / time / rates.mean for time in _times(pool)], reference=rates)
    reference = Reference(
        release=name, window="" if theirs.window is None else str(theirs.window), step_time_s=1 / rates.mean,
        source=", ".join(result.run or result.path for result in other),
    )  # fmt: skip
    same = first.window == theirs.window
    changed = (*differences(first.configuration, theirs.configuration), *_said_differently(first.log, theirs.log))
    return _row(
        pool, reference=reference, ratio=judgement.ratio, ratio_interval=judgement.interval,
        repeats=judgement.repeats, same_window=same, differences=changed,
        verdict=judgement.verdict, verdict_reason=_reason(judgement, same=same),
    )  # fmt: skip


def _reason(judgement: Judgement, *, same: bool) -> str:
    return judgement.reason + ("" if same else "; the two were measured over different windows")
