# SPDX-License-Identifier: Apache-2.0
"""Published step times to compare runs with; each figure has its release, window and FLOPs formula."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from llmb.errors import Fault, InputFaults, KeyFaultError, UsageError
from llmb.stats.measure import Window, mfu, model_tflops_per_gpu, parse_window
from llmb.text import typed, yamlfile
from llmb.text.names import nearest, suggest
from llmb.workload.gpus import known_types, peak_dtype
from llmb.workload.model import require_positive
from llmb.workload.rows import BatchRule
from llmb.workload.spec import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One published step time, in seconds, and the configuration that it is valid for.

    Fields have the same names as those of a job. ``window``: the measured iterations of ``steps``;
    ``tokens_per_second``, ``days_per_1t_tokens`` (with ``days_digits`` decimals) and ``mfu`` (a fraction): as printed,
    None if not printed. The MFU was computed from ``model_flops`` of one sample, by the formula ``flops_convention``,
    and from ``peak_tflops`` if it is not the peak of gpus.yaml.
    """

    release: str
    source: str
    window: Window
    steps: int
    workload: str
    model_size: str
    dtype: str
    gpu_type: str
    scale: int
    gbs: int
    seq_length: int
    num_layers: int
    step_time_s: float
    tokens_per_second: float | None = None
    days_per_1t_tokens: float | None = None
    days_digits: int = 2
    mfu: float | None = None
    model_flops: float | None = None
    flops_convention: str | None = None
    peak_tflops: float | None = None


@dataclass(frozen=True, slots=True)
class _WindowText:
    """A window as a table writes it: ``11-44``, or ``last``."""

    window: Window

    @classmethod
    def parse(cls, value: Any) -> Self:
        """Parse the text. Raises ValueError."""
        try:
            return cls(parse_window(str(value)))
        except UsageError as error:
            hint = "write the first and the last iteration, 11-44, or: last"
            raise KeyFaultError(f"'{value}' is not a window", hint=hint) from error


def _by_scale(values: dict[str, float]) -> None:
    for scale, value in values.items():
        if not re.fullmatch(r"[1-9]\d*", scale):
            raise KeyFaultError(f"'{scale}' is not a GPU count", code="key-invalid")
        if not 0 < value < float("inf"):
            raise ValueError(f"must be more than 0, not {value} at {scale}")


ByScale = Annotated[dict[str, float], _by_scale]
_PRINTED = ("tokens_per_second", "mfu_percent", "days_per_1t_tokens")  # optional values of a table


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table of a release: its figures by GPU count; ``gbs`` as in a workload's row, the rest as printed."""

    release: str
    source: str
    window: _WindowText
    steps: int
    size: str
    dtype: str
    gpu: str
    gbs: BatchRule
    seq_length: int
    layers: int
    step_time_s: ByScale
    tokens_per_second: ByScale = field(default_factory=dict)
    mfu_percent: ByScale = field(default_factory=dict)
    days_per_1t_tokens: ByScale = field(default_factory=dict)
    model_flops: float | None = None
    flops_convention: str | None = None
    peak_tflops: float | None = None

    def __post_init__(self) -> None:
        require_positive(self)
        for scale in self.step_time_s:
            if self.gbs.batch(int(scale)) is None:
                message = f"the batch {self.gbs.text} is not whole there"
                raise KeyFaultError(message, "step_time_s", int(scale), code="batch-not-whole")
        for name in _PRINTED:
            for scale in getattr(self, name):
                if scale not in self.step_time_s:
                    raise KeyFaultError("has no step time", name, int(scale), code="step-time-missing")
        if self.mfu_percent and (self.model_flops is None or self.flops_convention is None):
            raise KeyFaultError("a printed MFU needs its 'model_flops' and 'flops_convention'", code="key-missing")

    def figures(self, workload: Workload) -> list[Figure]:
        """Its figures, by ascending scale."""
        own = workload.gpu_types.get(self.gpu)
        peak = self.peak_tflops or (own.peak_tflops.get(peak_dtype(self.dtype)) if own is not None else None)
        whole_days = all(days == int(days) for days in self.days_per_1t_tokens.values())
        found = []
        for text, seconds in sorted(self.step_time_s.items(), key=lambda item: int(item[0])):
            scale, percent = int(text), self.mfu_percent.get(text)
            batch = self.gbs.batch(scale)
            assert batch is not None
            found.append(
                Figure(
                    release=self.release,
                    source=self.source,
                    window=self.window.window,
                    steps=self.steps,
                    workload=workload.key,
                    model_size=self.size,
                    dtype=self.dtype,
                    gpu_type=self.gpu,
                    scale=scale,
                    gbs=batch,
                    seq_length=self.seq_length,
                    num_layers=self.layers,
                    step_time_s=seconds,
                    tokens_per_second=self.tokens_per_second.get(text),
                    days_per_1t_tokens=self.days_per_1t_tokens.get(text),
                    days_digits=0 if whole_days else 2,
                    mfu=None if percent is None else round(percent / 100, 9),
                    model_flops=None if percent is None else self.model_flops,
                    flops_convention=None if percent is None else self.flops_convention,
                    peak_tflops=None if percent is None else peak,
                )
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    tables: tuple[Table, ...]


def read_published(workload: Workload) -> tuple[Figure, ...]:
    """The published figures of ``workload``; none without a file of them.

    Raises InputFaults with file, line and the nearest valid key.
    """
    if workload.published is None:
        return ()
    document = yamlfile.load(workload.published)
    tables = typed.read(_File, document).tables
    figures = tuple(figure for table in tables for figure in table.figures(workload))
    if faults := [*_unknown_sizes(tables, workload, document), *_twice(figures, document)]:
        raise InputFaults(faults)
    return figures


def release_order(release: str) -> tuple[tuple[int, str], ...]:
    """The sort key of a release from old to new, by number: 25.10 follows 25.9."""
    parts = re.findall(r"\d+|[^\W\d_]+", release.lower())
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts)


