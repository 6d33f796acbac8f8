# SPDX-License-Identifier: Apache-2.0
"""The scaling of each model: what was measured at each scale, what was published, and what would be ideal. Pure."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from llmb.report.value import Report
from llmb.results.configuration import Configuration
from llmb.verdict.scaling import WEAK, Kind, Point
from llmb.workload.published import Figure, release_order

_MODEL = ("workload", "model_size", "dtype", "gpu_type", "seq_length", "num_layers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A published figure at one scale: tokens per second of one GPU, step time in s, and the release that it is of."""

    scale: int
    step_time_s: float
    rate: float
    release: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One model's ``points`` by ascending scale, with the rates of single runs at each scale, and what was published.

    Rates are tokens per second of one GPU.
    """

    kind: Kind
    points: tuple[Point, ...]
    rates: tuple[tuple[int, float], ...]
    published: tuple[Published, ...] = ()

    @property
    def label(self) -> str:
        """The workload, size and dtype."""
        own = self.points[0].configuration
        return f"{own.workload.removeprefix('pretrain_')} {own.model_size} {own.dtype}"

    @property
    def gpu_type(self) -> str | None:
        """The GPUs that it was measured on."""
        return self.points[0].configuration.gpu_type

    @property
    def settings(self) -> str:
        """In what it differs from other families of the same model, empty where it is the only one."""
        return self.points[0].settings

    @property
    def batch(self) -> str:
        """The rule of its global batch."""
        own = self.points[0].configuration
        return per_gpu(own.gbs, own.scale) if self.kind == WEAK else str(own.gbs)


def families_of(report: Report) -> list[Family]:
    """The families of a report's points, in their order."""
    groups: dict[Hashable, list[Point]] = {}
    for point in report.points:
        groups.setdefault(point.series, []).append(point)
    return [_family(points, report) for points in groups.values()]


def _family(points: list[Point], report: Report) -> Family:
    kind, own = points[0].kind, points[0].configuration
    scales = {point.configuration.scale for point in points}
    return Family(
        kind=kind,
        points=tuple(points),
        rates=tuple(sorted((point.configuration.scale, rate) for point in points for rate in point.rates)),
        published=tuple(_published(report.figures, _key(kind, own)[1:], kind, scales, report.release)),
    )


def _key(kind: Kind, own: Configuration | Figure) -> tuple[object, ...]:
    batch = Fraction(own.gbs, own.scale) if kind == WEAK else own.gbs
    return (kind, *(getattr(own, name) for name in _MODEL), batch)


def _published(
    figures: Iterable[Figure], model: tuple[object, ...], kind: Kind, scales: set[int], release: str | None
) -> list[Published]:
    """One figure for each scale from half the smallest to twice the largest: of ``release``, else of the newest."""
    newest: dict[int, Figure] = {}
    for figure in figures:
        near = min(scales) <= 2 * figure.scale and figure.scale <= 2 * max(scales)
        if not near or _key(kind, figure)[1:] != model or release not in (None, figure.release):
            continue
        known = newest.get(figure.scale)
        if known is None or release_order(known.release) < release_order(figure.release):
            newest[figure.scale] = figure
    return [
        Published(
            scale=scale,
            step_time_s=figure.step_time_s,
            release=figure.release,
            rate=figure.seq_length * figure.gbs / figure.step_time_s / scale,
        )
        for scale, figure in sorted(newest.items())
    ]


def per_gpu(gbs: int, scale: int) -> str:
    """A global batch by its GPUs: ``4 per GPU``, ``1 for 4 GPUs``."""
    rule = Fraction(gbs, scale)
    return f"{rule.numerator} per GPU" if rule.denominator == 1 else f"{rule.numerator} for {rule.denominator} GPUs"
