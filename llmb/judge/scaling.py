# SPDX-License-Identifier: Apache-2.0
"""Scaling: the values at each number of GPUs relative to the smallest one. Pure.

Training is compared by the throughput per GPU, so this is the scaling efficiency. For any other
metric llmb does not know whether it grows with the GPUs, as a total does, or stays, as a bus
bandwidth does: the value itself is compared.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from llmb.contract.metrics import (
    STEP_TIME,
    TOKENS_PER_SECOND_PER_GPU,
    TRAINING_BY_NAME,
    MetricSpec,
    heading,
    shown,
)
from llmb.contract.settings import Settings
from llmb.contract.window import tokens_per_second
from llmb.core.grouping import grouped
from llmb.core.tables import Column
from llmb.core.values import dataclass
from llmb.judge.compare import measures
from llmb.judge.judge import pool_key
from llmb.judge.reference import metric_of, pool, pooled, relative
from llmb.measure.result import Result
from llmb.measure.result_notes import TITLE, distinguishing, parameters_in_words, settings_of
from llmb.measure.statistics import Spread

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
    """The settings that the points of one line have in common."""

    kind: Kind | None  #: None if no model is trained
    batch: Fraction  #: per GPU for weak scaling
    settings: Hashable  #: every other setting
    gpus_per_node: int | None = None  #: of its points on several nodes, None without any


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPoint:
    """A configuration at one number of GPUs, relative to the smallest number measured."""

    kind: Kind | None  #: weak: the batch grows with the GPUs, strong: it is constant
    configuration: Settings
    n: int  #: runs
    metric: MetricSpec
    value: float  #: the mean of ``metric``. For training: tokens per second of one GPU
    relative: float  #: better above 1. For training: the scaling efficiency
    series: Series
    step_time_s: float | None = None
    settings: str = ""  #: the differences from other series of the same configuration
    values: tuple[float, ...] = ()  #: of each run


# what may differ between the points of a series, and what every row shows
_GROWS = (*TITLE, "gbs", "parameters")
_MODEL = ("workload", "model_size", "dtype", "gpu_type", "framework", "seq_length", "num_layers")


def scaling_points(results: Iterable[Result]) -> list[ScalingPoint]:
    """Return the points of configurations measured at two or more numbers of GPUs, otherwise equal.

    They are sorted by configuration, kind, settings and ascending number of GPUs.
    """
    series_by_scale = _series(
        [
            result
            for result in results
            if result.identity.configuration is not None and measures(result)
        ]
    )
    several = [(series, scales) for series, scales in series_by_scale.items() if len(scales) > 1]
    titles = [_title(series, scales) for series, scales in several]
    largest = [scales[max(scales)][0] for _, scales in several]
    settings = [
        settings_of(
            run.identity.configuration,
            window=run.metrics.window,
            steps=run.metrics.steps,
            without=_GROWS,
        )
        for run in largest
    ]
    notes = distinguishing(list(zip(titles, settings, strict=True)))
    ordered = sorted(zip(titles, notes, several, strict=True), key=lambda line: line[:2])
    return [
        point for _, note, (series, scales) in ordered for point in _points(series, scales, note)
    ]


def _series(measured: Sequence[Result]) -> dict[Series, dict[int, list[Result]]]:
    """Group results by series and number of GPUs.

    A run on one node belongs to each size of node that it fits.
    """
    bases = [
        (base, result)
        for result, gpus_per_node in zip(measured, _bases(measured), strict=True)
        for base in gpus_per_node
    ]
    wide = grouped(
        (base, gpus_per_node)
        for base, result in bases
        if (gpus_per_node := _per_node(result)) is not None
    )
    series: dict[Series, dict[int, list[Result]]] = {}
    for base, result in bases:
        configuration, gpus_per_node = result.identity.configuration, _per_node(result)
        assert configuration is not None
        fits: set[int | None] = {gpus_per_node}
        if gpus_per_node is None:
            fits = {
                node_size for node_size in wide.get(base, ()) if configuration.scale <= node_size
            } or {None}
        for node_size in fits:
            series.setdefault(base._replace(gpus_per_node=node_size), {}).setdefault(
                configuration.scale, []
            ).append(result)
    return series


def _kinds(result: Result) -> tuple[Kind | None, ...]:
    configuration = result.identity.configuration
    return (
        (WEAK, STRONG) if configuration is not None and configuration.gbs is not None else (None,)
    )


def _bases(measured: Sequence[Result]) -> list[list[Series]]:
    """Return the ``_base`` of each kind for each result, made once for all repeats."""
    keys = [(pool_key(result), result.metrics.headline) for result in measured]
    bases = {
        key: [_base(kind, result) for kind in _kinds(result)]
        for key, result in dict(zip(keys, measured, strict=True)).items()
    }
    return [bases[key] for key in keys]


def _base(kind: Kind | None, result: Result) -> Series:
    """Return a key that results share if only the GPUs differ, and a batch that grows with them.

    With ``strong`` the batch is constant.
    """
    configuration = result.identity.configuration
    assert configuration is not None
    batch = Fraction(configuration.gbs or 0, configuration.scale if kind == WEAK else 1)
    alike = replace(configuration, scale=0, gbs=0, gpus_per_node=None)
    key = pool_key(result.with_identity(configuration=alike))
    return Series(kind, batch, (key, result.metrics.headline))


def settings(result: Result) -> frozenset[Hashable]:
    """Return the ``settings`` of every series that a result with a configuration may belong to."""
    return frozenset(_base(kind, result).settings for kind in _kinds(result))


def _per_node(result: Result) -> int | None:
    """Return the GPUs per node of a run on several nodes, or None on one node.

    On one node they follow from the number of GPUs.
    """
    configuration = result.identity.configuration
    several = (
        configuration is not None
        and configuration.gpus_per_node is not None
        and configuration.scale > configuration.gpus_per_node
    )
    return configuration.gpus_per_node if configuration is not None and several else None


def _title(series: Series, scales: Mapping[int, Sequence[Result]]) -> tuple[Any, ...]:
    configuration = scales[max(scales)][0].identity.configuration
    words = (str(getattr(configuration, name)) for name in _MODEL)
    return (
        *words,
        parameters_in_words(configuration.parameters if configuration else {}),
        series.kind or "",
        series.batch,
    )


def _points(
    series: Series, scales: Mapping[int, Sequence[Result]], note: str
) -> list[ScalingPoint]:
    points: list[ScalingPoint] = []
    for _, runs in sorted(scales.items()):
        metric = metric_of(runs[0]) if series.kind is None else RATE
        values, configuration = _values(series, runs), runs[0].identity.configuration
        assert configuration is not None
        together, times = pool(values, metric.name), pooled(runs, STEP_TIME)
        smallest = Spread(points[0].value if points else together.mean, 0.0, 1)
        points.append(
            ScalingPoint(
                kind=series.kind,
                configuration=configuration,
                n=together.n,
                metric=metric,
                value=together.mean,
                relative=relative(together.mean, smallest.mean, metric.better),
                series=series,
                step_time_s=times and times.mean,
                settings=note,
                values=tuple(sorted(values)),
            )
        )
    return points


def _values(series: Series, runs: Sequence[Result]) -> list[float]:
    """Return the value of each run. For training, it is the tokens per second of one GPU."""
    if series.kind is None:
        return [run.metrics.value.mean for run in runs if run.metrics.value is not None]
    rates = []
    for run in runs:
        configuration, time = run.identity.configuration, run.metrics.step_time
        if configuration is not None and time is not None:
            rates.append(
                tokens_per_second(configuration.seq_length or 0, configuration.gbs or 0, time)
                / configuration.scale
            )
    return rates


def columns(points: Iterable[ScalingPoint], fmt: str) -> list[Column]:
    """Return the columns of the table: all for programs, the ones that have a value for people."""
    points = list(points)
    if fmt in ("json", "csv"):
        return list(COLUMNS)
    metrics = {point.metric for point in points}
    hidden = {"metric", "value", "relative"} if metrics <= {RATE} else {RATE.name, "efficiency"}
    hidden |= {"unit", "metric"} if len(metrics) == 1 else {"unit"}
    rows = [cells(point, fmt) for point in points]
    empty = {column.key for column in COLUMNS if all(row[column.key] is None for row in rows)}
    empty = empty if rows else {"parameters", "settings"}
    shown_columns = [column for column in COLUMNS if column.key not in hidden | empty]
    return [
        replace(column, heading=heading(metrics, "value")) if column.key == "value" else column
        for column in shown_columns
    ]


def cells(point: ScalingPoint, fmt: str, *, mixed: bool = False) -> dict[str, Any]:
    """Return a point as a row of COLUMNS. ``mixed`` adds the unit, beside other metrics."""
    configuration, training = point.configuration, point.kind is not None
    text = shown(point.value, point.metric.unit if mixed else "")
    return {
        "workload": configuration.workload,
        "size": configuration.model_size,
        "dtype": configuration.dtype,
        "gpu_type": configuration.gpu_type,
        "parameters": parameters_in_words(configuration.parameters) or None,
        "scaling": point.kind,
        "scale": configuration.scale,
        "gbs": configuration.gbs,
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


def rows_of(points: Iterable[ScalingPoint], fmt: str) -> list[dict[str, Any]]:
    points = list(points)
    mixed = len({point.metric for point in points}) > 1
    return [cells(point, fmt, mixed=mixed) for point in points]
