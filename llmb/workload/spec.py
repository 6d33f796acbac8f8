# SPDX-License-Identifier: Apache-2.0
"""A workload and its sizes, as workload.yaml describes them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from llmb.errors import Fault, InputFaults, KeyFaultError, UsageError
from llmb.stats.metrics import TRAINING, MetricSpec, check_metrics
from llmb.text import typed, yamlfile
from llmb.text.names import suggest
from llmb.workload.gpus import GpuType
from llmb.workload.model import ModelShape, require_positive
from llmb.workload.nemo_recipe import NemoRecipe
from llmb.workload.parameters import Parameter, check_parameters
from llmb.workload.rows import ProfileWindow, Row, Scales, check_unambiguous, check_word, refuse_of_training
from llmb.workload.switches import parse_image


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLog:
    """A log of one run. ``file``: relative to workload.yaml; ``size``: of that run, None for the default size."""

    file: Path
    size: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The checkpoint of a size: ``size_gb`` on disk; by GPU type, the scales for ``save`` and the least for ``load``.

    Missing GPU types were not tested. Below the least scale, loading may run out of GPU memory.
    """

    size_gb: float
    save: dict[str, Scales] = field(default_factory=dict)
    load: dict[str, int] = field(default_factory=dict)


_SIZE_OF_TRAINING = ("pipeline_extra", "proxy", "learning_rate", "nemo", "checkpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One size with its rows: a model to train, or without ``model`` one case of a benchmark that trains nothing.

    ``metrics``: which of the workload's metrics it has, its headline first (default: all);
    ``parameters``: which of the workload's parameters it has (None: all);
    ``pipeline_extra``: further layers in the pipeline split (2: embedding and loss);
    ``exact_scales``: only the scales of the rows are possible;
    ``whole_nodes``: a job uses all GPUs of its nodes;
    ``discover``: the GPU types for which ``submit-all`` without a list includes it (None: all that it supports);
    ``proxy``: the size that ``proxy: true`` in a job list selects;
    ``nemo``: None if NeMo has no recipe; ``checkpoint``: None if none was published;
    ``max_steps``, ``time_limit_minutes``: override the workload's.
    """

    rows: tuple[Row, ...]
    model: ModelShape | None = None
    metrics: tuple[str, ...] = ()
    parameters: tuple[str, ...] | None = None
    pipeline_extra: int = 0
    exact_scales: bool = False
    whole_nodes: bool = True
    discover: tuple[str, ...] | None = None
    proxy: str | None = None
    learning_rate: float = 3e-4
    nemo: NemoRecipe | None = None
    checkpoint: Checkpoint | None = None
    max_steps: int | None = None
    time_limit_minutes: int | None = None

    def __post_init__(self) -> None:
        require_positive(self, unless=("pipeline_extra",))
        if not self.rows:
            hint = "{gpu: h100, dtype: bf16, scales: 8..64, mbs: 1, gbs: 4N}"
            raise KeyFaultError("has no row", "rows", hint=f"write {hint}", code="rows-missing")
        self._check_kind()
        check_unambiguous(self.rows, "rows")
        followed = {name for row in self.rows for name in row.releases}
        for name in self.nemo.releases if self.nemo is not None else ():
            if name not in followed:
                hint = suggest(name, sorted(followed))
                message, code = f"no row follows release '{name}'", "release-unknown"
                raise KeyFaultError(message, "nemo", "releases", name, hint=hint, code=code, value=name)

    def _check_kind(self) -> None:
        """Raise KeyFaultError for a key that training needs, or that a size without a model may not have."""
        if self.model is None:
            refuse_of_training(self, _SIZE_OF_TRAINING)
        for number, row in enumerate(self.rows):
            try:
                row.check_kind(is_training=self.model is not None)
            except KeyFaultError as error:
                error.path = ("rows", number, *error.path)
                raise

    @property
    def trained_model(self) -> ModelShape:
        """Its ``model``. Raises UsageError for a size that trains none."""
        if self.model is None:
            raise UsageError("this size trains no model", code="not-training", key="model")
        return self.model

    def gpu_types(self) -> list[str]:
        """The GPU types of its rows, including ``any``, in the order of the rows."""
        return list(dict.fromkeys(gpu for row in self.rows for gpu in row.gpu))

    def dtypes(self, gpu: str) -> list[str]:
        """The dtypes that it supports on ``gpu``, in the order of the rows."""
        return list(dict.fromkeys(dtype for row in self.rows for dtype in row.dtype if row.fits(gpu, dtype)))

    def scales(self, gpu: str, dtype: str, *, strong: bool = False) -> list[int]:
        """The tested scales of this GPU type and dtype, ascending."""
        rows = (row for row in self.rows if row.fits(gpu, dtype) and row.strong_scaling == strong)
        return sorted({count for row in rows for count in row.scales.counts})


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A benchmark: ``key`` is its name, ``image`` its container image, None if it needs none.

    ``profiles``: the steps to profile with NeMo, by release. Rows of other releases use those of the newest release;
    without any, the last steps are profiled.
    ``published``: the file of its published figures (llmb.workload.published), in YAML relative to the workload's file.
    ``bridge``: the file of its rows for Megatron-Bridge (llmb.workload.bridge), likewise, None without any.
    ``metrics``: what it measures, the headline first; a workload that trains a model also has those of training, whose
    headline is the step time. Either all of its sizes have a model or none. ``parameters``: of its own, by name.
    ``gpu_types``: GPU types that llmb does not know, by name. ``sample_log``: a log to check the plugin with.
    ``file``: the YAML that it was read from, None otherwise; it is not a key of the YAML.
    """

    key: str
    title: str
    sizes: dict[str, Size]
    default_size: str
    default_dtype: str
    image: Annotated[str, parse_image] | None = None
    max_steps: int = 50
    time_limit_minutes: int = 20
    profiles: dict[str, ProfileWindow] = field(default_factory=dict)
    published: Path | None = None
    bridge: Path | None = None
    metrics: Annotated[tuple[MetricSpec, ...], check_metrics] = ()
    parameters: Annotated[dict[str, Parameter], check_parameters] = field(default_factory=dict)
    gpu_types: dict[str, GpuType] = field(default_factory=dict)
    sample_log: SampleLog | None = None
    file: Path | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        require_positive(self)
        check_word(self.key, "key")
        for name in self.gpu_types:
            check_word(name, "gpu_types", name)
        for name in self.sizes:
            check_word(name, "sizes", name)
        if self.default_size not in self.sizes:
            hint = suggest(self.default_size, list(self.sizes))
            message, code = f"'{self.default_size}' is not one of its sizes", "size-unknown"
            raise KeyFaultError(message, "default_size", hint=hint, code=code)
        for name, size in self.sizes.items():
            if size.proxy is not None and size.proxy not in self.sizes:
                hint = suggest(size.proxy, list(self.sizes))
                message, code = f"'{size.proxy}' is not one of the sizes", "size-unknown"
                raise KeyFaultError(message, "sizes", name, "proxy", hint=hint, code=code)
        self._check_kind()

    def _check_kind(self) -> None:
        """Raise KeyFaultError where only some sizes have a model, and for metrics that are missing or unknown."""
        for name, size in self.sizes.items():
            if self.is_training and size.model is None:
                message, hint = "'model' is missing, other sizes have one", "give all sizes a model, or none"
                raise KeyFaultError(message, "sizes", name, hint=hint, code="key-missing", value="model")
            _check_names(size.metrics, [spec.name for spec in self.metrics], "metric", "sizes", name, "metrics")
            _check_names(size.parameters or (), list(self.parameters), "parameter", "sizes", name, "parameters")
        if not self.is_training and not self.metrics:
            message = "'metrics' is missing: no size has a model"
            hint = "write metrics: [{name: busbw, unit: GB/s}], or give each size a model"
            raise KeyFaultError(message, hint=hint, code="key-missing", value="metrics")
        if not self.is_training and self.profiles:
            hint = "omit it, or give each size a model"
            raise KeyFaultError("is for training", "profiles", hint=hint, code="not-training")

    def headline(self, size: str) -> MetricSpec:
        """The metric that verdicts on ``size`` are about."""
        return self.all_metrics(size)[0]

    def all_metrics(self, size: str) -> tuple[MetricSpec, ...]:
        """Every metric of ``size``, the headline first: those of training if it trains a model, then its own."""
        own = {spec.name: spec for spec in self.metrics}
        chosen = self.sizes[size].metrics or own
        return (*(TRAINING if self.is_training else ()), *(own[name] for name in chosen))

    def parameters_of(self, size: str) -> dict[str, Parameter]:
        """The parameters of ``size``, by name."""
        chosen = self.sizes[size].parameters
        return self.parameters if chosen is None else {name: self.parameters[name] for name in chosen}

    @property
    def is_training(self) -> bool:
        """Whether its sizes are models to train."""
        return any(size.model is not None for size in self.sizes.values())

    def on(self, gpu: str) -> dict[str, Size]:
        """The sizes that support the GPU type ``gpu``."""
        return {name: size for name, size in self.sizes.items() if size.dtypes(gpu)}


def _check_names(names: Sequence[str], known: Sequence[str], kind: str, *path: str) -> None:
    """Raise KeyFaultError for the first name of this ``kind`` that is not ``known``, or is there twice."""
    for number, name in enumerate(names):
        if name not in known:
            message, hint = f"'{name}' is not a {kind} of the workload", suggest(name, known)
            raise KeyFaultError(message, *path, number, hint=hint, code=f"{kind}-unknown", value=name)
        if name in names[:number]:
            raise KeyFaultError(f"'{name}' is there twice", *path, number, code="name-duplicate", value=name)


def read_workload(path: str | Path) -> Workload:
    """Read the workload in a YAML file. Raises InputFaults with file, line, key and the nearest valid key."""
    path = Path(path)
    document = yamlfile.load(path)
    workload = typed.read(Workload, document)
    if workload.file is not None:
        place, message = document.place(("file",)), "file: 'file' is not a key here"
        raise InputFaults([Fault(place=place, message=message, code="key-unknown", key="file", value="file")])
    published, bridge = (None if file is None else path.parent / file for file in (workload.published, workload.bridge))
    return replace(workload, file=path, published=published, bridge=bridge)
