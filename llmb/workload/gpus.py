# SPDX-License-Identifier: Apache-2.0
"""The known GPU types of gpus.yaml: peaks, memory, GPUs per node."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from llmb.errors import KeyFaultError
from llmb.text import names, typed, yamlfile
from llmb.workload.model import require_positive

CPU = "cpu"
GPUS_FILE = Path(__file__).with_name("gpus.yaml")
_LIKENESS = 0.8
# Dtypes in the names of logs and the dtypes of gpus.yaml: fp8_cs is fp8 with current scaling, fp8_mx is mxfp8; fp8_sc
# scales by sub-channel.
_SPELLINGS = {"fp8_cs": "fp8", "fp8_sc": "fp8", "fp8_mx": "mxfp8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuType:
    """A GPU type: dense ``peak_tflops`` of one GPU by dtype, ``memory_gb`` of one GPU (None: unknown).

    ``like``: the type whose configurations fit best where a workload has none for this one; used only on request.
    """

    gpus_per_node: int
    peak_tflops: dict[str, float] = field(default_factory=dict)
    memory_gb: float | None = None
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
    document = yamlfile.load(GPUS_FILE)
    return {name: typed.read(GpuType, document, (name,)) for name in document.data}


def all_types(brought: Iterable[GpuTypes] = ()) -> dict[str, GpuType]:
    """The types of gpus.yaml, and those ``brought`` by plugins, which do not override them."""
    found: dict[str, GpuType] = {}
    for types in (known_types(), *brought):
        found = {**types, **found}
    return found


def peak_dtype(dtype: str) -> str:
    """The dtype of gpus.yaml whose peak applies to ``dtype``, a spelling of Megatron-Bridge or of a release."""
    return _SPELLINGS.get(dtype, dtype)


def nearest_type(name: str, known: Iterable[str]) -> str | None:
    """The GPU type that is nearest to ``name``: h100 for h10, but none for h400, which is a type of its own."""
    return names.nearest(name, known, likeness=_LIKENESS)


def gpus_in_words(count: int) -> str:
    """``1 GPU``, ``8 GPUs``."""
    return f"{count} GPU{'' if count == 1 else 's'}"
