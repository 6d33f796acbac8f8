# SPDX-License-Identifier: Apache-2.0
"""The callbacks of a run: the recipe's own, less what saves unasked, and ours behind them."""

from typing import Any

from llmb_workloads.fields import RefusedError
from llmb_workloads.nemo_pretrain.library import assign, find
from llmb_workloads.nemo_pretrain.recipe import Checkpoint, CommOverlap, Profile, Recipe

USERBUFFERS = "nemo.collections.llm.recipes.tp_overlap_configs.userbuffers"


def set_callbacks(partial: Any, recipe: Recipe) -> None:
    """Give the trainer of `partial` its callbacks; raises RefusedError where NeMo lacks one."""
    saves, timing = (
        find("lightning.pytorch.callbacks", "ModelCheckpoint"),
        find("nemo.utils.exp_manager", "TimingCallback"),
    )
    # nemotronh's recipe saves five checkpoints of its own accord.
    callbacks = [callback for callback in partial.trainer.callbacks or [] if not _is(callback, saves)]
    _set_comm_overlap(callbacks, recipe.comm_overlap, recipe.recipe)
    if not any(_is(callback, timing) for callback in callbacks):
        callbacks.append(_config(timing))
    callbacks.append(_flops(partial, recipe.flops_model_name))
    callbacks.append(_config(find("llmb_workloads.nemo_pretrain.gradients", "GradientNorm")))
    if recipe.profile is not None:
        callbacks.append(_nsys(recipe.profile))
    if recipe.checkpoint is not None:
        callbacks.append(_checkpoint(recipe.checkpoint))
    assign(partial.trainer, callbacks=callbacks, enable_checkpointing=recipe.checkpoint is not None)


def _set_comm_overlap(callbacks: list[Any], overlap: CommOverlap, recipe: str) -> None:
    kind = find("nemo.lightning.pytorch.callbacks.megatron_comm_overlap", "MegatronCommOverlapCallback")
    found = [callback for callback in callbacks if _is(callback, kind)]
    if len(found) != 1:
        cause = f"has {len(found)} callbacks for communication overlap in performance mode, and should have one"
        raise RefusedError(f"NeMo's recipe {recipe}", cause, "choose a recipe of a dense or hybrid model")
    assign(
        found[0],
        overlap_param_gather_with_optimizer_step=overlap.overlap_param_gather_with_optimizer_step,
        tp_comm_bootstrap_backend=overlap.tp_comm_bootstrap_backend,
        tp_comm_overlap_cfg=None if overlap.userbuffers is None else find(USERBUFFERS, overlap.userbuffers),
        # Null for both is what the callback takes where nobody sets them: no deferral.
        defer_embedding_wgrad_compute=None if overlap.wgrad_deferral_limit is None else True,
        wgrad_deferral_limit=overlap.wgrad_deferral_limit,
    )


def _flops(partial: Any, model_name: str) -> Any:
    kind = find("nemo.lightning.pytorch.callbacks.flops_callback", "FLOPsMeasurementCallback")
    return _config(kind, model_config=partial.model.config, data_config=partial.data, model_name=model_name)


def _nsys(profile: Profile) -> Any:
    kind = find("nemo.lightning.pytorch.callbacks.nsys", "NsysCallback")
    return _config(kind, start_step=profile.start_step, end_step=profile.stop_step, ranks=list(profile.ranks))


def _checkpoint(checkpoint: Checkpoint) -> Any:
    # One copy of weights and optimizer, in the folder that the published pages show. No context beside it: NeMo 2.3
    # cannot write that of its null tokenizer, and the run would fail at its last step.
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
