# SPDX-License-Identifier: Apache-2.0
"""Reads the file of a workload's published figures: a table for each release and configuration."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Self

from llmb.contract import gpus, model
from llmb.contract.metrics import STEP_TIME, MetricSpec
from llmb.contract.parameters import values_of
from llmb.contract.rows import BatchRule
from llmb.contract.spec import Workload
from llmb.contract.window import Window, parse_window
from llmb.core import names, typed, yamlfile
from llmb.core.values import dataclass
from llmb.core.yamlfile import dotted
from llmb.errors import Fault, InputFaults, KeyFaultError, UsageError
from llmb.plan.framework import frameworks_in
from llmb.plan.published import Figure


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
_REQUIRED = ("gbs", "seq_length", "layers")  # where a model is trained
_OF_TRAINING = (
    *_REQUIRED,
    "step_time_s",
    *_PRINTED,
    "model_flops",
    "flops_convention",
    "peak_tflops",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """One table of a release: its figures by GPU count, as printed.

    Figures are ``step_time_s``, or the ``values`` of any ``metric`` of the workload. Tables of
    models have ``gbs``, ``seq_length`` and ``layers``, and what was printed with step times.
    """

    release: str
    source: str
    window: _WindowText
    steps: int
    size: str
    dtype: str
    gpu: str
    #: Of the runs, None for that of the workload.
    framework: str | None = None
    metric: str | None = None
    values: ByScale = field(default_factory=dict)
    #: Figures of further metrics for the same configuration.
    also: dict[str, ByScale] = field(default_factory=dict)
    #: Of the workload's own, those that are not its defaults.
    parameters: dict[str, str] = field(default_factory=dict)
    #: As in a workload's row.
    gbs: BatchRule | None = None
    seq_length: int | None = None
    layers: int | None = None
    step_time_s: ByScale = field(default_factory=dict)
    tokens_per_second: ByScale = field(default_factory=dict)
    mfu_percent: ByScale = field(default_factory=dict)
    days_per_1t_tokens: ByScale = field(default_factory=dict)
    model_flops: float | None = None
    flops_convention: str | None = None
    peak_tflops: float | None = None

    def __post_init__(self) -> None:
        model.require_positive(self)
        if (self.metric is None) != (not self.values):
            present, missing = ("values", "metric") if self.values else ("metric", "values")
            message = f"'{missing}' is missing: '{present}' needs it"
            raise KeyFaultError(
                message, hint="metric: busbw, values: {8: 480.2}", code="key-missing", value=missing
            )
        if self.values and self.step_time_s:
            raise KeyFaultError(
                "'values' and 'step_time_s' exclude each other",
                "values",
                hint="write a table for each metric",
                code="key-excess",
            )
        name = "values" if self.values else "step_time_s"
        for scale in self.by_scale:
            if self.gbs is not None and self.gbs.batch(int(scale)) is None:
                message = f"the batch {self.gbs.text} is not whole there"
                raise KeyFaultError(message, name, int(scale), code="batch-not-whole")
        for name in _PRINTED:
            for scale in getattr(self, name):
                if scale not in self.step_time_s:
                    raise KeyFaultError(
                        "has no step time", name, int(scale), code="step-time-missing"
                    )
        if self.mfu_percent and (self.model_flops is None or self.flops_convention is None):
            raise KeyFaultError(
                "a printed MFU needs its 'model_flops' and 'flops_convention'", code="key-missing"
            )

    @property
    def by_scale(self) -> dict[str, float]:
        """The figures by GPU count."""
        return self.values or self.step_time_s

    def figures(self, workload: Workload) -> list[Figure]:
        """Return its figures by ascending scale, then those of further metrics."""
        specs = {spec.name: spec for spec in workload.all_metrics(self.size)}
        metric = specs[self.metric or STEP_TIME]
        figures = [
            self._figure(workload, metric, scale) for scale in sorted(map(int, self.by_scale))
        ]
        further = [
            replace(figure, metric=specs[name], value=values[str(figure.scale)])
            for figure in figures
            for name, values in self.also.items()
            if str(figure.scale) in values
        ]
        return [*figures, *further]

    def _figure(self, workload: Workload, metric: MetricSpec, scale: int) -> Figure:
        text = str(scale)
        percent = self.mfu_percent.get(text)
        peak = self.peak_tflops or gpus.peak_at(workload.gpu_types.get(self.gpu), self.dtype)
        whole_days = all(days == int(days) for days in self.days_per_1t_tokens.values())
        return Figure(
            release=self.release,
            source=self.source,
            window=self.window.window,
            steps=self.steps,
            workload=workload.key,
            model_size=self.size,
            dtype=self.dtype,
            gpu_type=self.gpu,
            scale=scale,
            framework=self.framework or workload.framework,
            metric=metric,
            value=self.by_scale[text],
            parameters=values_of(workload.parameters_of(self.size), self.parameters),
            gbs=None if self.gbs is None else self.gbs.batch(scale),
            seq_length=self.seq_length,
            num_layers=self.layers,
            tokens_per_second=self.tokens_per_second.get(text),
            days_per_1t_tokens=self.days_per_1t_tokens.get(text),
            days_digits=0 if whole_days else 2,
            mfu=None if percent is None else round(percent / 100, 9),
            model_flops=None if percent is None else self.model_flops,
            flops_convention=None if percent is None else self.flops_convention,
            peak_tflops=None if percent is None else peak,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """The tables of one file."""

    tables: tuple[PublishedTable, ...]
    #: Another file of tables beside it.
    more: Path | None = None


def read_published(workload: Workload) -> tuple[Figure, ...]:
    """Return the published figures of ``workload``. Without a file there are none.

    Raises InputFaults with file, line and the nearest valid key.
    """
    figures: list[Figure] = []
    path = workload.published
    while path is not None:
        document = yamlfile.load_packaged(path)
        file = typed.read(_File, document)
        table_faults = [
            fault
            for number, entry in enumerate(file.tables)
            for fault in _faults(number, entry, workload, document)
        ]
        if table_faults:
            raise InputFaults(table_faults)
        figures += [figure for table in file.tables for figure in table.figures(workload)]
        if faults := _twice(figures, document):
            raise InputFaults(faults)
        path = None if file.more is None else path.parent / file.more
    return tuple(figures)


def _faults(
    number: int, table: PublishedTable, workload: Workload, document: yamlfile.Document
) -> Iterator[Fault]:
    """Yield the faults of a table that does not fit the workload."""
    for error in (
        *_unknown_names(table, workload),
        *(_missing(table) if workload.is_training else _in_excess(table, workload)),
    ):
        path = ("tables", number, *error.path)
        fault = error.as_fault(document.place(path))
        yield replace(fault, message=f"{dotted(path)}: {fault.message}", key=dotted(path))


def _unknown_names(table: PublishedTable, workload: Workload) -> Iterator[KeyFaultError]:
    """A size, a metric or a parameter that the workload does not have."""
    has_size = table.size in workload.sizes
    if not has_size:
        message, hint = (
            f"{workload.key} has no size '{table.size}'",
            names.suggest(table.size, list(workload.sizes)),
        )
        yield KeyFaultError(message, "size", hint=hint, code="size-unknown", value=table.size)
    frameworks = frameworks_in([workload])
    if table.framework is not None and workload.frameworks and table.framework not in frameworks:
        message, hint = (
            f"no framework '{table.framework}'",
            names.suggest(table.framework, frameworks),
        )
        code, value = "framework-unknown", table.framework
        yield KeyFaultError(message, "framework", hint=hint, code=code, value=value)
    metrics = [parameter.name for parameter in workload.all_metrics(table.size)] if has_size else []
    for path, name in (
        *((("metric",), table.metric),),
        *((("also", name), name) for name in table.also),
    ):
        if has_size and name is not None and name not in metrics:
            message, hint = (
                f"{workload.key} {table.size} has no metric '{name}'",
                names.suggest(name, metrics),
            )
            yield KeyFaultError(message, *path, hint=hint, code="metric-unknown", value=name)
    for name, values in table.also.items():
        for scale in values:
            if scale not in table.by_scale:
                yield KeyFaultError(
                    "is not a scale of the table", "also", name, int(scale), code="scale-unknown"
                )
    for name, value in table.parameters.items():
        parameter = workload.parameters.get(name)
        if parameter is None:
            message, hint = (
                f"{workload.key} has no parameter '{name}'",
                names.suggest(name, list(workload.parameters)),
            )
            yield KeyFaultError(
                message, "parameters", name, hint=hint, code="parameter-unknown", value=name
            )
            continue
        try:
            parameter.check(value, name)
        except KeyFaultError as error:
            yield KeyFaultError(
                str(error), "parameters", name, hint=error.hint, code=error.code, value=error.value
            )


def _missing(table: PublishedTable) -> Iterator[KeyFaultError]:
    """Yield an error for each key that a table of a model lacks."""
    missing = [name for name in _REQUIRED if getattr(table, name) is None]
    for name in [*missing, *([] if table.by_scale else ["step_time_s"])]:
        yield KeyFaultError(f"'{name}' is missing", code="key-missing", value=name)


def _in_excess(table: PublishedTable, workload: Workload) -> Iterator[KeyFaultError]:
    """Yield errors for the keys of a table without a model: missing, or only for models."""
    if not table.values:
        headline = workload.headline(table.size).name if table.size in workload.sizes else "busbw"
        hint = f"metric: {headline}, values: {{8: 480.2}}"
        yield KeyFaultError("'metric' is missing", hint=hint, code="key-missing", value="metric")
    plain = {field.name: field.default for field in fields(PublishedTable)}
    for name in _OF_TRAINING:
        if getattr(table, name) not in (plain[name], {}):
            message = f"{workload.key} trains no model"
            yield KeyFaultError(
                message, name, hint="remove the key", code="not-training", value=name
            )


def _twice(figures: Iterable[Figure], document: yamlfile.Document) -> list[Fault]:
    """A fault for each configuration with several figures of one metric in one release."""
    cases = Counter(
        (
            *(
                f.release,
                f.model_size,
                f.dtype,
                f.scale,
                f.gpu_type,
                f.gbs,
                f.seq_length,
                f.num_layers,
            ),
            *(f.metric.name, tuple(f.parameters.items()), f.framework),
        )
        for f in figures
    )
    return [
        Fault(
            place=document.name,
            message=f"release {case[0]} has {count} figures for {_in_words(case)}",
            hint="keep one of them",
            code="figure-duplicate",
            value=case,
        )
        for case, count in cases.items()
        if count > 1
    ]


def _in_words(case: tuple[Any, ...]) -> str:
    """Return size, dtype, scale, GPU type, batch or parameters, and metric of a figure."""
    _, size, dtype, scale, gpu_type, gbs, _, _, metric, parameters, _ = case
    parts = [f"{size} {dtype} on {scale} {gpu_type}", *([] if gbs is None else [f"batch {gbs}"])]
    return ", ".join([*parts, *(f"{name}={value}" for name, value in parameters), metric])
