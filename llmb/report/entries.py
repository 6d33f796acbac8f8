# SPDX-License-Identifier: Apache-2.0
"""The rows of a report: each configuration with its repeats, and the scaling of each model. Pure."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from llmb.report.value import ORDER, Report, Run, word_of
from llmb.results.result import TITLE, Configuration, Result, distinguishing, settings_of
from llmb.runs.job import Job
from llmb.stats.measure import Spread
from llmb.verdict.compare import measures
from llmb.verdict.judge import judge_times, pool_key, pooled, published
from llmb.verdict.scaling import WEAK, Kind, Point
from llmb.workload.published import Figure, release_order


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Runs of one configuration with the same verdict or status (``word``): repeats, or runs that failed alike.

    ``note``: the settings that distinguish it from other entries of the same title.
    """

    word: str
    runs: tuple[Run, ...]
    note: str = ""

    @property
    def job(self) -> Job:
        """The job of its first run."""
        return self.runs[0].job

    @property
    def result(self) -> Result:
        """The result of its first run, which has the verdict of all."""
        return self.runs[0].result

    @property
    def label(self) -> str:
        """The workload, size and dtype, as ``nemotron4 15b bf16``."""
        return f"{self.job.workload.removeprefix('pretrain_')} {self.job.model_size} {self.job.dtype}"

    @property
    def reason(self) -> str:
        """The reason: for the ratio, else the causes of failures, else that of its result."""
        reference, causes = self.result.verdict.reference, _causes(self.runs)
        if reference is not None and self.ratio is not None:
            times = [run.result.metrics.step_time for run in self.runs]
            return judge_times([time for time in times if time is not None], published(reference.step_time_s)).reason
        return self.result.verdict.reason or causes or self.result.reason or ""

    @property
    def step_time(self) -> Spread | None:
        """The step time of its runs, in seconds."""
        return pooled(run.result for run in self.runs)

    @property
    def rate(self) -> float | None:
        """Tokens per second of one GPU at the mean step time."""
        return self._at_mean(self.result.metrics.tokens_per_second_per_gpu)

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilization at the mean step time, a fraction."""
        return self._at_mean(self.result.metrics.mfu)

    def _at_mean(self, of_first: float | None) -> float | None:
        time, own = self.step_time, self.result.metrics.step_time
        return None if of_first is None or time is None or own is None else of_first * own / time.mean

    @property
    def ratio(self) -> float | None:
        """The throughput of its runs relative to the published one."""
        return self.result.verdict.pooled_ratio


def entries_of(runs: Iterable[Run]) -> list[Entry]:
    """The entries of ``runs``: by verdict or status, the slowest first, then by name and scale."""
    groups: dict[Hashable, list[Run]] = {}
    for run in runs:
        word = word_of(run.result)
        groups.setdefault((word, measures(run.result), pool_key(run.result)), []).append(run)
    made = [Entry(word=word_of(group[0].result), runs=tuple(group)) for group in groups.values()]
    return sorted(_with_notes(made), key=_severity)


def worst_first(entries: Iterable[Entry], most: int) -> list[Run]:
    """The first runs of the entries, at most ``most``."""
    return [run for entry in entries for run in entry.runs][:most]


def _severity(entry: Entry) -> tuple[object, ...]:
    ratio = entry.ratio
    return (
        ORDER.index(entry.word) if entry.word in ORDER else len(ORDER),
        ratio or 0.0,
        entry.label,
        entry.job.gpu_type,
        entry.job.scale,
        entry.note,
        entry.runs[0].created,
        entry.runs[0].id,
    )


def _causes(runs: Sequence[Run]) -> str:
    """The causes of their failures, the most frequent first: ``NCCL hang (2), time limit``."""
    kinds = Counter(run.cause.kind for run in runs if run.cause is not None)
    return ", ".join(
        f"{kind} ({number})" if number > 1 and len(kinds) > 1 else kind for kind, number in kinds.most_common()
    )


def _with_notes(made: Sequence[Entry]) -> list[Entry]:
    titled = []
    for entry in made:
        own, metrics = entry.result.identity.configuration, entry.result.metrics
        title = tuple(getattr(entry.job, name) for name in TITLE)
        titled.append((title, settings_of(own, window=metrics.window, steps=metrics.steps)))
    return [replace(entry, note=note) for entry, note in zip(made, distinguishing(titled), strict=True)]


_MODEL = ("workload", "model_size", "dtype", "gpu_type", "seq_length", "num_layers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A published figure at one scale: step time in s, tokens per second of one GPU, and its release."""

    scale: int
    step_time_s: float
    rate: float
    release: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One model's ``points`` by ascending scale, the rates of single runs at each scale, and the published figures.

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
        """The GPU type of the runs."""
        return self.points[0].configuration.gpu_type

    @property
    def settings(self) -> str:
        """What distinguishes it from other families of the same model, empty where it is the only one."""
        return self.points[0].settings

    @property
    def batch(self) -> str:
        """The global batch: per GPU for weak scaling."""
        own = self.points[0].configuration
        return per_gpu(own.gbs or 0, own.scale) if self.kind == WEAK else str(own.gbs)


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
        published=tuple(_published(report.figures, _key(kind, own), kind, scales, report.release)),
    )


def _key(kind: Kind, own: Configuration | Figure) -> tuple[object, ...]:
    batch = Fraction(own.gbs or 0, own.scale) if kind == WEAK else own.gbs
    return (*(getattr(own, name) for name in _MODEL), batch)


def _published(
    figures: Iterable[Figure], model: tuple[object, ...], kind: Kind, scales: set[int], release: str | None
) -> list[Published]:
    """The figure for each scale from half the smallest to twice the largest: of ``release``, else the newest."""
    newest: dict[int, Figure] = {}
    for figure in figures:
        near = min(scales) <= 2 * figure.scale and figure.scale <= 2 * max(scales)
        if not near or _key(kind, figure) != model or release not in (None, figure.release):
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
    """A global batch per GPU: ``4 per GPU``, ``1 for 4 GPUs``."""
    rule = Fraction(gbs, scale)
    return f"{rule.numerator} per GPU" if rule.denominator == 1 else f"{rule.numerator} for {rule.denominator} GPUs"
