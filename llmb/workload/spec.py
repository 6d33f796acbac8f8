# SPDX-License-Identifier: Apache-2.0
"""What a workload is: its sizes, and for each the parallelism and batch on each GPU type, dtype and scale."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from llmb.errors import Fault, InputFaults
from llmb.text import typed, yamlfile
from llmb.text.names import suggest
from llmb.workload.model import ModelShape, require_positive
from llmb.workload.switches import parse_image

ANY_GPU = "any"
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def _check_word(name: str, *path: str) -> None:
    """Raise KeyFaultError at ``path`` for a name that cannot stand in a folder's name and a job's."""
    if not _WORD.fullmatch(name):
        hint = "it becomes part of folders' and jobs' names"
        raise typed.KeyFaultError(f"'{name}' must be of letters, digits and - _ .", *path, hint=hint)


@dataclass(frozen=True, slots=True)
class BatchRule:
    """The global batch as a function of the GPU count N: ``times``·N / ``over``, written ``4N`` or ``N/2``.

    ``times`` without ``over`` is a batch that does not depend on N.
    """

    text: str
    times: int
    over: int | None

    @classmethod
    def parse(cls, value: Any) -> BatchRule:
        """Read ``4N``, ``N``, ``N/4`` or a whole number. Raises ValueError."""
        text = str(value).replace(" ", "")
        if re.fullmatch(r"[1-9]\d*", text):
            return cls(text, int(text), None)
        match = re.fullmatch(r"([1-9]\d*)?N(?:/([1-9]\d*))?", text)
        if match is None:
            raise ValueError(f"'{value}' is not a batch: write 4N, N/4 or a whole number (N: the GPU count)")
        return cls(text, int(match[1] or 1), int(match[2] or 1))

    def unparse(self) -> str:
        """The text that ``parse`` reads."""
        return self.text

    def batch(self, gpus: int) -> int | None:
        """The global batch in samples at ``gpus``, None where it does not come out whole."""
        if self.over is None:
            return self.times
        return None if self.times * gpus % self.over else self.times * gpus // self.over


@dataclass(frozen=True, slots=True)
class Scales:
    """GPU counts, ascending. Written as a list, or as ``16..2048`` for the powers of two between both ends."""

    counts: tuple[int, ...]

    @classmethod
    def parse(cls, value: Any) -> Scales:
        """Read one count, a list of counts, or ``first..last``. Raises ValueError."""
        match = re.fullmatch(r"(\d+)\.\.(\d+)", value) if isinstance(value, str) else None
        if match is not None:
            first, last = int(match[1]), int(match[2])
            counts = [first << power for power in range(64) if first and first << power <= last]
            if not counts or counts[-1] != last:
                raise ValueError(f"'{value}': doubling {first} does not end at {last}")
            return cls(tuple(counts))
        counts = value if isinstance(value, list) else [value]
        if not counts or any(type(count) is not int or count < 1 for count in counts):
            raise ValueError(f"'{value}' are not scales: write [8, 16] or 8..128")
        return cls(tuple(sorted(set(counts))))

    def unparse(self) -> list[int]:
        """The list that ``parse`` reads."""
        return list(self.counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileWindow:
    """The steps that a release profiles, from ``start`` on; the run ends at ``stop``.

    ``measured_too``: ENABLE_PROFILE of its launch script ran a measured job beside the profiled one.
    """

    start: int
    stop: int
    measured_too: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop:
            raise typed.KeyFaultError(f"steps {self.start} to {self.stop} are none", "stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a workload's table: the parallelism and batch for these GPU types, dtypes and scales.

    ``tp``/``pp``/``cp``/``ep``: ways of tensor, pipeline, context and expert parallelism; ``vp``: virtual pipeline
    stages, None without; ``mbs``: micro batch in samples; ``layers``: where a row has fewer than its size;
    ``strong_scaling``: the batch stays while the scale grows, taken only when asked for. ``cuda_graphs``: the step is
    captured and replayed. ``userbuffers``: by dtype, NeMo's configuration of the overlap of tensor parallelism with
    computing (its module recipes.tp_overlap_configs.userbuffers); a dtype without one keeps the recipe's own.
    ``memory_gb``: what one GPU must have, None where nothing is said. ``releases``: the published releases whose
    settings its scales follow, those of their newest figures; a row without any has the settings of NeMo 2.3.1.
    """

    gpu: tuple[str, ...]
    dtype: tuple[str, ...]
    scales: Scales
    tp: int = 1
    pp: int = 1
    cp: int = 1
    vp: int | None = None
    ep: int = 1
    mbs: int
    gbs: BatchRule
    layers: int | None = None
    strong_scaling: bool = False
    time_limit_minutes: int | None = None
    cuda_graphs: bool = False
    userbuffers: dict[str, str | None] = field(default_factory=dict)
    memory_gb: float | None = None
    releases: dict[str, Scales] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.gpu or not self.dtype:
            raise ValueError("a row is for at least one gpu and one dtype")
        for dtype in self.dtype:
            _check_word(dtype, "dtype")
        require_positive(self)
        for dtype in self.userbuffers:
            if dtype not in self.dtype:
                hint = f"the row is for {', '.join(self.dtype)}"
                raise typed.KeyFaultError(f"'{dtype}' is not a dtype of this row", "userbuffers", dtype, hint=hint)
        if self.releases and [count for count, _ in self._releases()] != [*self.scales.counts]:
            raise typed.KeyFaultError("each scale of the row must be of one release", "releases")

    def _releases(self) -> list[tuple[int, str]]:
        return sorted((count, name) for name, scales in self.releases.items() for count in scales.counts)

    def release(self, scale: int) -> str | None:
        """The release whose settings a job of ``scale`` GPUs follows: that of the nearest tested scale below it."""
        known = self._releases()
        return next((name for count, name in reversed(known) if count <= scale), known[0][1] if known else None)

    def fits(self, gpu: str, dtype: str) -> bool:
        """Whether the row is for this GPU type and dtype."""
        return dtype in self.dtype and (gpu in self.gpu or ANY_GPU in self.gpu)


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoRelease:
    """What one published release sets differently from its size's NemoRecipe; fields as there, None: no difference.

    A variable of ``environment`` without a value is not set at all.
    """

    attention_backend: str | None = None
    cross_entropy: str | None = None
    precision_aware_optimizer: bool | None = None
    environment: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoRecipe:
    """How NeMo 2 builds a size: ``recipe`` is a module of nemo.collections.llm.recipes, used in performance mode.

    ``model``: the module whose model is trained, where it is another one; ``attention_backend``: a member of Megatron's
    AttnBackend, None for the model's own; ``cross_entropy``: Megatron's ``te`` or ``native``;
    ``precision_aware_optimizer``: whether dtype bf16 keeps the optimizer's states in lower precision;
    ``wgrad_deferral_limit``: how many micro batches' gradients of the output layer wait for the pipeline to drain, None
    where none do; ``releases``: what published releases set differently.
    ``flops_name``: what NeMo's FLOPs callback calls the model; ``vocab``: of the null tokenizer, in tokens, which NeMo
    adds the end of a document to;
    ``hub_tokenizer``: the model hub's repository with the model's own, ``gated`` when reading it needs a token;
    ``fp8_plugin``: the precision that dtype fp8 stands for (recipes.precision.mixed_precision); ``environment``: what
    this model's ranks need beside the variables of all NeMo jobs.
    """

    recipe: str
    flops_name: str
    vocab: int
    model: str | None = None
    attention_backend: str | None = None
    cross_entropy: str = "te"
    precision_aware_optimizer: bool = True
    wgrad_deferral_limit: int | None = None
    hub_tokenizer: str | None = None
    gated: bool = False
    fp8_plugin: str = "bf16_with_fp8_mixed"
    environment: dict[str, str] = field(default_factory=dict)
    releases: dict[str, NemoRelease] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_positive(self)

    def of(self, release: str | None) -> NemoRecipe:
        """The recipe with what ``release`` sets differently; one that is not in ``releases`` has no differences."""
        own = self.releases.get(release or "", NemoRelease())
        names = ("attention_backend", "cross_entropy", "precision_aware_optimizer")
        changes: dict[str, Any] = {name: getattr(own, name) for name in names if getattr(own, name) is not None}
        variables = {**self.environment, **own.environment}
        changes["environment"] = {name: value for name, value in variables.items() if value is not None}
        return replace(self, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A size's checkpoint: ``size_gb`` on disk, by GPU type the scales that saving and the least that loading works at.

    A GPU type that is missing was not tested. Below the least scale a load may run out of GPU memory.
    """

    size_gb: float
    save: dict[str, Scales] = field(default_factory=dict)
    load: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One size of a model with its rows.

    ``pipeline_extra``: layers beside the transformer's that the pipeline split counts (2: embedding and loss);
    ``exact_scales``: no scale beside the rows' own; ``whole_nodes``: a job takes all GPUs of its nodes;
    ``discover``: the GPU types for which ``submit-all`` without a list takes it (None: all that it supports, empty: no
    type);
    ``proxy``: the size that ``proxy: true`` of a job list stands for; ``nemo``: None where NeMo has no recipe;
    ``checkpoint``: None where none was published; ``max_steps``, ``time_limit_minutes``: where they are not the
    workload's.
    """

    model: ModelShape
    rows: tuple[Row, ...]
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
        require_positive(self, unless="pipeline_extra")
        if not self.rows:
            hint = "{gpu: h100, dtype: bf16, scales: 8..64, mbs: 1, gbs: 4N}"
            raise typed.KeyFaultError("there is no row", "rows", hint=hint)
        cases = Counter(
            (gpu, dtype, count, row.strong_scaling)
            for row in self.rows
            for gpu, dtype, count in itertools.product(row.gpu, row.dtype, row.scales.counts)
        )
        for (gpu, dtype, count, _), rows in cases.items():
            if rows > 1:
                raise ValueError(f"{rows} rows are for {gpu}, {dtype} at {count} GPUs: only one can be meant")

        followed = {name for row in self.rows for name in row.releases}
        for name in self.nemo.releases if self.nemo is not None else ():
            if name not in followed:
                hint = suggest(name, sorted(followed))
                raise typed.KeyFaultError(f"no row follows release '{name}'", "nemo", "releases", name, hint=hint)

    def gpu_types(self) -> list[str]:
        """The GPU types of its rows, ``any`` among them, in the rows' order."""
        return list(dict.fromkeys(gpu for row in self.rows for gpu in row.gpu))

    def dtypes(self, gpu: str) -> list[str]:
        """The dtypes that it supports on ``gpu``, in the rows' order; none when it does not support the type."""
        return list(dict.fromkeys(dtype for row in self.rows for dtype in row.dtype if row.fits(gpu, dtype)))

    def scales(self, gpu: str, dtype: str, *, strong: bool = False) -> list[int]:
        """The GPU counts that are tested for this GPU type and dtype, ascending."""
        rows = (row for row in self.rows if row.fits(gpu, dtype) and row.strong_scaling == strong)
        return sorted({count for row in rows for count in row.scales.counts})


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A benchmark: ``key`` names it everywhere; ``image`` is its container image, None where it needs none.

    ``profiles``: the steps that its releases profile with NeMo, by release; a row whose release is not among them
    takes those of the newest, and where there are none the last steps are profiled.
    ``published``: the file of its published figures (llmb.workload.published); in YAML a name beside the workload's own
    file.
    ``file``: the YAML that it was read from, which says nothing of it; None where it was not.
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
    file: Path | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        require_positive(self)
        _check_word(self.key, "key")
        for name in self.sizes:
            _check_word(name, "sizes", name)
        if self.default_size not in self.sizes:
            hint = suggest(self.default_size, list(self.sizes))
            raise typed.KeyFaultError(f"'{self.default_size}' is not one of its sizes", "default_size", hint=hint)
        for name, size in self.sizes.items():
            if size.proxy is not None and size.proxy not in self.sizes:
                hint = suggest(size.proxy, list(self.sizes))
                raise typed.KeyFaultError(f"'{size.proxy}' is not one of the sizes", "sizes", name, "proxy", hint=hint)

    def on(self, gpu: str) -> Mapping[str, Size]:
        """The sizes that support the GPU type ``gpu``."""
        return {name: size for name, size in self.sizes.items() if size.dtypes(gpu)}


def read_workload(path: str | Path) -> Workload:
    """The workload in a YAML file. Raises InputFaults that name file, line, key and the nearest valid word."""
    path = Path(path)
    document = yamlfile.load(path)
    workload = typed.read(Workload, document)
    if workload.file is not None:
        place, message = document.place(("file",)), "file: 'file' is not a key here"
        raise InputFaults([Fault(place=place, message=message, code="key-unknown", key="file", value="file")])
    published = None if workload.published is None else path.parent / workload.published
    return replace(workload, file=path, published=published)
