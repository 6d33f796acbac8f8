# SPDX-License-Identifier: Apache-2.0
"""The rows of a report: configurations with their repeats, and the scaling of models. Pure."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction

from llmb.contract.job import Job
from llmb.contract.metrics import MFU, TOKENS_PER_SECOND_PER_GPU, MetricSpec
from llmb.contract.settings import Settings
from llmb.core.grouping import grouped
from llmb.core.values import dataclass
from llmb.judge import compare, judge, reference
from llmb.judge.correctness import speed_word
from llmb.judge.scaling import WEAK, Kind, ScalingPoint
from llmb.judge.value import FAIL, bounds_of, ratio_in_digits
from llmb.measure.facts import VerdictCause
from llmb.measure.result import Result
from llmb.measure.result_notes import TITLE, distinguishing, parameters_in_words, settings_of
from llmb.measure.statistics import Spread
from llmb.plan.published import Figure, release_order
from llmb.show.report.value import ORDER, Report, Run, count, word_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportEntry:
    """Runs of one configuration with the same verdict or status (``word``).

    They are repeats, or failed alike.
    """

    word: str
    runs: tuple[Run, ...]
    #: The settings that distinguish it from other entries of the same title.
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
        return (
            f"{self.job.workload.removeprefix('pretrain_')} {self.job.model_size} {self.job.dtype}"
        )

    @property
    def parameters(self) -> str:
        """The workload's own parameters, as ``message_size=16M``."""
        return parameters_in_words(self.job.parameters)

    @property
    def title(self) -> str:
        """The label with the number of GPUs and the parameters."""
        return ", ".join(filter(None, (self.label, count(self.job.scale, "GPU"), self.parameters)))

    @property
    def causes(self) -> tuple[VerdictCause, ...]:
        """The facts that may explain its verdict."""
        return self.result.verdict.causes

    @property
    def reason(self) -> str:
        """The reason of the verdict without its causes, else of failures, else of the result."""
        return self.result.verdict.bare_reason or _causes(self.runs) or self.result.reason or ""

    @property
    def metric(self) -> MetricSpec | None:
        return None if self.result.metrics.value is None else reference.metric_of(self.result)

    @property
    def value(self) -> Spread | None:
        """The headline metric as its runs measured it."""
        return reference.pooled((run.result for run in self.runs), self.result.metrics.headline)

    @property
    def rate(self) -> float | None:
        """Tokens per second of one GPU at the mean step time."""
        return self._mean(TOKENS_PER_SECOND_PER_GPU)

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilization at the mean step time, a fraction."""
        return self._mean(MFU)

    def _mean(self, metric: str) -> float | None:
        spread = reference.pooled((run.result for run in self.runs), metric)
        return None if spread is None else spread.mean

    @property
    def ratio(self) -> float | None:
        """The value of its runs relative to the published figure, better above 1."""
        return self.result.verdict.pooled_ratio

    @property
    def ratio_text(self) -> str:
        """The ratio in as many digits as show on which side of its limits it is."""
        return "" if self.ratio is None else ratio_in_digits(self.ratio, bounds_of(self.result))

    @property
    def is_by_speed(self) -> bool:
        """True if the speed has this verdict, and not only loss or memory."""
        return speed_word(self.result.verdict) == self.word

    @property
    def is_slow(self) -> bool:
        return self.word == FAIL and self.is_by_speed

    def fails_by(self, name: str) -> bool:
        """Return True if the verdict on ``name``, which is a metric, loss or memory, is FAIL."""
        judged = self.result.verdict.metrics.get(name)
        return judged is not None and judged.word == FAIL

    @property
    def missing_gpus(self) -> int:
        """How many of its GPUs would do the work that is missing to the published speed.

        0 unless it trains a model and is certainly slower.
        """
        if not self.is_slow or self.ratio is None or self.job.training is None:
            return 0
        return max(0, round((1 - self.ratio) * self.job.scale))

    @property
    def cost(self) -> str:
        """``costs 51 of 512 GPUs``, empty if it costs none."""
        missing = self.missing_gpus
        return f"costs {missing} of {count(self.job.scale, 'GPU')}" if missing else ""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The nodes of all its runs, each once."""
        return tuple(dict.fromkeys(host for run in self.runs for host in run.hosts))


def entries_of(runs: Iterable[Run]) -> list[ReportEntry]:
    """The entries of ``runs``: by verdict or status, the slowest first, then by name and scale."""
    groups = grouped(
        ((word_of(run.result), compare.measures(run.result), judge.pool_key(run.result)), run)
        for run in runs
    )
    entries = [ReportEntry(word=word, runs=tuple(group)) for (word, *_), group in groups.items()]
    return sorted(_with_notes(entries), key=_severity)


def _severity(entry: ReportEntry) -> tuple[object, ...]:
    ratio = entry.ratio
    return (
        _rank(entry.word),
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
        f"{kind} ({number})" if number > 1 and len(kinds) > 1 else kind
        for kind, number in kinds.most_common()
    )


