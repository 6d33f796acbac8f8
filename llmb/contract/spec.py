# SPDX-License-Identifier: Apache-2.0
"""A workload and its sizes, as workload.yaml describes them."""

import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import field, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from llmb.contract.command import Command
from llmb.contract.failures import Failure
from llmb.contract.formats import ParseSpec
from llmb.contract.gpus import GpuType
from llmb.contract.metrics import ENERGY, TRAINING, MetricSpec, check_metrics
from llmb.contract.model import ModelShape, require_positive
from llmb.contract.nemo_recipe import NemoRecipe
from llmb.contract.parameters import Parameter, check_parameters
from llmb.contract.placeholders import check_placeholders
from llmb.contract.rows import (
    ProfileWindow,
    Row,
    Scales,
    check_unambiguous,
    check_word,
    refuse_of_training,
)
from llmb.contract.spec_checks import check_convertible, check_declared
from llmb.contract.switches import parse_image
from llmb.core import files, typed, yamlfile
from llmb.core.names import squash, suggest
from llmb.core.values import dataclass
from llmb.errors import Fault, InputFaults, KeyFaultError, LlmbError, UsageError, collected

if TYPE_CHECKING:
    from llmb.contract.job import Job
    from llmb.contract.launch import Launch, Site
    from llmb.contract.needs import Needs

    LaunchFunction = Callable[["Workload", Job, Site], Launch | Command | None]
    NeedsFunction = Callable[["Workload", Site], Needs | None]
else:  # a command that plans nothing need not import what a job is
    LaunchFunction = NeedsFunction = Callable


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLog:
    """A log of one run, to check a plugin with."""

    #: Relative to workload.yaml.
    file: Path
    #: Of that run, None for the default size.
    size: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The checkpoint of a size. GPU types that are missing were not tested.

    Below the least scale, loading may run out of GPU memory.
    """

    #: On disk.
    size_gb: float
    #: The tested scales, by GPU type.
    save: dict[str, Scales] = field(default_factory=dict)
    #: The least scale, by GPU type.
    load: dict[str, int] = field(default_factory=dict)


_SIZE_OF_TRAINING = (
    "pipeline_extra",
    "pipeline_layout",
    "proxy",
    "proxy_source",
    "learning_rate",
    "nemo",
    "recipe",
    "checkpoint",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One size with its rows: a model to train, or without ``model`` one case of a benchmark."""

    #: May be missing if ``bridge`` of the workload has some for it.
    rows: tuple[Row, ...] = ()
    #: Further names of it, such as another tool's.
    aliases: tuple[str, ...] = ()
    model: ModelShape | None = None
    #: The workload's metrics that it has, its headline first (default: all).
    metrics: tuple[str, ...] = ()
    #: The workload's parameters that it has (None: all).
    parameters: tuple[str, ...] | None = None
    #: Further layers in the pipeline split (2: embedding and loss).
    pipeline_extra: int = 0
    #: The framework's own list of stages divides the layers, unevenly: pp, vp and the number of
    #: layers of a job are those of its row.
    pipeline_layout: bool = False
    #: Only the scales of the rows are possible.
    exact_scales: bool = False
    #: Every scale from the least of the rows on is possible, not only those of the rows: the
    #: program does not depend on it.
    any_scale: bool = False
    #: A job uses all GPUs of its nodes.
    whole_nodes: bool = True
    #: The GPU types for which ``submit-all`` without a list includes it (None: all that it
    #: supports).
    discover: tuple[str, ...] | None = None
    #: The size that ``proxy: true`` in a job list selects.
    proxy: str | None = None
    #: Who trains it at the scales that it alone has, as in ``as in release 2``. llmb does so too,
    #: and says it.
    proxy_source: str = ""
    learning_rate: float = 3e-4
    #: None if NeMo has no recipe.
    nemo: NemoRecipe | None = None
    #: Settings of the workload's framework, which declares their names. With the plugin of that
    #: framework, they are a value of its class.
    recipe: Any = None
    #: None if none was published.
    checkpoint: Checkpoint | None = None
    #: Overrides the workload's.
    max_steps: int | None = None
    #: Overrides the workload's.
    time_limit_minutes: int | None = None

    def __post_init__(self) -> None:
        require_positive(self, unless=("pipeline_extra",))
        self._check_kind()
        check_unambiguous(self.rows, "rows")
        followed = {name for row in self.rows for name in row.releases}
        for name in self.nemo.releases if self.nemo is not None else ():
            if name not in followed:
                hint = suggest(name, sorted(followed))
                message, code = f"no row follows release '{name}'", "release-unknown"
                raise KeyFaultError(
                    message, "nemo", "releases", name, hint=hint, code=code, value=name
                )

    def _check_kind(self) -> None:
        """Raise KeyFaultError for a key that training needs, or that only training may have."""
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
        return list(
            dict.fromkeys(dtype for row in self.rows for dtype in row.dtype if row.fits(gpu, dtype))
        )

    def scales(self, gpu: str, dtype: str, *, strong: bool = False) -> list[int]:
        """The tested scales of this GPU type and dtype, ascending."""
        rows = (row for row in self.rows if row.fits(gpu, dtype) and row.strong_scaling == strong)
        return sorted({count for row in rows for count in row.scales.counts})


