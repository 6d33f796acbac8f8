# SPDX-License-Identifier: Apache-2.0
"""Scaling: what each scale measured relative to the smallest one. Pure.

Training: the throughput per GPU, so this is the scaling efficiency. For any other metric llmb does not know whether it
grows with the GPUs, as a total does, or stays, as a bus bandwidth does: the value itself is compared.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from llmb.results.description import Configuration
from llmb.results.reason import TITLE, distinguishing, parameters_in_words, settings_of
from llmb.results.result import Result
from llmb.stats.measure import tokens_per_second
from llmb.stats.metrics import STEP_TIME, TOKENS_PER_SECOND_PER_GPU, TRAINING_BY_NAME, MetricSpec, heading, shown
from llmb.stats.statistics import Spread
from llmb.text.tables import Column
from llmb.verdict.compare import measures
from llmb.verdict.judge import pool_key
from llmb.verdict.reference import metric_of, pool, pooled, ratio_of

Kind = Literal["weak", "strong"]
WEAK: Kind = "weak"
STRONG: Kind = "strong"
RATE = TRAINING_BY_NAME[TOKENS_PER_SECOND_PER_GPU]  # what scaling of training is about


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


COLUMNS = (
    Column(key="workload"),
    Column(key="size"),
    Column(key="dtype"),
    Column(key="gpu_type", heading="GPU"),
    Column(key="parameters"),
    Column(key="scaling"),
    Column(key="scale", heading="GPUs", right=True),
    Column(key="gbs", heading="batch", right=True, optional=True),
    Column(key="n", heading="runs", right=True, optional=True),
    Column(key="step_time_s", heading="step (s)", show="{:.3f}".format, right=True, optional=True),
    Column(key="metric"),
    Column(key="value", right=True),
    Column(key="unit"),
    Column(key="tokens_per_second_per_gpu", heading="tok/s/GPU", show="{:.1f}".format, right=True),
    Column(key="relative", heading="% of smallest", show=percent, right=True),
    Column(key="efficiency", heading="eff. %", show=percent, right=True),
    Column(key="settings"),
)


class Series(NamedTuple):
    """What the points of one line have in common: the batch (per GPU for weak scaling), and every other setting.

    ``kind``: None where no model is trained; ``gpus_per_node``: of its points on several nodes, None without any.
    """

    kind: Kind | None
    batch: Fraction
    settings: Hashable
    gpus_per_node: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One scale of a configuration: the mean ``value`` of ``metric`` in its ``n`` runs, relative to another scale.

    ``relative``: to the smallest scale measured, better above 1. For training it is the scaling efficiency: ``value``
    is the throughput of one GPU at ``step_time_s``; ``weak``: the batch grows with the GPUs; ``strong``: it is
    constant. ``values``: that of each run. ``settings``: how the series differs from others of the same configuration.
    """

    kind: Kind | None
    configuration: Configuration
    n: int
    metric: MetricSpec
    value: float
    relative: float
    series: Series
    step_time_s: float | None = None
    settings: str = ""
    values: tuple[float, ...] = ()


_GROWS = (*TITLE, "gbs", "parameters")  # what may differ between the points of a series, and what every row shows
_MODEL = ("workload", "model_size", "dtype", "gpu_type", "framework", "seq_length", "num_layers")


def scaling_points(results: Iterable[Result]) -> list[Point]:
    """The points of each configuration that was measured at two scales or more with the same settings.

    By configuration, kind and settings, then by ascending scale.
    """
    found = _series([result for result in results if result.identity.configuration is not None and measures(result)])
    several = [(series, scales) for series, scales in found.items() if len(scales) > 1]
    titles = [_title(series, scales) for series, scales in several]
    largest = [scales[max(scales)][0] for _, scales in several]
    settings = [
        settings_of(one.identity.configuration, window=one.metrics.window, steps=one.metrics.steps, without=_GROWS)
        for one in largest
    ]
    notes = distinguishing(list(zip(titles, settings, strict=True)))
    ordered = sorted(zip(titles, notes, several, strict=True), key=lambda one: one[:2])
    return [point for _, note, (series, scales) in ordered for point in _points(series, scales, note)]


def _series(measured: Sequence[Result]) -> dict[Series, dict[int, list[Result]]]:
    """The results of each series by scale; a run on one node belongs to each size of node that it fits."""
    bases = [(base, result) for result, own in zip(measured, _bases(measured), strict=True) for base in own]
    wide: dict[Series, set[int]] = {}
    for base, result in bases:
        if (own := _per_node(result)) is not None:
            wide.setdefault(base, set()).add(own)
    found: dict[Series, dict[int, list[Result]]] = {}
    for base, result in bases:
        configuration, own = result.identity.configuration, _per_node(result)
        assert configuration is not None
        fits: set[int | None] = {own}
        if own is None:
            fits = {each for each in wide.get(base, ()) if configuration.scale <= each} or {None}
        for each in fits:
            found.setdefault(base._replace(gpus_per_node=each), {}).setdefault(configuration.scale, []).append(result)
    return found


def _kinds(result: Result) -> tuple[Kind | None, ...]:
    own = result.identity.configuration
    return (WEAK, STRONG) if own is not None and own.gbs is not None else (None,)


