# SPDX-License-Identifier: Apache-2.0
"""The recipe of a training run as a value: all that the program needs, and nothing is looked up."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba:
    """The Mamba-2 layers of a nemotronh: counts, and the scan's chunk in tokens."""

    heads: int
    head_dim: int
    expand: int
    chunk: int
    state: int
    groups: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A model's shape; `head_dim` null means hidden / heads, `pattern` and `mamba` are nemotronh's."""

    architecture: Literal["llama", "nemotron", "nemotronh"]
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_groups: int
    head_dim: int | None
    vocab: int
    seq_length: int
    pattern: str | None
    mamba: Mamba | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """Tensor, pipeline, context and virtual pipeline parallel sizes."""

    tp: int
    pp: int
    cp: int
    vp: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Whether to save after the last step, and the folder that receives the checkpoint's own folder."""

    save: bool
    dir: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Trace the steps from `start_step` up to, not including, `stop_step` (0-based) into `dir`."""

    start_step: int
    stop_step: int
    dir: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One training run; `model_flops` is FLOPs of a sample, forward and backward."""

    program: Literal["torch_pretrain"]
    model: ModelShape
    parallelism: Parallelism
    dtype: Literal["bf16", "fp32"]
    micro_batch: int
    global_batch: int
    max_steps: int
    learning_rate: float
    seed: int
    model_flops: float | None
    checkpoint: Checkpoint | None
    profile: Profile | None
