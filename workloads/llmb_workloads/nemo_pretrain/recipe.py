# SPDX-License-Identifier: Apache-2.0
"""The recipe of a NeMo run: reads and checks it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from llmb_workloads.fields import (
    Problem,
    RefusedError,
    below_one,
    outside,
    read_json,
    read_object,
    refuse,
)
from llmb_workloads.world import Process


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The fields of a mixture of experts, by NeMo's names."""

    num_moe_experts: int
    moe_router_topk: int
    moe_ffn_hidden_size: int
    #: Null without shared experts.
    moe_shared_expert_intermediate_size: int | None
    #: 1 for each layer with experts, else 0. Null if every layer has experts.
    moe_layer_freq: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """The fields of multi-head latent attention, by NeMo's names.

    `q_lora_rank` null: queries are projected at once.
    """

    q_lora_rank: int | None
    kv_lora_rank: int
    qk_head_dim: int
    qk_pos_emb_head_dim: int
    v_head_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoModel:
    """The fields of NeMo's model configuration that the program sets, by NeMo's names."""

    num_layers: int
    hidden_size: int
    ffn_hidden_size: int
    num_attention_heads: int
    num_query_groups: int
    seq_length: int
    cross_entropy_fusion_impl: str
    #: Null keeps the model's own.
    attention_backend: Literal["flash", "fused", "unfused", "local", "auto"] | None
    #: Null keeps the model's own.
    hybrid_override_pattern: str | None
    #: Null if not set.
    moe: Experts | None = None
    #: Null if not set.
    mla: LatentAttention | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoParallelism:
    """Sizes of tensor, pipeline, context and expert parallelism, and the split of the pipeline."""

    tp: int
    pp: int
    cp: int
    vp: int | None
    ep: int
    sequence_parallel: bool
    embedding_in_pipeline_split: bool
    loss_in_pipeline_split: bool
    #: The tensor parallelism of experts. Null keeps NeMo's, which is `tp`.
    etp: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """The precision of training."""

    #: A function of NeMo's recipes.precision.mixed_precision.
    plugin: str
    #: Null keeps the value of the function.
    grad_reduce_in_fp32: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """Null keeps the value of NeMo's recipe."""

    use_precision_aware_optimizer: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommOverlap:
    """Settings of the communication overlap callback."""

    overlap_param_gather_with_optimizer_step: bool
    #: A name of NeMo's recipes.tp_overlap_configs.userbuffers. Null keeps Transformer Engine's
    #: defaults.
    userbuffers: str | None
    #: The number of micro batches for which the gradients of the output layer wait for the pipeline
    #: to drain. Null defers none.
    wgrad_deferral_limit: int | None
    #: The backend that connects the ranks of tensor parallelism. Null leaves it to Transformer
    #: Engine.
    tp_comm_bootstrap_backend: Literal["nccl", "gloo", "mpi"] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NullTokenizer:
    """No real tokenizer: the vocabulary is `vocab_size` and NeMo's end-of-document token."""

    kind: Literal["null"]
    vocab_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HubTokenizer:
    """The tokenizer of a hub's repository, as transformers finds it: online, or in its cache."""

    kind: Literal["hub"]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoProfile:
    """Nsight Systems records `ranks` from step `start_step` until `stop_step` steps are done."""

    start_step: int
    stop_step: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoStragglers:
    """NVRx prints the speed of each rank every `report_interval` seconds."""

    report_interval: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoCheckpoint:
    """Save once, after `save_at_step` steps, in nemo_experiments/default/checkpoints/."""

    save_at_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoRunRecipe:
    """One training run. Batches in samples, `model_flops` in FLOPs of a sample, both directions."""

    program: Literal["nemo_pretrain"]
    schema: Literal[1]
    name: str
    #: The published release that the settings follow, for readers of the file.
    release: str | None
    recipe: str
    #: The NeMo recipe whose model is trained, null for that of `recipe`.
    model_recipe: str | None
    flops_model_name: str
    nodes: int
    gpus_per_node: int
    model: NemoModel
    parallelism: NemoParallelism
    micro_batch: int
    global_batch: int
    max_steps: int
    precision: Precision
    optimizer: Optimizer
    cuda_graphs: bool
    comm_overlap: CommOverlap
    tokenizer: NullTokenizer | HubTokenizer
    profile: NemoProfile | None
    checkpoint: NemoCheckpoint | None
    load_checkpoint: str | None
    model_flops: float | None
    #: Null without a straggler detector.
    stragglers: NemoStragglers | None = None
    #: Further settings, by their paths in the configuration.
    overrides: dict[str, Any] = field(default_factory=dict)


def check_world(recipe: NemoRunRecipe, process: Process) -> None:
    """Raise RefusedError unless the number of processes is the recipe's number of GPUs."""
    world = recipe.nodes * recipe.gpus_per_node
    if process.world != world:
        cause = (
            f"ranks started: {process.world}, the recipe is for {recipe.nodes} ×"
            f" {recipe.gpus_per_node} GPUs"
        )
        raise RefusedError(
            "environment",
            cause,
            f"start {world} processes, one for each GPU, with srun or torchrun",
        )


