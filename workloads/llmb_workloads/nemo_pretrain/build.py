# SPDX-License-Identifier: Apache-2.0
"""Builds NeMo's configuration: pretrain_recipe in performance mode, overridden by the recipe."""

import dataclasses
import difflib
import enum
import inspect
from collections.abc import Iterable
from typing import Any

from llmb_workloads.fields import RefusedError, shown
from llmb_workloads.library import Library
from llmb_workloads.nemo_pretrain.recipe import (
    CommOverlap,
    HubTokenizer,
    NemoCheckpoint,
    NemoParallelism,
    NemoProfile,
    NemoRunRecipe,
    NemoStragglers,
    NullTokenizer,
    Precision,
)

NEMO = Library(
    package="nemo_toolkit",
    module="nemo",
    fix="use NeMo 2.3, as in the image nvcr.io/nvidia/nemo:25.04.01",
    shown=("nemo_toolkit", "megatron-core", "transformer-engine", "nemo_run", "torch"),
)
find = NEMO.find
RECIPES = "nemo.collections.llm.recipes"
USERBUFFERS = "nemo.collections.llm.recipes.tp_overlap_configs.userbuffers"


def build(recipe: NemoRunRecipe) -> Any:
    """Return the configured nemo_run.Partial. Raises RefusedError for what NeMo lacks."""
    pretrain_recipe = find(f"{RECIPES}.{recipe.recipe}", "pretrain_recipe")
    sizes = {"num_nodes": recipe.nodes, "num_gpus_per_node": recipe.gpus_per_node}
    partial = call(pretrain_recipe, **sizes, performance_mode=True)
    _set_model(partial, recipe)
    _set_data(partial, recipe)
    _set_trainer(partial, recipe)
    _set_strategy(partial.trainer.strategy, recipe.parallelism, cuda_graphs=recipe.cuda_graphs)
    assign(partial.trainer, plugins=_precision(recipe.precision))
    if (aware := recipe.optimizer.use_precision_aware_optimizer) is not None:
        assign(partial.optim.config, use_precision_aware_optimizer=aware)
    set_callbacks(partial, recipe)
    _set_resume(partial, recipe.load_checkpoint)
    for path, value in recipe.overrides.items():
        override(partial, path, value)
    return partial


def _set_model(partial: Any, recipe: NemoRunRecipe) -> None:
    model = recipe.model
    if recipe.model_recipe is not None:
        assign(partial, model=find(f"{RECIPES}.{recipe.model_recipe}", "model")())
    assign(
        partial.model.config,
        num_layers=model.num_layers,
        hidden_size=model.hidden_size,
        ffn_hidden_size=model.ffn_hidden_size,
        num_attention_heads=model.num_attention_heads,
        num_query_groups=model.num_query_groups,
        seq_length=model.seq_length,
        cross_entropy_fusion_impl=model.cross_entropy_fusion_impl,
        enable_cuda_graph=recipe.cuda_graphs,
    )
    if model.attention_backend is not None:
        backends = find("megatron.core.transformer.enums", "AttnBackend")
        assign(partial.model.config, attention_backend=backends[model.attention_backend])
    if model.hybrid_override_pattern is not None:
        assign(partial.model.config, hybrid_override_pattern=model.hybrid_override_pattern)
    if model.moe is not None:
        experts = {
            name: value
            for name, value in dataclasses.asdict(model.moe).items()
            if value is not None
        }
        if "moe_layer_freq" in experts:
            experts["moe_layer_freq"] = list(experts["moe_layer_freq"])
        assign(partial.model.config, **experts)
    if model.mla is not None:
        assign(partial.model.config, **dataclasses.asdict(model.mla))


def _set_data(partial: Any, recipe: NemoRunRecipe) -> None:
    tokenizer = _tokenizer(recipe.tokenizer)
    assign(
        partial.data,
        micro_batch_size=recipe.micro_batch,
        global_batch_size=recipe.global_batch,
        seq_length=recipe.model.seq_length,
        # One epoch, however many steps.
        num_train_samples=recipe.max_steps * recipe.global_batch,
        tokenizer=tokenizer,
    )
    assign(partial.model, tokenizer=tokenizer)


def _tokenizer(tokenizer: NullTokenizer | HubTokenizer) -> Any:
    make = find("nemo.collections.nlp.modules.common.tokenizer_utils", "get_nmt_tokenizer")
    if isinstance(tokenizer, NullTokenizer):
        return _config(
            make, library="null", model_name="NullTokenizer", vocab_size=tokenizer.vocab_size
        )
    return _config(make, library="huggingface", model_name=tokenizer.name, use_fast=True)


