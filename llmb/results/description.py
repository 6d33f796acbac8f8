# SPDX-License-Identifier: Apache-2.0
"""The configuration of a run, by which results are compared; what is known of a log without a record."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any

from llmb.runs.job import Job
from llmb.workload.bridge import NEMO
from llmb.workload.flops import Flops
from llmb.workload.model import ModelShape

USUAL_FRAMEWORK = "nemo"
_USUAL_FP8, _USUAL_TOKENIZER = "delayed", "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A job without what may differ between its repeats. Fields are those of ``Job`` and its ``training``.

    None where a log omits them; those of training also where no model is trained.

    ``gbs`` in samples, ``seq_length`` in tokens, ``scale`` in GPUs. ``fp8``: how dtype fp8 scales, unless delayed;
    ``tokenizer``: unless the null tokenizer; ``nccl_trace``, ``saves``, ``loads``: what the run did besides training;
    ``vboost``: whether it was to be raised on each node first. ``framework``: nemo, or bridge with the image
    ``release``; ``rows_of``: the GPU type whose rows it used, None for its own; ``dotted``: settings that the user
    changed.
    """

    workload: str
    model_size: str
    dtype: str
    gpu_type: str | None
    scale: int
    gbs: int | None = None
    seq_length: int | None = None
    num_layers: int | None = None
    tp: int | None = None
    pp: int | None = None
    cp: int | None = None
    vp: int | None = None
    ep: int | None = None
    etp: int | None = None
    mbs: int | None = None
    gpus_per_node: int | None = None
    profile: bool = False
    image: str | None = None
    fp8: str | None = None
    tokenizer: str | None = None
    nccl_trace: bool = False
    saves: bool = False
    loads: bool = False
    vboost: bool | None = None
    framework: str = "nemo"
    release: str | None = None
    rows_of: str | None = None
    dotted: Mapping[str, str | float | bool | None] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> Hashable:
        """Equal for equal configurations."""
        return _plain(self), *(tuple(sorted(own.items())) for own in _mappings(self))


_plain = attrgetter(*(own.name for own in fields(Configuration) if own.default_factory is not dict))
_mappings = attrgetter(*(own.name for own in fields(Configuration) if own.default_factory is dict))


def configuration_of(job: Job) -> Configuration:
    """The configuration of a recorded run."""
    switches = job.switches
    derived: dict[str, Any] = {
        "fp8": switches.fp8 if switches.fp8 != _USUAL_FP8 else None,
        "tokenizer": switches.tokenizer if switches.tokenizer != _USUAL_TOKENIZER else None,
        "nccl_trace": bool(switches.nccl_trace),
        "saves": bool(switches.save_checkpoint),
        "loads": switches.load_checkpoint is not None,
        "dotted": dict(job.dotted),
        "parameters": dict(job.parameters),
        "env": dict(job.env),
    }
    copied: dict[str, Any] = {}
    for own in fields(Configuration):
        if own.name not in derived:
            owner = job if hasattr(job, own.name) else job.training
            copied[own.name] = getattr(owner, own.name, None)
    return Configuration(**copied, **derived)


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
