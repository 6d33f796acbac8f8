# SPDX-License-Identifier: Apache-2.0
"""The configuration of a run: what decides whether two runs are repeats, and what they can be compared with."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from llmb.runs.job import Job

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
