# SPDX-License-Identifier: Apache-2.0
"""The known GPU types of gpus.yaml: peaks, memory, GPUs per node."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import lru_cache
from pathlib import Path

from llmb.contract.model import require_positive
from llmb.core import names, typed, yamlfile
from llmb.core.values import dataclass
from llmb.errors import KeyFaultError

CPU = "cpu"
GPUS_FILE = Path(__file__).with_name("gpus.yaml")
_LIKENESS = 0.8
# Dtypes in the names of logs and the dtypes of gpus.yaml: fp8_cs is fp8 with current scaling,
# fp8_mx is mxfp8; fp8_sc scales by sub-channel.
_SPELLINGS = {"fp8_cs": "fp8", "fp8_ds": "fp8", "fp8_sc": "fp8", "fp8_mx": "mxfp8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuType:
    """A GPU type."""

    gpus_per_node: int
    #: Dense, of one GPU by dtype.
    peak_tflops: dict[str, float] = field(default_factory=dict)
    #: Of one GPU; None if unknown.
    memory_gb: float | None = None
    #: The type whose configurations fit best if a workload has none for this one; used only on
    #: request.
    like: str | None = None

    def __post_init__(self) -> None:
        require_positive(self)
        check_peaks(self.peak_tflops, "peak_tflops")
        if self.memory_gb is not None:
            check_memory(self.memory_gb, "memory_gb")


GpuTypes = Mapping[str, GpuType]


def check_peaks(peaks: Mapping[str, float], *path: str) -> None:
    """Raise KeyFaultError for the first peak that is not a number above 0."""
    for dtype, value in peaks.items():
        if not 0 < value < math.inf:
            raise KeyFaultError(f"must be TFLOPS above 0, not {value}", *path, dtype, value=value)


def check_memory(value: float, *path: str) -> None:
    """Raise KeyFaultError for a memory that is not above 0."""
    if not 0 < value < math.inf:
        raise KeyFaultError(f"must be GB above 0, not {value}", *path, value=value)


@lru_cache(maxsize=1)
def known_types() -> dict[str, GpuType]:
    """Every GPU type of gpus.yaml by name. Names must match exactly: b200 is not gb200."""
    document = yamlfile.load_packaged(GPUS_FILE)
    return {name: typed.read(GpuType, document, (name,)) for name in document.data}


def all_types(brought: Iterable[GpuTypes] = ()) -> dict[str, GpuType]:
    """The types of gpus.yaml, and those ``brought`` by plugins, which do not override them."""
    by_name: dict[str, GpuType] = {}
    for types in (known_types(), *brought):
        by_name = {**types, **by_name}
    return by_name


def peak_at(gpu: GpuType | None, dtype: str) -> float | None:
    """Return the peak TFLOPS of one GPU at ``dtype``, in any spelling, or None if it is unknown."""
    return None if gpu is None else gpu.peak_tflops.get(_SPELLINGS.get(dtype, dtype))


def nearest_type(name: str, candidates: Iterable[str]) -> str | None:
    """Return the GPU type nearest to ``name``: h100 for h10, but none for h400, another type."""
    return names.nearest(name, candidates, likeness=_LIKENESS)


def processor(gpu_types: Iterable[str]) -> str:
    """Return ``CPU`` if all jobs of these GPU types run on CPUs, else ``GPU``, as in GPU-hours."""
    return "CPU" if all(name == CPU for name in gpu_types) else "GPU"


def gpus_in_words(count: int) -> str:
    """``1 GPU``, ``8 GPUs``."""
    return f"{count} GPU{'' if count == 1 else 's'}"