_FUNCTION_WORDS = ("gpu", "gpus", "dtype", "size")
_FUNCTION = re.compile(
    r"(?:[\w.]|\{WORDS\})+:(?:\w|\{WORDS\})+".replace("WORDS", f"(?:{'|'.join(_FUNCTION_WORDS)})")
)


def check_function(text: str) -> None:
    """Raise KeyFaultError unless ``text`` is ``module:name`` with known placeholders."""
    if not _FUNCTION.fullmatch(text):
        hint = "write module:name; it may contain {gpu}, {gpus}, {dtype} and {size}"
        raise KeyFaultError(
            f"'{text}' names no function", hint=hint, code="function-invalid", value=text
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeModel:
    """Megatron-Bridge trains the sizes of a workload, by the rows in its workload.yaml."""

    #: The function that returns the whole configuration, ``module:name``. It may contain ``{gpu}``,
    #: ``{gpus}``, ``{dtype}`` and ``{size}`` of the job, the last two without ``_`` or ``-``.
    #: Layout, batch and sequence length are those of the row.
    function: Annotated[str, check_function]
    #: The image release. None for the newest.
    release: str | None = None
    #: The repository whose files the function reads, None if it needs none.
    hub: str | None = None
    #: The files of ``hub``.
    files: tuple[str, ...] = ("config.json",)
    #: The repository asks for a token.
    gated: bool = False
    #: The rows by size, which NeMo does not train. They are keys of the sizes.
    rows: dict[str, tuple[Row, ...]] = field(
        default_factory=dict, hash=False, metadata=typed.INTERNAL
    )


NEMO = "nemo"  # the framework of a workload that names none
BRIDGE = "bridge"  # the framework that ``bridge`` of a workload is for


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRelease:
    """A release of a framework."""

    #: The reference of its container image.
    image: Annotated[str, parse_image]
    #: The versions of libraries in the image, by package.
    libraries: Mapping[str, str] = field(default_factory=dict)


#: The rows of a framework by size and by its release, the newest first.
RowsBySize = Mapping[str, Mapping[str, tuple[Row, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """What trains the models of workloads. Its functions are pure."""

    #: The word in ``framework`` of workload.yaml, of job lists and of results.
    name: str
    #: For people, such as ``Megatron-Bridge``.
    title: str
    #: More about it, for the question of ``llmb-install``. By default the title.
    description: str = ""
    #: Returns how a job starts, None if it cannot train the job at the site.
    launch: LaunchFunction
    #: Returns what a workload needs installed at the site.
    needs: NeedsFunction
    #: The package of its library, whose version in a job's image is part of a run's software.
    #: Empty if that is not recorded.
    library: str = ""
    #: The dtypes of its program, empty for any.
    dtypes: tuple[str, ...] = ()
    #: The frozen dataclass of ``recipe`` of a size, None if sizes have none.
    recipe: type | None = None
    #: How its logs are read, None for NeMo 2's step lines.
    parse: ParseSpec | None = None
    #: The first and the last iteration of the default window, as parts of a run's steps. None for
    #: those of NVIDIA's releases with NeMo 2, 0.22 and 0.88: iterations 11-44 of 50.
    window: tuple[float, float] | None = None
    #: Its releases by name, the newest first. A job of a release has its image.
    releases: Mapping[str, ImageRelease] = field(default_factory=dict)
    #: Returns the release of an image that contains it, by its reference or the name of its file,
    #: also one that is none of ``releases``. None for other images.
    image_release: Callable[[str], str | None] | None = None
    #: Returns the rows that it brings for a workload beside those of workload.yaml. Each of their
    #: releases is one of ``releases``.
    rows: Callable[["Workload"], RowsBySize] | None = None
    #: Returns a size of a workload as it trains it with its own rows. None if it only has no
    #: settings of another framework and no tested checkpoint.
    sized: Callable[["Workload", str], Size] | None = None
    #: The dtypes that another word for one may mean, the usual one first.
    spellings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Returns the meaning of such a word for a workload, a size, the word, a GPU type and a scale.
    #: None for the usual one.
    meaning: Callable[["Workload", str, str, str, int], str] | None = None
    #: Who published its rows, for sentences such as ``NVIDIA has configurations``.
    publisher: str = ""
    #: Its rows fit every scale: a job has the settings of the next lower one.
    any_scale: bool = False
    #: ``--set`` takes paths of its own configuration, such as ``optimizer.lr``.
    dotted: bool = False
    #: Nsight Systems profiles its jobs.
    nsys: bool = False

    def __post_init__(self) -> None:
        check_word(self.name, "name")
        for name in ("launch", "needs", "image_release", "rows", "sized", "meaning"):
            function = getattr(self, name)
            if not callable(function) and (name in ("launch", "needs") or function is not None):
                raise KeyFaultError("is no function", name, value=function)
        if self.recipe is not None and not is_dataclass(self.recipe):
            raise KeyFaultError("is no dataclass", "recipe", value=self.recipe)
        if self.window is not None and not 0 <= self.window[0] <= self.window[1] <= 1:
            raise KeyFaultError(
                "must be two ascending parts of the steps, from 0 to 1", "window", value=self.window
            )

    def release_of(self, image: str) -> str | None:
        """Return the release of an image that is known to contain it, None for others."""
        known = next((name for name, own in self.releases.items() if own.image == image), None)
        return known if known or self.image_release is None else self.image_release(image)

    def rows_for(self, workload: "Workload") -> RowsBySize:
        """Return the rows that it brings for ``workload``, none by default."""
        return {} if self.rows is None else self.rows(workload)

    def of_release(self, workload: "Workload", release: str) -> "Workload":
        """Return ``workload`` as ``release`` trains it: its image, sizes and rows."""
        rows = {
            name: by_release[release]
            for name, by_release in self.rows_for(workload).items()
            if by_release.get(release)
        }
        sizes = {name: self._size(workload, name, rows) for name in rows}
        default, dtype = workload.default_size, workload.default_dtype
        usual, *_ = self.spellings.get(dtype, (dtype,))
        return replace(
            workload,
            sizes=sizes,
            default_size=default if default in sizes else next(iter(sizes)),
            default_dtype=dtype if dtype in self.dtypes else usual,
            image=self.releases[release].image,
            profiles={},
        )

    def _size(self, workload: "Workload", name: str, rows: Mapping[str, tuple[Row, ...]]) -> Size:
        size = workload.sizes[name] if self.sized is None else self.sized(workload, name)
        return replace(
            size,
            rows=rows[name],
            proxy=size.proxy if size.proxy in rows else None,
            nemo=None,
            recipe=None,
            checkpoint=None,
        )

    def spelled(
        self,
        dtype: str,
        dtypes: Collection[str],
        workload: "Workload",
        size: str,
        gpu: str,
        scale: int,
    ) -> str:
        """Return what ``dtype`` means if ``dtypes`` has only that, else ``dtype``."""
        if dtype in dtypes or dtype not in self.spellings:
            return dtype
        word = self.spellings[dtype][0]
        if self.meaning is not None:
            word = self.meaning(workload, size, dtype, gpu, scale)
        return word if word in dtypes else dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A benchmark. Either all of its sizes have a model or none."""

    #: Its name.
    key: str
    title: str
    #: Further names of it, such as another tool's.
    aliases: tuple[str, ...] = ()
    #: By name. Without any, and without a model, it has one size ``default`` for one GPU.
    sizes: dict[str, Size] = field(default_factory=dict)
    #: By default the first size.
    default_size: str = ""
    #: By default the first of the default size.
    default_dtype: str = ""
    #: Its container image, None if it needs none.
    image: Annotated[str, parse_image] | None = None
    max_steps: int = 50
    time_limit_minutes: int = 20
    #: The steps to profile with NeMo, by release. Rows of other releases use those of the newest
    #: release; without any, the last steps are profiled.
    profiles: dict[str, ProfileWindow] = field(default_factory=dict)
    #: The file of its published figures (llmb.plan.published), in YAML relative to the workload's
    #: file.
    published: Path | None = None
    #: The function with which Megatron-Bridge trains its sizes, or the file of rows for it
    #: (llmb.builtin.bridge.bridge_rows), likewise. None if it does not train them.
    bridge: BridgeModel | Path | None = None
    #: What trains its sizes by their rows.
    framework: str = NEMO
    #: What it measures, the headline first. A workload that trains a model also has the metrics of
    #: training, whose headline is the step time.
    metrics: Annotated[tuple[MetricSpec, ...], check_metrics] = ()
    #: The metrics that verdicts are about; empty for all that have a reference.
    judge: tuple[str, ...] = ()
    #: Of its own, by name.
    parameters: Annotated[dict[str, Parameter], check_parameters] = field(default_factory=dict)
    #: How its jobs start, for a plugin without ``llmb_launch``. Words in braces are of the job.
    launch: Command | None = None
    #: How its logs are read, for a plugin without ``llmb_parse``.
    parse: ParseSpec | None = None
    #: Causes of failures in its logs, after those that llmb knows.
    failures: tuple[Failure, ...] = ()
    #: GPU types that llmb does not know, by name.
    gpu_types: dict[str, GpuType] = field(default_factory=dict)
    #: A log to check the plugin with.
    sample_log: SampleLog | None = None
    #: The YAML that it was read from, None otherwise. It is no key of the YAML.
    file: Path | None = field(default=None, compare=False)
    #: The frameworks of llmb and of all plugins, by name.
    frameworks: Mapping[str, Framework] = field(
        default_factory=dict, compare=False, metadata=typed.INTERNAL
    )

    def __post_init__(self) -> None:
        require_positive(self)
        self._complete()
        check_word(self.key, "key")
        check_word(self.framework, "framework")
        for name in self.gpu_types:
            check_word(name, "gpu_types", name)
        for name in self.sizes:
            check_word(name, "sizes", name)
        if self.default_size not in self.sizes:
            hint = suggest(self.default_size, list(self.sizes))
            message, code = f"'{self.default_size}' is not one of its sizes", "size-unknown"
            raise KeyFaultError(message, "default_size", hint=hint, code=code)
        self._check_aliases()
        for name, size in self.sizes.items():
            if size.proxy is not None and size.proxy not in self.sizes:
                hint = suggest(size.proxy, list(self.sizes))
                message, code = f"'{size.proxy}' is not one of the sizes", "size-unknown"
                raise KeyFaultError(message, "sizes", name, "proxy", hint=hint, code=code)
        self._check_kind()
        self._check_hooks()

    def _check_aliases(self) -> None:
        """Raise KeyFaultError for an alias of a size that is another size's name too."""
        names = {squash(name): name for name in self.sizes}
        for name, size in self.sizes.items():
            for number, alias in enumerate(size.aliases):
                owner = names.setdefault(squash(alias), name)
                if owner != name:
                    raise KeyFaultError(
                        f"'{alias}' names {owner} too",
                        *("sizes", name, "aliases", number),
                        hint="omit it",
                        code="name-duplicate",
                        value=alias,
                    )

    def _complete(self) -> None:
        """Fill in the defaults that follow from the sizes."""
        if not self.sizes:
            object.__setattr__(self, "sizes", {"default": Size(rows=(Row(),), whole_nodes=False)})
        if not self.default_size:
            object.__setattr__(self, "default_size", next(iter(self.sizes)))
        if not self.default_dtype and self.default_size in self.sizes:
            rows = self.sizes[self.default_size].rows
            object.__setattr__(self, "default_dtype", rows[0].dtype[0] if rows else "bf16")
        if isinstance(self.bridge, BridgeModel) and not self.bridge.rows:
            self._give_rows(self.bridge)

    def _give_rows(self, bridge: BridgeModel) -> None:
        """Make the rows of the sizes those of Megatron-Bridge. Raises KeyFaultError."""
        for name, size in self.sizes.items():
            if not size.rows:
                hint = "write {gpu: h100, dtype: bf16, scales: 8, mbs: 1, gbs: 16N}"
                raise KeyFaultError(
                    "has no row", "sizes", name, "rows", hint=hint, code="rows-missing"
                )
        rows = {name: size.rows for name, size in self.sizes.items()}
        sizes = {name: replace(size, rows=()) for name, size in self.sizes.items()}
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "bridge", replace(bridge, rows=rows))

    def _check_hooks(self) -> None:
        """Raise KeyFaultError for a launch or a format of logs that can never be right."""
        with _below("launch"):
            if self.launch is not None:
                check_placeholders(self.launch, list(self.parameters))
        with _below("parse"):
            if self.parse is not None:
                _check_format(self.parse, self.metrics)

    def _check_kind(self) -> None:
        """Raise KeyFaultError if only some sizes have a model or rows, and for faulty metrics."""
        for name, size in self.sizes.items():
            if not size.rows and self.bridge is None:
                hint = "write {gpu: h100, dtype: bf16, scales: 8..64, mbs: 1, gbs: 4N}"
                path = ("sizes", name, "rows")
                raise KeyFaultError("has no row", *path, hint=hint, code="rows-missing")
            if self.is_training and size.model is None:
                message, hint = (
                    "'model' is missing, other sizes have one",
                    "give all sizes a model, or none",
                )
                raise KeyFaultError(
                    message, "sizes", name, hint=hint, code="key-missing", value="model"
                )
            _check_names(
                size.metrics,
                [spec.name for spec in self.metrics],
                "metric",
                "sizes",
                name,
                "metrics",
            )
            _check_names(
                size.parameters or (),
                list(self.parameters),
                "parameter",
                "sizes",
                name,
                "parameters",
            )
        _check_names(self.judge, [spec.name for spec in self.metrics], "metric", "judge")
        if not self.is_training and not self.metrics:
            message = "'metrics' is missing: no size has a model"
            hint = "write metrics: [{name: busbw, unit: GB/s}], or give each size a model"
            raise KeyFaultError(message, hint=hint, code="key-missing", value="metrics")
        if not self.is_training and self.profiles:
            hint = "omit it, or give each size a model"
            raise KeyFaultError("is for training", "profiles", hint=hint, code="not-training")

    def known_to(self, frameworks: Mapping[str, Framework]) -> "Workload":
        """Return the workload with ``frameworks`` and with recipes that its framework has read.

        Raises InputFaults with every fault of a recipe, and for a framework that no plugin brings.
        """
        workload = copy(self)  # replace() would check all of it again
        object.__setattr__(workload, "frameworks", frameworks)
        if self.framework == NEMO and all(size.recipe is None for size in self.sizes.values()):
            return workload
        document = yamlfile.Document(name=self.key, data={})
        if self.file is not None:
            document = yamlfile.load_packaged(self.file)
        framework = frameworks.get(self.framework)
        if framework is None:
            fault = Fault(
                place=document.place(("framework",)),
                message=f"framework: no installed plugin has the framework '{self.framework}'",
                hint=suggest(self.framework, list(frameworks)),
                code="framework-unknown",
                key="framework",
                value=self.framework,
            )
            raise InputFaults([fault])
        faults, sizes = list[Fault](), dict(self.sizes)
        for name, size in self.sizes.items():
            with collected(faults):
                sizes[name] = replace(size, recipe=_recipe_of(size, name, framework, document))
        if faults:
            raise InputFaults(faults)
        object.__setattr__(workload, "sizes", sizes)
        return workload

    def brought(self) -> Iterator[tuple[Framework, RowsBySize]]:
        """Yield the frameworks that bring rows for the workload, with these rows."""
        for framework in self.frameworks.values():
            rows = framework.rows_for(self)
            if rows:
                yield framework, rows

    def headline(self, size: str) -> MetricSpec:
        """The metric that verdicts on ``size`` are about."""
        return self.all_metrics(size)[0]

    def all_metrics(self, size: str) -> tuple[MetricSpec, ...]:
        """Return every metric of ``size``, the headline first: of training, then its own."""
        declared = {
            spec.name: replace(spec, judged=spec.name in self.judge) if self.judge else spec
            for spec in self.metrics
        }
        chosen = self.sizes[size].metrics or declared
        return (*(TRAINING if self.is_training else ()), *(declared[name] for name in chosen))

    def metric_names(self, size: str) -> tuple[str, ...]:
        """Return every metric that a result of ``size`` may have, also energy, which GPUs log."""
        return tuple(spec.name for spec in (*self.all_metrics(size), *ENERGY))

    def parameters_of(self, size: str) -> dict[str, Parameter]:
        """The parameters of ``size``, by name."""
        chosen = self.sizes[size].parameters
        return (
            self.parameters if chosen is None else {name: self.parameters[name] for name in chosen}
        )

    @property
    def is_training(self) -> bool:
        """Return True if its sizes are models to train."""
        return any(size.model is not None for size in self.sizes.values())

    def on(self, gpu: str) -> dict[str, Size]:
        """The sizes that support the GPU type ``gpu``."""
        return {name: size for name, size in self.sizes.items() if size.dtypes(gpu)}


@contextmanager
def _below(key: str) -> Iterator[None]:
    """Add ``key`` to the path of a KeyFaultError in the block."""
    try:
        yield
    except KeyFaultError as error:
        error.path = (key, *error.path)
        raise


#: Fields of a ParseSpec that are no keys of the YAML.
_FILLED_IN = ("samples", "source", "metrics", "metric_units")


def _check_format(spec: ParseSpec, metrics: Sequence[MetricSpec]) -> None:
    """Raise KeyFaultError for a name that the workload does not declare, or a field of llmb's."""
    for name in _FILLED_IN:
        if getattr(spec, name):
            raise KeyFaultError(f"'{name}' is not a key here", name, code="key-unknown", value=name)
    if spec.is_default:
        return
    check_declared(spec.keys, [metric.name for metric in metrics], spec.patterns)
    check_convertible(spec.units, {metric.name: metric.unit for metric in metrics})


def _check_names(names: Sequence[str], declared: Sequence[str], kind: str, *path: str) -> None:
    """Raise KeyFaultError for the first name of a ``kind`` that is not ``declared``, or twice."""
    for number, name in enumerate(names):
        if name not in declared:
            message, hint = f"'{name}' is not a {kind} of the workload", suggest(name, declared)
            raise KeyFaultError(
                message, *path, number, hint=hint, code=f"{kind}-unknown", value=name
            )
        if name in names[:number]:
            raise KeyFaultError(
                f"'{name}' is there twice", *path, number, code="name-duplicate", value=name
            )


def _recipe_of(size: Size, name: str, framework: Framework, document: yamlfile.Document) -> Any:
    """Return the recipe of a size as ``framework`` reads it. Raises InputFaults."""
    path = ("sizes", name, "recipe")
    kind, data = framework.recipe, size.recipe
    if kind is None:
        if data is None:
            return None
        fault = Fault(
            place=document.place(path),
            message=f"{yamlfile.dotted(path)}: {framework.title} takes no recipe",
            hint="omit it",
            code="key-unknown",
            key=yamlfile.dotted(path),
        )
        raise InputFaults([fault])
    if isinstance(data, kind):
        return data
    if data is None or not document.data:
        values = {} if data is None else data
        document = replace(document, data={"sizes": {name: {"recipe": values}}})
    return typed.read(kind, document, path)


def read_workload(path: str | Path) -> Workload:
    """Read a workload from YAML. Raises InputFaults with file, line, key and nearest valid key."""
    path = Path(path)
    document = yamlfile.load_packaged(path)
    _complete_launch(document, path.parent)
    workload = typed.read(Workload, document)
    if workload.file is not None:
        place, message = document.place(("file",)), "file: 'file' is not a key here"
        raise InputFaults(
            [Fault(place=place, message=message, code="key-unknown", key="file", value="file")]
        )
    published, bridge = (
        path.parent / file if isinstance(file, Path) else file
        for file in (workload.published, workload.bridge)
    )
    values: dict[str, Any] = {"published": published, "bridge": bridge}
    return replace(workload, file=path, **values)


_OF_A_SHELL = frozenset(("|", "||", "&&", "&", ";", ">", ">>", "<", "2>", "2>&1", "&>"))

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def _complete_launch(document: yamlfile.Document, folder: Path) -> None:
    """Write the short forms of ``launch`` in full.

    A program and its arguments are a command line, and a file is the name of one beside the YAML.
    Raises InputFaults.
    """
    launch = document.data.get("launch") if isinstance(document.data, dict) else None
    if not isinstance(launch, dict):
        return
    server = launch.get("server")
    parts = [(launch, ()), *([(server, ("server",))] if isinstance(server, dict) else [])]
    for values, path in parts:
        for name in ("program", "after"):
            if isinstance(values.get(name), str):
                values[name] = {"argv": _words_of(document, values[name], (*path, name))}
        if isinstance(values.get("args"), str):
            values["args"] = _words_of(document, values["args"], (*path, "args"))
    names = launch.get("files")
    names = [names] if isinstance(names, str) else names
    if isinstance(names, list):
        launch["files"] = [
            {"name": name, "text": _text_of(document, folder / name, number)}
            if isinstance(name, str)
            else name
            for number, name in enumerate(names)
        ]


def _words_of(document: yamlfile.Document, line: str, path: yamlfile.KeyPath) -> list[str]:
    try:
        words = shlex.split(line)
    except ValueError as error:
        message, hint = f"is no command line: {error}", "close each quote, as in a shell"
        raise InputFaults([_fault(document, path, message, hint, line)]) from None
    operators = [word for word in _QUOTED.sub("''", line).split() if word in _OF_A_SHELL]
    if operators:
        message = f"'{operators[0]}' is for a shell, and none reads this line"
        hint = "write program: {shell: ...}, or quote it if it is an argument"
        raise InputFaults([_fault(document, path, message, hint, line)])
    return words


def _text_of(document: yamlfile.Document, file: Path, number: int) -> str:
    try:
        return files.read_text(file)
    except LlmbError as error:
        hint = "write the name of a file beside this one, or {name: NAME, text: TEXT}"
        path = ("files", number)
        raise InputFaults([_fault(document, path, error.message, hint, str(file))]) from error


def _fault(
    document: yamlfile.Document, path: yamlfile.KeyPath, message: str, hint: str, value: str
) -> Fault:
    key = yamlfile.dotted(("launch", *path))
    return Fault(
        place=document.place(("launch", *path)),
        message=f"{key}: {message}",
        hint=hint,
        code="value-invalid",
        key=key,
        value=value,
    )