def _with_notes(entries: Sequence[ReportEntry]) -> list[ReportEntry]:
    titled = []
    for entry in entries:
        configuration, metrics = entry.result.identity.configuration, entry.result.metrics
        title = (*(getattr(entry.job, name) for name in TITLE), entry.parameters)
        without = (*TITLE, "parameters")
        titled.append(
            (
                title,
                settings_of(
                    configuration, window=metrics.window, steps=metrics.steps, without=without
                ),
            )
        )
    return [
        replace(entry, note=note)
        for entry, note in zip(entries, distinguishing(titled), strict=True)
    ]


_MODEL = ("workload", "model_size", "dtype", "gpu_type", "framework", "seq_length", "num_layers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A published value at one scale, of the metric of its family, and its release."""

    scale: int
    value: float
    release: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One configuration's ``points`` by ascending scale, with single runs and published values.

    Values of training are tokens per second of one GPU.
    """

    #: None if no model is trained.
    kind: Kind | None
    points: tuple[ScalingPoint, ...]
    values: tuple[tuple[int, float], ...]
    published: tuple[Published, ...] = ()
    #: The verdict of each scale.
    words: Mapping[int, str] = field(default_factory=dict)

    @property
    def metric(self) -> MetricSpec:
        """The metric of its values."""
        return self.points[0].metric

    @property
    def label(self) -> str:
        """The workload, size and dtype."""
        configuration = self.points[0].configuration
        workload = configuration.workload.removeprefix("pretrain_")
        return f"{workload} {configuration.model_size} {configuration.dtype}"

    @property
    def gpu_type(self) -> str | None:
        return self.points[0].configuration.gpu_type

    @property
    def settings(self) -> str:
        """Its parameters, and what distinguishes it from other families of the same model."""
        first = self.points[0]
        return ", ".join(
            filter(None, (parameters_in_words(first.configuration.parameters), first.settings))
        )

    @property
    def batch(self) -> str:
        """The global batch of training: per GPU for weak scaling."""
        configuration = self.points[0].configuration
        return (
            per_gpu(configuration.gbs or 0, configuration.scale)
            if self.kind == WEAK
            else str(configuration.gbs)
        )


def families_of(report: Report) -> list[Family]:
    """The families of a report's points, in their order."""
    groups = grouped((point.series, point) for point in report.points)
    worst_words: dict[Hashable, str] = {}
    for result in report.results:
        configuration, word = result.identity.configuration, result.verdict.word
        if configuration is not None and word is not None:
            key = configuration.key
            worst_words[key] = min(word, worst_words.get(key, word), key=_rank)
    return [_family(points, report, worst_words) for points in groups.values()]


def _family(
    points: list[ScalingPoint], report: Report, worst_words: Mapping[Hashable, str]
) -> Family:
    words = ((point.configuration, worst_words.get(point.configuration.key)) for point in points)
    return Family(
        kind=points[0].kind,
        words={configuration.scale: word for configuration, word in words if word is not None},
        points=tuple(points),
        values=tuple(
            sorted((point.configuration.scale, value) for point in points for value in point.values)
        ),
        published=tuple(_published(report.figures, points, report.release)),
    )


def _rank(word: str) -> int:
    """The place of a verdict in the order, 0 for the worst."""
    return ORDER.index(word) if word in ORDER else len(ORDER)


def _key(kind: Kind | None, subject: Settings | Figure) -> tuple[object, ...]:
    batch = Fraction(subject.gbs or 0, subject.scale) if kind == WEAK else subject.gbs
    return (
        *(getattr(subject, name) for name in _MODEL),
        parameters_in_words(subject.parameters),
        batch,
    )


def _published(
    figures: Iterable[Figure], points: Sequence[ScalingPoint], release: str | None
) -> list[Published]:
    """Return the figure of each scale, half the smallest to twice the largest.

    They are of ``release``, else the newest.
    """
    kind, model = points[0].kind, _key(points[0].kind, points[0].configuration)
    scales = {point.configuration.scale for point in points}
    newest: dict[int, tuple[str, float]] = {}
    for figure in figures:
        near = min(scales) <= 2 * figure.scale and figure.scale <= 2 * max(scales)
        value = _value_of(figure, points[0])
        if (
            not near
            or value is None
            or _key(kind, figure) != model
            or release not in (None, figure.release)
        ):
            continue
        latest = newest.get(figure.scale)
        if latest is None or release_order(latest[0]) < release_order(figure.release):
            newest[figure.scale] = figure.release, value
    return [
        Published(scale=scale, value=value, release=name)
        for scale, (name, value) in sorted(newest.items())
    ]


def _value_of(figure: Figure, point: ScalingPoint) -> float | None:
    """Return the published value of a point's metric, or None if another metric is published."""
    if point.kind is not None:
        return figure.tokens_rate
    return figure.value if figure.metric == point.metric else None


def per_gpu(gbs: int, scale: int) -> str:
    """A global batch per GPU: ``4 per GPU``, ``1 for 4 GPUs``."""
    rule = Fraction(gbs, scale)
    return (
        f"{rule.numerator} per GPU"
        if rule.denominator == 1
        else f"{rule.numerator} for {rule.denominator} GPUs"
    )
