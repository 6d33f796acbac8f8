# SPDX-License-Identifier: Apache-2.0
"""The rows of Megatron-Bridge, by image release: what NVIDIA's launch scripts configure, read from bridge.yaml."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from llmb.errors import KeyFaultError
from llmb.text import typed, yamlfile
from llmb.workload.rows import BatchRule, Row, check_unambiguous
from llmb.workload.switches import parse_image

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
    ``cut``: the model has the layers of the size, not those of NVIDIA's function; ``rows``: by image release, the
    newest first.
    """

    model: str
    hub: str | None = None
    cut: bool = False
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


def read_bridge(path: Path) -> BridgeTable:
    """Read a table. Raises InputFaults with file, line, key and the nearest valid key."""
    return typed.read(BridgeTable, yamlfile.load(path))