def _set_trainer(partial: Any, recipe: NemoRunRecipe) -> None:
    assign(
        partial.trainer,
        num_nodes=recipe.nodes,
        devices=recipe.gpus_per_node,
        max_steps=recipe.max_steps,
        val_check_interval=recipe.max_steps,
        limit_val_batches=0,
        log_every_n_steps=1,
        # TensorBoard takes time; llmb reads the log.
        logger=False,
    )
    assign(partial.log, ckpt=None, tensorboard=None)


def _set_strategy(strategy: Any, sizes: NemoParallelism, *, cuda_graphs: bool) -> None:
    assign(
        strategy,
        tensor_model_parallel_size=sizes.tp,
        pipeline_model_parallel_size=sizes.pp,
        context_parallel_size=sizes.cp,
        virtual_pipeline_model_parallel_size=None if sizes.vp == 1 else sizes.vp,
        expert_model_parallel_size=sizes.ep,
        sequence_parallel=sizes.sequence_parallel,
        account_for_embedding_in_pipeline_split=sizes.embedding_in_pipeline_split,
        account_for_loss_in_pipeline_split=sizes.loss_in_pipeline_split,
        use_te_rng_tracker=cuda_graphs,
    )
    if sizes.etp is not None:
        assign(strategy, expert_tensor_parallel_size=sizes.etp)


def _precision(precision: Precision) -> Any:
    plugin = find(f"{RECIPES}.precision.mixed_precision", precision.plugin)()
    if precision.grad_reduce_in_fp32 is not None:
        assign(plugin, grad_reduce_in_fp32=precision.grad_reduce_in_fp32)
    return plugin


def _set_resume(partial: Any, path: str | None) -> None:
    if path is None:
        return
    # Everything is loaded as it was saved, except the tokenizer, which the recipe names.
    restore = _config(
        find("nemo.lightning", "RestoreConfig"),
        path=path,
        load_model_state=True,
        load_optim_state=True,
        load_artifacts=False,
    )
    assign(partial, resume=_config(find("nemo.lightning", "AutoResume"), restore_config=restore))


def set_callbacks(partial: Any, recipe: NemoRunRecipe) -> None:
    """Give the trainer of `partial` its callbacks. Raises RefusedError if NeMo lacks one."""
    saves = find("lightning.pytorch.callbacks", "ModelCheckpoint")
    timing = find("nemo.utils.exp_manager", "TimingCallback")
    # nemotronh's recipe saves five checkpoints by default.
    callbacks = [
        callback for callback in partial.trainer.callbacks or [] if not _is(callback, saves)
    ]
    _set_comm_overlap(callbacks, recipe.comm_overlap, recipe.recipe)
    if not any(_is(callback, timing) for callback in callbacks):
        callbacks.append(_config(timing))
    callbacks.append(_flops(partial, recipe.flops_model_name))
    callbacks.append(_config(find("llmb_workloads.nemo_pretrain.gradients", "GradientNorm")))
    if recipe.profile is not None:
        callbacks.append(_nsys(recipe.profile))
    if recipe.stragglers is not None:
        callbacks.append(straggler_callback(recipe.stragglers))
    if recipe.checkpoint is not None:
        callbacks.append(_checkpoint(recipe.checkpoint))
    assign(partial.trainer, callbacks=callbacks, enable_checkpointing=recipe.checkpoint is not None)


def _set_comm_overlap(callbacks: list[Any], overlap: CommOverlap, recipe: str) -> None:
    kind = find(
        "nemo.lightning.pytorch.callbacks.megatron_comm_overlap", "MegatronCommOverlapCallback"
    )
    overlap_callbacks = [callback for callback in callbacks if _is(callback, kind)]
    if len(overlap_callbacks) != 1:
        cause = (
            f"has {len(overlap_callbacks)} callbacks for communication overlap in performance mode,"
            " and should have one"
        )
        raise RefusedError(
            f"NeMo's recipe {recipe}",
            cause,
            "choose a recipe with one, such as llama3_8b, nemotronh_56b or mixtral_8x7b",
        )
    assign(
        overlap_callbacks[0],
        overlap_param_gather_with_optimizer_step=overlap.overlap_param_gather_with_optimizer_step,
        tp_comm_bootstrap_backend=overlap.tp_comm_bootstrap_backend,
        tp_comm_overlap_cfg=(
            None if overlap.userbuffers is None else find(USERBUFFERS, overlap.userbuffers)
        ),
        # Null for both is what the callback takes where nobody sets them: no deferral.
        defer_embedding_wgrad_compute=None if overlap.wgrad_deferral_limit is None else True,
        wgrad_deferral_limit=overlap.wgrad_deferral_limit,
    )


