# SPDX-License-Identifier: Apache-2.0
"""Scaling efficiency: what is left of the smallest scale's throughput per GPU at the larger ones. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from llmb.compare import measures
from llmb.interval import spread
from llmb.results.configuration import Configuration
from llmb.results.result import Result
from llmb.tables import Column

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
    Column(key="gbs", heading="batch", right=True),
    Column(key="n", heading="runs", right=True),
    Column(key="step_time_s", heading="step time (s)", show="{:.3f}".format, right=True),
    Column(key="tokens_per_second_per_gpu", heading="tokens/s/GPU", show="{:.1f}".format, right=True),
    Column(key="efficiency", heading="efficiency %", show=lambda value: f"{100 * value:.1f}", right=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One scale of a model: mean step time of its ``n`` runs, and ``efficiency``, a fraction of the smallest scale's.

    ``weak``: the batch grows with the GPUs; ``strong``: it stays. Either way the efficiency is the throughput of one
    GPU by that at the smallest scale measured.
    """

    kind: Kind
    configuration: Configuration
    n: int
    step_time_s: float
    tokens_per_second_per_gpu: float
    efficiency: float


def efficiencies(results: Iterable[Result]) -> list[Point]:
    """The points of each model that was measured at two scales or more, by model, kind and ascending scale."""
    families: dict[tuple[str, ...], dict[int, list[tuple[Configuration, float]]]] = {}
    for result in results:
        own, seconds = result.configuration, result.time_mean_seconds
        if own is None or seconds is None or not measures(result):
            continue
        model = (own.workload, own.model_size, own.dtype, str(own.gpu_type), str(own.seq_length), str(own.num_layers))
        for family in ((*model, WEAK, str(Fraction(own.gbs, own.scale))), (*model, STRONG, str(own.gbs))):
            families.setdefault(family, {}).setdefault(own.scale, []).append((own, seconds))
    kinds = {family: STRONG if STRONG in family else WEAK for family in families}
    return [point for family in sorted(families) for point in _points(kinds[family], families[family])]


def _points(kind: Kind, scales: dict[int, list[tuple[Configuration, float]]]) -> list[Point]:
    if len(scales) < 2:
        return []
    rates = {}
    for scale, measured in scales.items():
        own, seconds = measured[0][0], spread([time for _, time in measured]).mean
        rates[scale] = own, seconds, own.seq_length * own.gbs / seconds / scale
    first = rates[min(rates)][2]
    return [
        Point(
            kind=kind, configuration=own, n=len(scales[scale]), step_time_s=seconds, tokens_per_second_per_gpu=rate,
            efficiency=rate / first,
        )
        for scale, (own, seconds, rate) in sorted(rates.items())
    ]  # fmt: skip


def cells(point: Point) -> dict[str, Any]:
    """One point of a model's scaling as a row of COLUMNS."""
    own = point.configuration
    return {
        "workload": own.workload, "size": own.model_size, "dtype": own.dtype, "gpu_type": own.gpu_type,
        "scaling": point.kind, "scale": own.scale, "gbs": own.gbs, "n": point.n, "step_time_s": point.step_time_s,
        "tokens_per_second_per_gpu": point.tokens_per_second_per_gpu, "efficiency": point.efficiency,
    }  # fmt: skip