def _bases(measured: Sequence[Result]) -> list[list[Series]]:
    """The ``_base`` of each kind for each result, made once for all repeats of a configuration."""
    keys = [(pool_key(result), result.metrics.headline) for result in measured]
    made = {
        key: [_base(kind, result) for kind in _kinds(result)]
        for key, result in dict(zip(keys, measured, strict=True)).items()
    }
    return [made[key] for key in keys]


def _base(kind: Kind | None, result: Result) -> Series:
    """Equal for results that differ only in the scale, and in a batch that grows with it (weak) or is constant."""
    own = result.identity.configuration
    assert own is not None
    batch = Fraction(own.gbs or 0, own.scale if kind == WEAK else 1)
    alike = replace(own, scale=0, gbs=0, gpus_per_node=None)
    key = pool_key(replace(result, identity=replace(result.identity, configuration=alike)))
    return Series(kind, batch, (key, result.metrics.headline))


def settings(result: Result) -> frozenset[Hashable]:
    """The ``settings`` of every series that a result with a configuration may belong to."""
    return frozenset(_base(kind, result).settings for kind in _kinds(result))


def _per_node(result: Result) -> int | None:
    """GPUs per node of a run on several nodes; on one node they follow from the scale."""
    own = result.identity.configuration
    several = own is not None and own.gpus_per_node is not None and own.scale > own.gpus_per_node
    return own.gpus_per_node if own is not None and several else None


def _title(series: Series, scales: Mapping[int, Sequence[Result]]) -> tuple[Any, ...]:
    own = scales[max(scales)][0].identity.configuration
    words = (str(getattr(own, name)) for name in _MODEL)
    return (*words, parameters_in_words(own.parameters if own else {}), series.kind or "", series.batch)


def _points(series: Series, scales: Mapping[int, Sequence[Result]], note: str) -> list[Point]:
    found: list[Point] = []
    for _, own in sorted(scales.items()):
        metric = metric_of(own[0]) if series.kind is None else RATE
        values, configuration = _values(series, own), own[0].identity.configuration
        assert configuration is not None
        together, times = pool(values, metric.name), pooled(own, STEP_TIME)
        smallest = Spread(found[0].value if found else together.mean, 0.0, 1)
        found.append(
            Point(
                kind=series.kind,
                configuration=configuration,
                n=together.n,
                metric=metric,
                value=together.mean,
                relative=ratio_of(together, smallest, metric.better).value,
                series=series,
                step_time_s=times and times.mean,
                settings=note,
                values=tuple(sorted(values)),
            )
        )
    return found


def _values(series: Series, runs: Sequence[Result]) -> list[float]:
    """What each run measured: of training, the tokens per second of one GPU."""
    if series.kind is None:
        return [run.metrics.value.mean for run in runs if run.metrics.value is not None]
    found = []
    for run in runs:
        own, time = run.identity.configuration, run.metrics.step_time
        if own is not None and time is not None:
            found.append(tokens_per_second(own.seq_length or 0, own.gbs or 0, time) / own.scale)
    return found


def columns(points: Iterable[Point], fmt: str) -> list[Column]:
    """The columns of their table: all for programs; for people those that have a value in any row."""
    points = list(points)
    if fmt in ("json", "csv"):
        return list(COLUMNS)
    metrics = {point.metric for point in points}
    hidden = {"metric", "value", "relative"} if metrics <= {RATE} else {RATE.name, "efficiency"}
    hidden |= {"unit", "metric"} if len(metrics) == 1 else {"unit"}
    rows = [cells(point, fmt) for point in points]
    empty = {column.key for column in COLUMNS if all(row[column.key] is None for row in rows)}
    empty = empty if rows else {"parameters", "settings"}
    kept = [column for column in COLUMNS if column.key not in hidden | empty]
    return [replace(one, heading=heading(metrics, "value")) if one.key == "value" else one for one in kept]


def cells(point: Point, fmt: str, *, mixed: bool = False) -> dict[str, Any]:
    """One point as a row of COLUMNS; ``mixed``: beside points of other metrics, so the value has its unit."""
    own, training = point.configuration, point.kind is not None
    text = shown(point.value, point.metric.unit if mixed else "")
    return {
        "workload": own.workload,
        "size": own.model_size,
        "dtype": own.dtype,
        "gpu_type": own.gpu_type,
        "parameters": parameters_in_words(own.parameters) or None,
        "scaling": point.kind,
        "scale": own.scale,
        "gbs": own.gbs,
        "n": point.n,
        "step_time_s": point.step_time_s if training else None,
        "metric": point.metric.name,
        "value": point.value if fmt in ("json", "csv") else text,
        "unit": point.metric.unit,
        "tokens_per_second_per_gpu": point.value if training else None,
        "relative": point.relative,
        "efficiency": point.relative if training else None,
        "settings": point.settings or None,
    }


def rows_of(points: Iterable[Point], fmt: str) -> list[dict[str, Any]]:
    points = list(points)
    mixed = len({point.metric for point in points}) > 1
    return [cells(point, fmt, mixed=mixed) for point in points]