def peak_of(figure: Figure) -> float | None:
    """The dense peak of one GPU for the figure's dtype in gpus.yaml, in TFLOPS; None if unknown."""
    known = known_types().get(figure.gpu_type)
    return known.peak_tflops.get(peak_dtype(figure.dtype)) if known else None


def mfu_as_published(figure: Figure, seconds: float) -> float | None:
    """The MFU, a fraction, of a step of ``seconds`` with the FLOPs and the peak of ``figure``; None without them."""
    peak = figure.peak_tflops or peak_of(figure)
    if figure.model_flops is None or peak is None:
        return None
    return mfu(model_tflops_per_gpu(figure.gbs, figure.model_flops, seconds, figure.scale), peak)


def raises_vboost(release: str | None) -> bool:
    """Whether the launch scripts of a release raised the GPUs' vboost; None: NeMo 2.3.1's scripts, which did."""
    return release is None or release_order("25.04") <= release_order(release)


def releases(figures: Iterable[Figure]) -> list[str]:
    """The releases that have figures, from old to new."""
    return sorted({figure.release for figure in figures}, key=release_order)


def check_release(release: str, figures: Iterable[Figure]) -> None:
    """Raise UsageError, with the known releases, if ``release`` has no figure."""
    known = releases(figures)
    if release not in known:
        close = nearest(release, known)
        meant = f"did you mean '{close}'?  " if close is not None else ""
        hint = f"{meant}known: {', '.join(known)}" if known else "no plugin has published figures"
        message = f"no figure was published with release '{release}'"
        raise UsageError(message, hint=hint, code="release-unknown", value=release)


def _unknown_sizes(tables: Iterable[Table], workload: Workload, document: yamlfile.Document) -> list[Fault]:
    return [
        Fault(
            place=document.place(("tables", number, "size")),
            message=f"{workload.key} has no size '{table.size}'",
            hint=suggest(table.size, list(workload.sizes)),
            code="size-unknown",
            key=f"tables.{number}.size",
            value=table.size,
        )
        for number, table in enumerate(tables)
        if table.size not in workload.sizes
    ]


def _twice(figures: Iterable[Figure], document: yamlfile.Document) -> list[Fault]:
    """A fault for each configuration with several figures in one release."""
    cases = Counter(
        (f.release, f.model_size, f.dtype, f.scale, f.gpu_type, f.gbs, f.seq_length, f.num_layers) for f in figures
    )
    return [
        Fault(
            place=document.name,
            message="release {} has {} figures for {} {} on {} {}, batch {}".format(case[0], count, *case[1:6]),
            hint="keep one of them",
            code="figure-duplicate",
            value=case,
        )
        for case, count in cases.items()
        if count > 1
    ]