def _problems(recipe: NemoRunRecipe) -> Iterator[Problem]:
    yield from below_one(recipe)
    yield from below_one(recipe.model, "model.")
    for name in ("moe", "mla"):
        if (part := getattr(recipe.model, name)) is not None:
            yield from below_one(part, f"model.{name}.")
    yield from _experts(recipe)
    yield from below_one(recipe.parallelism, "parallelism.")
    yield from below_one(recipe.comm_overlap, "comm_overlap.")
    yield from _names(recipe)
    yield from _parallelism(recipe.parallelism)
    if (
        limit := recipe.comm_overlap.wgrad_deferral_limit
    ) is not None and recipe.parallelism.pp == 1:
        cause = f"is {limit} without a pipeline, so the deferred gradients would never be computed"
        yield "comm_overlap.wgrad_deferral_limit", cause, "write null, or a pp above 1"
    yield from _batch(recipe)
    if recipe.profile is not None:
        yield from _profile(recipe.profile, recipe)
    if (
        recipe.checkpoint is not None
        and not 1 <= recipe.checkpoint.save_at_step <= recipe.max_steps
    ):
        cause = f"is {recipe.checkpoint.save_at_step} of {recipe.max_steps} steps"
        yield "checkpoint.save_at_step", cause, "choose one from 1 to max_steps"
    pattern, layers = recipe.model.hybrid_override_pattern, recipe.model.num_layers
    if pattern is not None and len(pattern) != layers:
        cause = f"has {len(pattern)} letters for {layers} layers"
        yield "model.hybrid_override_pattern", cause, "write one letter for each layer"


def _names(recipe: NemoRunRecipe) -> Iterator[Problem]:
    names = {"recipe": recipe.recipe, "precision.plugin": recipe.precision.plugin}
    if recipe.model_recipe is not None:
        names["model_recipe"] = recipe.model_recipe
    if recipe.comm_overlap.userbuffers is not None:
        names["comm_overlap.userbuffers"] = recipe.comm_overlap.userbuffers
    for key, name in names.items():
        if re.fullmatch(r"[a-z]\w*", name) is None:
            yield key, f"is '{name}'", "write a name of letters, digits and underscores"
    if recipe.load_checkpoint == "":
        yield "load_checkpoint", "is empty", "write the folder above 'weights', or null"


def _parallelism(sizes: NemoParallelism) -> Iterator[Problem]:
    if (sizes.vp or 1) > 1 and sizes.pp == 1:
        yield "parallelism.vp", f"is {sizes.vp} without a pipeline", "write null, or a pp above 1"
    if sizes.sequence_parallel and sizes.tp == 1:
        yield (
            "parallelism.sequence_parallel",
            "is true without tensor parallelism",
            "write false, or a tp above 1",
        )


def _experts(recipe: NemoRunRecipe) -> Iterator[Problem]:
    sizes, moe = recipe.parallelism, recipe.model.moe
    ep, etp = sizes.ep, sizes.etp or 1
    if moe is None:
        if ep * etp > 1:
            yield (
                "parallelism.ep",
                f"is {ep}, etp {etp}, for a model without experts",
                "write 1, or add model.moe",
            )
        return
    layers = moe.moe_layer_freq
    if layers is not None and (len(layers) != recipe.model.num_layers or set(layers) - {0, 1}):
        cause = f"has {len(layers)} numbers for {recipe.model.num_layers} layers"
        yield "model.moe.moe_layer_freq", cause, "write 0 or 1 for each layer"
    if ep > 0 and moe.num_moe_experts % ep:
        cause = f"is {ep}, which does not divide {moe.num_moe_experts} experts"
        yield "parallelism.ep", cause, "choose a divisor"
    stage = recipe.nodes * recipe.gpus_per_node // max(1, sizes.pp)
    ways = ep * (sizes.etp or sizes.tp)
    if ways > 0 and stage % ways:
        cause = f"ep·etp = {ways} does not divide the {stage} GPUs of a pipeline stage"
        yield "parallelism", cause, "choose other sizes"


def _batch(recipe: NemoRunRecipe) -> Iterator[Problem]:
    sizes, world = recipe.parallelism, recipe.nodes * recipe.gpus_per_node
    model_parallel = sizes.tp * sizes.pp * sizes.cp
    if world % model_parallel:
        yield (
            "parallelism",
            f"tp·pp·cp = {model_parallel} does not divide {world} GPUs",
            "choose other sizes",
        )
        return
    unit = recipe.micro_batch * world // model_parallel
    if recipe.global_batch % unit:
        cause = (
            f"is {recipe.global_batch}, not a multiple of micro_batch times"
            f" {world // model_parallel} model replicas"
        )
        yield "global_batch", cause, f"choose a multiple of {unit}"


def _profile(profile: NemoProfile, recipe: NemoRunRecipe) -> Iterator[Problem]:
    yield from outside(profile.start_step, profile.stop_step, recipe.max_steps)
    world = recipe.nodes * recipe.gpus_per_node
    if not profile.ranks or any(not 0 <= rank < world for rank in profile.ranks):
        yield (
            "profile.ranks",
            f"are {list(profile.ranks)} of {world} ranks",
            f"choose some from 0 to {world - 1}",
        )


def parse_recipe(raw: object, place: str = "recipe") -> NemoRunRecipe:
    """Check a decoded recipe. Raises RefusedError for the first fault, with `place`."""
    recipe = read_object(NemoRunRecipe, raw, place)
    refuse(_problems(recipe), place)
    return recipe


def read_recipe(path: Path) -> NemoRunRecipe:
    """Read and check a recipe file. Raises RefusedError."""
    return parse_recipe(read_json(path), f"{path}: recipe")
