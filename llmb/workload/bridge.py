# SPDX-License-Identifier: Apache-2.0
"""The rows of Megatron-Bridge, by image release: what NVIDIA's launch scripts configure, read from bridge.yaml."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from llmb.errors import KeyFaultError
from llmb.text import names, typed, yamlfile
from llmb.workload.rows import BatchRule, Row, check_unambiguous
from llmb.workload.spec import Size, Workload
from llmb.workload.switches import parse_image

NEMO, BRIDGE = "nemo", "bridge"
FRAMEWORKS = (NEMO, BRIDGE)  # nemo: the rows of workload.yaml, for NeMo and for llmb's torch program
DTYPES = ("bf16", "fp8_cs", "fp8_mx", "nvfp4")  # in NVIDIA's words
_SPELLINGS = {"fp8": "fp8_cs", "mxfp8": "fp8_mx"}
NEMO_UNTIL = "26.02"  # NVIDIA's later images have no NeMo: docs/releases/software-versions.md of Megatron-Bridge
_NVIDIA = re.compile(r"(?:(?:.*/)?nvidia[/:])?nemo:(?P<release>\d\d\.\d\d(?:\.\d\d)?)")
RELEASES = Path(__file__).with_name("releases.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """An image release: its image, and the versions of Megatron-Bridge and Megatron core in it."""

    bridge: str
    core: str
    image: Annotated[str, parse_image]


@cache
def releases() -> dict[str, Release]:
    """The releases that have rows, the newest first."""
    return typed.read(dict[str, Release], yamlfile.load(RELEASES))


def usual_image(workload: Workload, release: str | None) -> str | None:
    """The image of a job that selects none: that of the ``release`` of Megatron-Bridge, None for the workload's own."""
    return releases()[release].image if release is not None else workload.image


def nvidia_release(image: str) -> str | None:
    """The release of one of NVIDIA's NeMo images, ``26.02.01`` for ``nvcr.io/nvidia/nemo:26.02.01``; None for others.

    Also of its file as enroot names it: ``nvidia+nemo+26.02.01.sqsh``.
    """
    name = image.removeprefix("docker://").replace("#", "/").partition("@")[0]
    if name.endswith(".sqsh"):
        name = name.rpartition("/")[2].removesuffix(".sqsh").replace("+", ":")
    match = _NVIDIA.fullmatch(name)
    return match["release"] if match is not None else None


def check_release(name: str) -> None:
    """Raise KeyFaultError for an image release without rows."""
    if name not in releases():
        message = f"no release '{name}' with Megatron-Bridge"
        raise KeyFaultError(message, hint=names.suggest(name, list(releases())), code="release-unknown", value=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeRow(Row):
    """A row of Megatron-Bridge.

    ``fsdp``: Megatron's fully sharded data parallelism; ``nccl_ub``: communication buffers are registered with NCCL;
    ``offload_layers``: layers whose activations wait in the host's memory; ``recompute_layers``: layers that are
    computed again in the backward pass; ``optimizer_instances``: groups of GPUs that each have all of the optimizer's
    states; ``graphs``: what captures CUDA graphs, None for the library's default (nothing); ``graph_scope``: what is
    captured; ``function_gpus``: the GPU count of NVIDIA's function, None where it is the row's own.
    """

    mbs: int
    gbs: BatchRule
    fsdp: bool = False
    nccl_ub: bool = False
    offload_layers: int | None = None
    recompute_layers: int | None = None
    optimizer_instances: int | None = None
    graphs: Literal["none", "local", "transformer_engine"] | None = None
    graph_scope: tuple[str, ...] = ()
    function_gpus: int | None = None

    def count(self, scale: int) -> int:
        """The GPU count of NVIDIA's function for a job on ``scale`` GPUs, that of the next lower scale of the row."""
        return (
            self.function_gpus or ([count for count in self.scales.counts if count <= scale] or self.scales.counts)[-1]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeSize:
    """How Megatron-Bridge builds a size: ``model`` is the part of NVIDIA's function names for it.

    ``hub``: the gated repository whose config.json the library reads while it builds the model, None if it needs none;
    ``cut``: the model has the layers of the size, not those of NVIDIA's function; ``vocab``: its tokens, None for those
    of the size; ``rows``: by image release, the newest first.
    """

    model: str
    hub: str | None = None
    cut: bool = False
    vocab: int | None = None
    rows: dict[str, tuple[BridgeRow, ...]]

    def __post_init__(self) -> None:
        for release, rows in self.rows.items():
            if not rows:
                hint = "{gpu: gb300, dtype: fp8_cs, scales: 64, mbs: 2, gbs: 4N}"
                raise KeyFaultError("has no row", "rows", release, hint=f"write {hint}", code="rows-missing")
            check_unambiguous(rows, "rows", release)

    def row(self, release: str, gpu: str, dtype: str, scale: int) -> BridgeRow | None:
        """The row for a job on ``scale`` GPUs: of the next lower scale that has one, else of the lowest."""
        fitting = [row for row in self.rows.get(release, ()) if row.fits(gpu, dtype)]
        known = sorted((count, number) for number, row in enumerate(fitting) for count in row.scales.counts)
        below = [pair for pair in known if pair[0] <= scale] or known[:1]
        return fitting[below[-1][1]] if below else None


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
    return typed.read(BridgeTable, yamlfile.load(path))


def table_of(workload: Workload) -> BridgeTable:
    """The rows of ``workload`` for Megatron-Bridge, none without a file of them. Raises InputFaults."""
    return read_bridge(workload.bridge) if workload.bridge is not None else BridgeTable(sizes={})


def bridge_sizes(workload: Workload, gpu: str) -> list[str]:
    """The sizes of ``workload`` that Megatron-Bridge has on ``gpu``, in any release."""
    table = table_of(workload)
    return [name for name in table.sizes if any(gpu in row.gpu for _, row in table.of(name))]


def with_bridge(workload: Workload, release: str) -> Workload:
    """``workload`` as image ``release`` trains it: its image, and the sizes and rows that Megatron-Bridge has there.

    Raises InputFaults for a faulty table.
    """
    found = {name: own for name, own in table_of(workload).sizes.items() if own.rows.get(release)}
    sizes = {name: _sized(workload.sizes[name], own, release, found) for name, own in found.items()}
    return replace(
        workload,
        sizes=sizes,
        default_size=workload.default_size if workload.default_size in sizes else next(iter(sizes)),
        default_dtype=spelled(workload.default_dtype, DTYPES),
        image=releases()[release].image,
        profiles={},
    )


def _sized(size: Size, own: BridgeSize, release: str, others: Collection[str]) -> Size:
    model = size.trained_model
    return replace(
        size,
        rows=own.rows[release],
        model=model if own.vocab is None else replace(model, vocab=own.vocab),
        proxy=size.proxy if size.proxy in others else None,
        nemo=None,
        checkpoint=None,
    )


def spelled(dtype: str, known: Collection[str]) -> str:
    """Megatron-Bridge's word for ``dtype`` where ``known`` has only that: ``fp8_cs`` for fp8, ``fp8_mx`` for mxfp8."""
    own = _SPELLINGS.get(dtype, dtype)
    return own if dtype not in known and own in known else dtype
