# SPDX-License-Identifier: Apache-2.0
"""What a run was: the numbers that decide what it compares with, and the settings that decide what it repeats."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from llmb.runs.job import Job

_USUAL_FP8, _USUAL_TOKENIZER = "delayed", "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A job without what its repeats differ in; the fields are those of ``Job``. None where a log alone does not say.

    ``gbs`` in samples, ``seq_length`` in tokens, ``scale`` in GPUs. ``fp8``: how dtype fp8 scales, where not as usual;
    ``tokenizer``: where not the null one; ``nccl_trace``, ``saves``, ``loads``: what it did beside training.
    ``vboost``: whether it was to be raised on each node first.
    """

    workload: str
    model_size: str
    dtype: str
    gpu_type: str | None
    scale: int
    gbs: int
    seq_length: int
    num_layers: int
    tp: int | None = None
    pp: int | None = None
    cp: int | None = None
    vp: int | None = None
    ep: int | None = None
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
    env: Mapping[str, str] = field(default_factory=dict)


def of_job(job: Job) -> Configuration:
    """The configuration of a recorded run."""
    switches = job.switches
    said: dict[str, Any] = {
        "fp8": switches.fp8 if switches.fp8 != _USUAL_FP8 else None,
        "tokenizer": switches.tokenizer if switches.tokenizer != _USUAL_TOKENIZER else None,
        "nccl_trace": bool(switches.nccl_trace),
        "saves": bool(switches.save_checkpoint),
        "loads": switches.load_checkpoint is not None,
        "env": dict(job.env),
    }
    return Configuration(
        **{own.name: getattr(job, own.name) for own in fields(Configuration) if own.name not in said}, **said
    )
