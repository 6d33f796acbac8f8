# SPDX-License-Identifier: Apache-2.0
"""Scaling efficiency: the throughput per GPU at each scale relative to the smallest one. Pure."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from llmb.results.result import TITLE, Configuration, Result, distinguishing, settings_of
from llmb.stats.measure import tokens_per_second
from llmb.text.tables import Column
from llmb.verdict.compare import measures
from llmb.verdict.judge import pool_key, pooled

Kind = Literal["weak", "strong"]
WEAK: Kind = "weak"
STRONG: Kind = "strong"

COLUMNS = (
    Column(key="workload"),
    Column(key="size"),
    Column(key="dtype"),
    Column(key="gpu_type", heading="GPU"),
    Column(key="scaling"),
    Column(key="scale", heading="GPUs", right=True),
    Column(key="gbs", heading="batch", right=True, optional=True),
    Column(key="n", heading="runs", right=True, optional=True),
    Column(key="step_time_s", heading="step (s)", show="{:.3f}".format, right=True, optional=True),
    Column(key="tokens_per_second_per_gpu", heading="tok/s/GPU", show="{:.1f}".format, right=True),
    Column(key="efficiency", heading="eff. %", show=lambda value: f"{100 * value:.1f}", right=True),
    Column(key="settings"),
)


class Series(NamedTuple):
    """What the points of one line have in common: the batch (per GPU for weak scaling), and every other setting.

    ``gpus_per_node``: of its points on several nodes, None without any.
    """

    kind: Kind
    batch: Fraction
    settings: Hashable
    gpus_per_node: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One scale of a model: the mean step time of its ``n`` runs, and the efficiency.

    ``weak``: the batch grows with the GPUs; ``strong``: it is constant. In both, the efficiency is the throughput per
    GPU relative to the smallest scale measured; ``rates``: that throughput for each run. ``settings``: how the series
    differs from others of the same model.
    """

    kind: Kind
    configuration: Configuration
    n: int
    step_time_s: float
    tokens_per_second_per_gpu: float
    efficiency: float
    series: Series
    settings: str = ""
    rates: tuple[float, ...] = ()


_GROWS = (*TITLE, "gbs")  # what may differ between the points of a series, and what every row shows
_MODEL = ("workload", "model_size", "dtype", "gpu_type", "seq_length", "num_layers")


def efficiencies(results: Iterable[Result]) -> list[Point]:
    """The points of each model that was measured at two scales or more with the same settings.

    By model, kind and settings, then by ascending scale.
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
    bases = [(_base(kind, result), result) for result in measured for kind in (WEAK, STRONG)]
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


def _base(kind: Kind, result: Result) -> Series:
    """Equal for results that differ only in the scale, and in a batch that grows with it (weak) or is constant."""
    own = result.identity.configuration
    assert own is not None
    batch = Fraction(own.gbs or 0, own.scale if kind == WEAK else 1)
    alike = replace(own, scale=0, gbs=0, gpus_per_node=None)
    return Series(kind, batch, pool_key(replace(result, identity=replace(result.identity, configuration=alike))))


def settings(result: Result) -> frozenset[Hashable]:
    """The ``settings`` of every series that a result with a configuration may belong to."""
    return frozenset(_base(kind, result).settings for kind in (WEAK, STRONG))


def _per_node(result: Result) -> int | None:
    """GPUs per node of a run on several nodes; on one node they follow from the scale."""
    own = result.identity.configuration
    several = own is not None and own.gpus_per_node is not None and own.scale > own.gpus_per_node
    return own.gpus_per_node if own is not None and several else None


def _title(series: Series, scales: Mapping[int, Sequence[Result]]) -> tuple[Any, ...]:
    own = scales[max(scales)][0].identity.configuration
    return (*(str(getattr(own, name)) for name in _MODEL), series.kind, series.batch)


def _points(series: Series, scales: Mapping[int, Sequence[Result]], note: str) -> list[Point]:
    found: list[Point] = []
    for scale, own in sorted(scales.items()):
        together, configuration = pooled(own), own[0].identity.configuration
        assert together is not None
        assert configuration is not None
        tokens = (
            tokens_per_second(configuration.seq_length or 0, configuration.gbs or 0, 1.0) / scale
        )  # of one GPU in a step
        rate = tokens / together.mean
        smallest = found[0].tokens_per_second_per_gpu if found else rate
        found.append(
            Point(
                kind=series.kind,
                configuration=configuration,
                n=together.n,
                step_time_s=together.mean,
                tokens_per_second_per_gpu=rate,
                efficiency=rate / smallest,
                series=series,
                settings=note,
                rates=tuple(sorted(tokens / one.metrics.step_time for one in own if one.metrics.step_time is not None)),
            )
        )
    return found


def columns(points: Iterable[Point], fmt: str) -> list[Column]:
    """The columns of their table; settings are for data, and where they tell series apart."""
    with_settings = fmt in ("json", "csv") or any(point.settings for point in points)
    return [column for column in COLUMNS if with_settings or column.key != "settings"]


def cells(point: Point) -> dict[str, Any]:
    """One point of a model's scaling as a row of COLUMNS."""
    own = point.configuration
    return {
        "workload": own.workload,
        "size": own.model_size,
        "dtype": own.dtype,
        "gpu_type": own.gpu_type,
        "scaling": point.kind,
        "scale": own.scale,
        "gbs": own.gbs,
        "n": point.n,
        "step_time_s": point.step_time_s,
        "tokens_per_second_per_gpu": point.tokens_per_second_per_gpu,
        "efficiency": point.efficiency,
        "settings": point.settings or None,
    }
