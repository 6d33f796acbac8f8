# SPDX-License-Identifier: Apache-2.0
"""What a run was: the numbers that decide what it compares with, and the settings that decide what it repeats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from llmb.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A job without what its repeats differ in; the fields are those of ``Job``. None where a log alone does not say.

    ``gbs`` in samples, ``seq_length`` in tokens, ``scale`` in GPUs.
    """

    workload: str
    model_size: str
    dtype: str
    gpu_type: str | None
    scale: int
    gbs: int
    seq_length: int
    num_layers: int
    tp: int = 1
    pp: int = 1
    cp: int = 1
    vp: int | None = None
    ep: int = 1
    mbs: int | None = None
    profile: bool = False
    image: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


def of_job(job: Job) -> Configuration:
    """The configuration of a recorded run."""
    values = {own.name: getattr(job, own.name) for own in fields(Configuration)}
    return Configuration(**{**values, "env": dict(job.env)})
