# SPDX-License-Identifier: Apache-2.0
"""The recipe of a NeMo run as a value: all that the program sets, and nothing is looked up."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The fields of NeMo's model configuration that are set, by its names.

    `attention_backend` and `hybrid_override_pattern` null: the model's own.
    """

    num_layers: int
    hidden_size: int
    ffn_hidden_size: int
    num_attention_heads: int
    num_query_groups: int
    seq_length: int
    cross_entropy_fusion_impl: str
    attention_backend: Literal["flash", "fused", "unfused", "local", "auto"] | None
    hybrid_override_pattern: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """Tensor, pipeline, context, virtual pipeline and expert parallel sizes, and how the pipeline is split."""

    tp: int
    pp: int
    cp: int
    vp: int | None
    ep: int
    sequence_parallel: bool
    embedding_in_pipeline_split: bool
    loss_in_pipeline_split: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """`plugin`: a function of NeMo's recipes.precision.mixed_precision; null keeps what it says."""

    plugin: str
    grad_reduce_in_fp32: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """Null keeps what NeMo's recipe says."""

    use_precision_aware_optimizer: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommOverlap:
    """Settings of the communication overlap callback.

    `userbuffers`: a name of NeMo's recipes.tp_overlap_configs.userbuffers; null: Transformer Engine's own defaults.
    `wgrad_deferral_limit`: how many micro batches' gradients of the output layer wait for the pipeline to drain; null:
    none does. `tp_comm_bootstrap_backend`: what the ranks of tensor parallelism find each other by; null: Transformer
    Engine's choice.
    """

    overlap_param_gather_with_optimizer_step: bool
    userbuffers: str | None
    wgrad_deferral_limit: int | None
    tp_comm_bootstrap_backend: Literal["nccl", "gloo", "mpi"] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NullTokenizer:
    """Numbers for words: the vocabulary is `vocab_size` and NeMo's end-of-document token."""

    kind: Literal["null"]
    vocab_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HubTokenizer:
    """The tokenizer of a model hub's repository, as transformers finds it: online, or in its cache."""

    kind: Literal["hub"]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Nsight Systems records `ranks` from before step `start_step` until after `stop_step` steps."""

    start_step: int
    stop_step: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Save once, after so many steps, under nemo_experiments/default/checkpoints/ of the working folder."""

    save_at_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One training run. Batches in samples, `model_flops` in FLOPs of a sample, forward and backward.

    `model_recipe`: NeMo's recipe whose model is trained, null for that of `recipe`; `release`: the published release
    that the settings follow, for whoever reads the file.
    """

    program: Literal["nemo_pretrain"]
    schema: Literal[1]
    name: str
    release: str | None
    recipe: str
    model_recipe: str | None
    flops_model_name: str
    nodes: int
    gpus_per_node: int
    model: ModelShape
    parallelism: Parallelism
    micro_batch: int
    global_batch: int
    max_steps: int
    precision: Precision
    optimizer: Optimizer
    cuda_graphs: bool
    comm_overlap: CommOverlap
    tokenizer: NullTokenizer | HubTokenizer
    profile: Profile | None
    checkpoint: Checkpoint | None
    load_checkpoint: str | None
    model_flops: float | None