def _flops(partial: Any, model_name: str) -> Any:
    kind = find("nemo.lightning.pytorch.callbacks.flops_callback", "FLOPsMeasurementCallback")
    return _config(
        kind, model_config=partial.model.config, data_config=partial.data, model_name=model_name
    )


def _nsys(profile: NemoProfile) -> Any:
    kind = find("nemo.lightning.pytorch.callbacks.nsys", "NsysCallback")
    return _config(
        kind, start_step=profile.start_step, end_step=profile.stop_step, ranks=list(profile.ranks)
    )


def straggler_callback(stragglers: NemoStragglers) -> Any:
    """Return NVRx's callback, which prints slow ranks."""
    # NeMo's thresholds and numbers of ranks. It would end the run at the first slow rank, and
    # write to the loggers, of which there are none.
    return _config(
        find("nvidia_resiliency_ext.ptl_resiliency", "StragglerDetectionCallback"),
        report_time_interval=stragglers.report_interval,
        calc_relative_gpu_perf=True,
        calc_individual_gpu_perf=True,
        num_gpu_perf_scores_to_print=5,
        gpu_relative_perf_threshold=0.7,
        gpu_individual_perf_threshold=0.7,
        stop_if_detected=False,
        enable_ptl_logging=False,
    )


def _checkpoint(checkpoint: NemoCheckpoint) -> Any:
    # One copy of weights and optimizer, in the folder that the published pages show. No context
    # beside it: NeMo 2.3 cannot write that of its null tokenizer, and the run would fail at its
    # last step.
    return _config(
        find("nemo.lightning.pytorch.callbacks", "ModelCheckpoint"),
        monitor=None,
        every_n_train_steps=checkpoint.save_at_step,
        save_top_k=1,
        save_last=False,
        save_optim_on_train_end=True,
        always_save_context=False,
        save_context_on_train_end=False,
    )


def _config(kind: Any, **values: Any) -> Any:
    config = find("nemo_run", "Config")(kind)
    assign(config, **values)
    return config


def _is(callback: Any, kind: type) -> bool:
    owner = callback.__fn_or_cls__
    return isinstance(owner, type) and issubclass(owner, kind)


def assign(config: Any, **values: Any) -> None:
    """Set arguments of a fiddle configuration. Raises RefusedError for one that its class lacks."""
    # fiddle accepts any name where the class has **kwargs; the fault would show much later, in
    # every rank.
    _check(config.__fn_or_cls__, values)
    for name, value in values.items():
        setattr(config, name, value)


def override(config: Any, path: str, value: Any) -> None:
    """Set the setting of `config` at the dotted `path`. Raises RefusedError, with the nearest word,
    for an unknown one.

    A text is the name of a member where the setting has an enumeration's, and of a type where it
    has one of torch.
    """
    place, node = f"overrides.{path}", config
    *parents, last = path.split(".")
    for number, name in enumerate([*parents, last]):
        so_far = ".".join(parents[:number]) or "the configuration"
        if not hasattr(node, "__fn_or_cls__"):
            raise RefusedError(
                place, f"{so_far} is {shown(node)}, which has no settings", "choose another path"
            )
        known = inspect.signature(node.__fn_or_cls__).parameters
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            fix = (
                f"did you mean '{near[0]}'?"
                if near
                else f"{node.__fn_or_cls__.__qualname__} has other settings"
            )
            raise RefusedError(place, f"{so_far} has no setting '{name}' in {NEMO.label}", fix)
        if number < len(parents):
            node = getattr(node, name, None)
    setattr(node, last, _typed(getattr(node, last, None), value, place))


def _typed(before: Any, value: Any, place: str) -> Any:
    """`value` as the type of the setting that it replaces."""
    if isinstance(before, enum.Enum) and isinstance(value, str):
        members = [member.name for member in type(before)]
        if value not in members:
            raise RefusedError(place, f"is {value}", f"choose one of {', '.join(members)}")
        return type(before)[value]
    if (
        type(before).__module__ == "torch"
        and type(before).__name__ == "dtype"
        and isinstance(value, str)
    ):
        return find("torch", value.removeprefix("torch."))
    return value


def call(function: Any, **values: Any) -> Any:
    """Call NeMo's function. Raises RefusedError for an argument that it does not have."""
    _check(function, values)
    return function(**values)


def _check(owner: Any, names: Iterable[str]) -> None:
    parameters = inspect.signature(owner).parameters
    for name in names:
        if name not in parameters:
            raise RefusedError(
                NEMO.label,
                f"{owner.__module__}.{owner.__qualname__} has no setting '{name}'",
                NEMO.fix,
            )
