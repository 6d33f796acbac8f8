# SPDX-License-Identifier: Apache-2.0
"""What a log without a record is of, as far as it is known."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from llmb.results.configuration import Configuration
from llmb.workload.bridge import NEMO
from llmb.workload.flops import Flops
from llmb.workload.model import ModelShape

SPLIT = ("tp", "pp", "cp", "vp", "ep", "etp", "mbs")  # settings of parallelism


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The settings of a run, as far as they are known; fields are those of ``Configuration``.

    ``profiled``, ``traced``: with Nsight Systems or an NCCL trace, which cost time; ``saves``, ``loads``: a checkpoint;
    ``fp8``: how it scales, unless delayed; ``release``: of Megatron-Bridge's image. ``model`` has the run's own layer
    count; ``flops``: of one sample of it by its plugin's own formula, None for llmb's. ``untrained``: of a size that
    trains no model; ``parameters``: of the workload's own, by name; ``unsaid``: those of which nothing says the value.
    """

    workload: str | None = None
    size: str | None = None
    dtype: str | None = None
    gpu_type: str | None = None
    gpus: int | None = None
    gbs: int | None = None
    seq_length: int | None = None
    model: ModelShape | None = None
    tp: int | None = None
    pp: int | None = None
    cp: int | None = None
    vp: int | None = None
    ep: int | None = None
    etp: int | None = None
    mbs: int | None = None
    layers: int | None = None
    profiled: bool | None = None
    traced: bool | None = None
    saves: bool | None = None
    loads: bool | None = None
    fp8: str | None = None
    framework: str | None = None
    release: str | None = None
    untrained: bool | None = None
    parameters: Mapping[str, str] | None = None
    unsaid: tuple[str, ...] = ()
    flops: Flops | None = None

    def missing(self) -> tuple[str, ...]:
        """What a comparison needs and is unknown: the names in ``Identity.missing``, the workload's own included."""
        needed = {
            "workload": (self.model or self.untrained) and self.workload and self.size,
            "dtype": self.dtype,
            "scale": self.gpus,
            "gbs": self.gbs if not self.untrained else 0,
            "gpu_type": self.gpu_type,
        }
        return (*(name for name, value in needed.items() if value is None), *self.unsaid)

    def configuration(self) -> Configuration | None:
        """The configuration, None where too little is known to compare it."""
        if self.workload is None or self.size is None or self.dtype is None or self.gpus is None or self.unsaid:
            return None
        if self.untrained:
            return Configuration(
                workload=self.workload,
                model_size=self.size,
                dtype=self.dtype,
                gpu_type=self.gpu_type,
                scale=self.gpus,
                profile=bool(self.profiled),
                parameters=self.parameters or {},
            )
        if self.model is None or self.gbs is None or self.seq_length is None:
            return None
        same = ("workload", "dtype", "gpu_type", "gbs", "seq_length", *SPLIT, "fp8")
        copied: dict[str, Any] = {name: getattr(self, name) for name in same}
        return Configuration(
            **copied,
            model_size=self.size,
            scale=self.gpus,
            num_layers=self.model.layers,
            profile=bool(self.profiled),
            nccl_trace=bool(self.traced),
            saves=bool(self.saves),
            loads=bool(self.loads),
            framework=self.framework or NEMO,
            release=self.release,
            parameters=self.parameters or {},
        )


NOTHING = Description()


def or_else(first: Description, second: Description) -> Description:
    """``first``, with the settings of ``second`` where it has none."""
    if NOTHING in (first, second):
        return second if first == NOTHING else first
    missing = {own.name: getattr(second, own.name) for own in fields(first) if getattr(first, own.name) is None}
    both = {**(second.parameters or {}), **(first.parameters or {})}
    return replace(first, **missing | {"parameters": both or None})
