# SPDX-License-Identifier: Apache-2.0
"""The rows of Megatron-Bridge by image release, as NVIDIA's launch scripts configure them.

They are in bridge.yaml.
"""

import re
from collections.abc import Iterator
from dataclasses import field, fields, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from llmb.builtin.nvidia_images import chosen_release
from llmb.contract.rows import BatchRule, Row, check_unambiguous, find_row
from llmb.contract.spec import BridgeModel, Size, Workload, check_function
from llmb.core import typed, yamlfile
from llmb.core.values import dataclass
from llmb.errors import KeyFaultError

DTYPES = ("bf16", "fp8_cs", "fp8_mx", "fp8_sc", "nvfp4")  # in NVIDIA's words
# of the word fp8, by size and GPU type
FP8_MEANINGS = FP8_CS, FP8_MX, FP8_SC = "fp8_cs", "fp8_mx", "fp8_sc"
SPELLINGS = {"fp8": FP8_MEANINGS, "mxfp8": (FP8_MX,)}


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeRow(Row):
    """A row of Megatron-Bridge."""

    mbs: int
    gbs: BatchRule
    #: Megatron's fully sharded data parallelism.
    fsdp: bool = False
    #: Communication buffers are registered with NCCL.
    nccl_ub: bool = False
    #: Layers whose activations wait in the host's memory.
    offload_layers: int | None = None
    #: Layers that are computed again in the backward pass.
    recompute_layers: int | None = None
    #: The library that captures CUDA graphs, None for the default (nothing).
    graphs: Literal["none", "local", "transformer_engine", "full_iteration"] | None = None
    #: The captured parts.
    graph_scope: tuple[str, ...] = ()
    #: The GPU count of NVIDIA's function, None if it is the row's own.
    function_gpus: int | None = None
    #: Jobs of any other GPU count have the settings of another row.
    exact_scales: bool = False
    #: The settings by dotted path that NVIDIA's benchmark changes with launch options on the
    #: function of ``function_gpus``, besides the layout and the batch.
    launched: dict[str, Any] = field(default_factory=dict)
    #: The variables that these options change.
    environment: dict[str, str] = field(default_factory=dict)

    def serves(self, gpus: int) -> bool:
        """Return True if a job on ``gpus`` GPUs may have the settings of this row."""
        return gpus in self.scales.counts or not self.exact_scales

    def count(self, scale: int) -> int:
        """Return the GPU count of NVIDIA's function for ``scale`` GPUs: the next lower one, else
        the lowest.
        """
        counts = self.scales.counts
        return self.function_gpus or max(
            (count for count in counts if count <= scale), default=counts[0]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFiles:
    """Files of a repository of the model hub that the library reads."""

    repository: str
    files: tuple[str, ...]
    #: The branch, tag or commit that NVIDIA's function asks for.
    revision: str = "main"
    #: The repository asks for a token.
    gated: bool = False

    @property
    def key(self) -> str:
        """The repository, with the revision if it is another than ``main``."""
        return self.repository + (f"@{self.revision}" if self.revision != "main" else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeSize:
    """The way Megatron-Bridge builds a size."""

    #: The part of NVIDIA's function names for it.
    model: str
    #: NVIDIA's function that returns the whole configuration, ``module:name``. It may contain
    #: ``{gpu}``, ``{gpus}`` and ``{dtype}`` of the row, the last without underscore. The row
    #: repeats its layout for the plan, and only what a job changes is set. None: llmb knows the
    #: function by ``model``.
    function: Annotated[str, check_function] | None = None
    #: The repository whose files the library reads while it builds the model or its tokenizer,
    #: None if it needs none.
    hub: str | None = None
    #: The branch, tag or commit of ``hub`` that NVIDIA's function asks for.
    revision: str = "main"
    #: The files of ``hub``.
    files: tuple[str, ...] = ("config.json",)
    #: The repository asks for a token.
    gated: bool = True
    #: The files of its tokenizer, if they are of another repository than ``hub``.
    tokenizer: HubFiles | None = None
    #: By GPU type the number of GPUs from which ``fp8`` means fp8_mx in NVIDIA's launch scripts.
    #: Below it, and on other types, it means fp8_cs.
    fp8_mx_from: dict[str, int] = field(default_factory=dict)
    #: The GPU types on which ``fp8`` means fp8_sc in NVIDIA's launch scripts.
    fp8_sc_on: tuple[str, ...] = ()
    #: The processes of each rank that prepare samples, as NVIDIA's function has them.
    loader_workers: int = 8
    #: NVIDIA's function has the optimizer Adam, for which its script asks for another precision of
    #: the states with bf16.
    adam: bool = True
    #: Every job sets the layout, batch and sequence length of its row, which may be others than
    #: those of ``function``.
    sets_layout: bool = False
    #: The model has the layers of the size, not those of NVIDIA's function.
    cut: bool = False
    #: Its tokens, None for those of the size.
    vocab: int | None = None
    #: Overrides that of the size.
    time_limit_minutes: int | None = None
    #: By image release, the newest first.
    rows: dict[str, tuple[BridgeRow, ...]]

    def __post_init__(self) -> None:
        for release, rows in self.rows.items():
            if not rows:
                hint = "{gpu: gb300, dtype: fp8_cs, scales: 64, mbs: 2, gbs: 4N}"
                raise KeyFaultError(
                    "has no row", "rows", release, hint=f"write {hint}", code="rows-missing"
                )
            check_unambiguous(rows, "rows", release)

    def hub_files(self) -> list[HubFiles]:
        """Return the files that the library reads, by repository."""
        files = [] if self.tokenizer is None else [self.tokenizer]
        if self.hub is not None:
            repository_files = HubFiles(
                repository=self.hub, files=self.files, revision=self.revision, gated=self.gated
            )
            files.insert(0, repository_files)
        return files

    def function_of(self, row: BridgeRow, scale: int, gpu: str, dtype: str) -> str | None:
        """Return NVIDIA's function for ``scale`` GPUs of type ``gpu``, None without a template."""
        if self.function is None:
            return None
        values = {
            "gpu": gpu,
            "gpus": row.count(scale),
            "dtype": dtype.replace("_", ""),
            "size": re.sub(r"[-.]", "_", self.model),
        }
        return self.function.format(**values)

    def fp8_dtype(self, gpu: str, scale: int) -> str:
        """Return the dtype that ``fp8`` means on ``scale`` GPUs of type ``gpu``."""
        if gpu in self.fp8_sc_on:
            return FP8_SC
        least = self.fp8_mx_from.get(gpu)
        return FP8_CS if least is None or scale < least else FP8_MX

    def row(
        self, release: str, gpu: str, dtype: str, scale: int, *, strong: bool = False
    ) -> BridgeRow | None:
        """Return the row of ``release`` that a job has the settings of, as in ``find_row``."""
        return find_row(self.rows.get(release, ()), gpu, dtype, scale, strong=strong)


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeTable:
    """bridge.yaml: the sizes by their names in workload.yaml."""

    sizes: dict[str, BridgeSize]

    def of(self, size: str) -> Iterator[tuple[str, BridgeRow]]:
        """The rows of a size with their releases, the newest release first."""
        for release, rows in self.sizes[size].rows.items() if size in self.sizes else ():
            for row in rows:
                yield release, row


@cache
def read_bridge(path: Path) -> BridgeTable:
    """Read a table, once. Raises InputFaults with file, line, key and the nearest valid key."""
    return typed.read(BridgeTable, yamlfile.load_packaged(path))


def table_of(workload: Workload) -> BridgeTable:
    """Return a workload's rows for Megatron-Bridge, none without any. Raises UsageError."""
    if isinstance(workload.bridge, BridgeModel):
        return _table_in(workload.key, workload.bridge)
    return read_bridge(workload.bridge) if workload.bridge is not None else BridgeTable(sizes={})


def _table_in(workload: str, bridge: BridgeModel) -> BridgeTable:
    release = chosen_release(bridge.release, f"{workload}: ", "bridge.release")
    sizes = {
        name: BridgeSize(
            model=name,
            function=bridge.function,
            sets_layout=True,
            hub=bridge.hub,
            files=bridge.files,
            gated=bridge.gated,
            rows={release: tuple(map(_bridge_row, rows))},
        )
        for name, rows in bridge.rows.items()
    }
    return BridgeTable(sizes=sizes)


def _bridge_row(row: Row) -> BridgeRow:
    return BridgeRow(**{key.name: getattr(row, key.name) for key in fields(Row)})


def sized(workload: Workload, name: str) -> Size:
    """Return a size as Megatron-Bridge trains it: its tokens and its time limit."""
    size, bridge_size = workload.sizes[name], table_of(workload).sizes[name]
    model = size.trained_model
    return replace(
        size,
        model=model if bridge_size.vocab is None else replace(model, vocab=bridge_size.vocab),
        time_limit_minutes=bridge_size.time_limit_minutes or size.time_limit_minutes,
    )
