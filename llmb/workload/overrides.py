# SPDX-License-Identifier: Apache-2.0
"""Settings of NeMo's configuration that a size overrides: by path, of the optimizer, and of the recomputation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from llmb.errors import KeyFaultError
from llmb.workload.model import require_positive

OPTIMIZER, MODEL = "optim.config.", "model.config."
# Settings that follow from a job's numbers, and the key that sets each.
_OWN = {
    "trainer.max_steps": "'max_steps'",
    "trainer.num_nodes": "the scale",
    "trainer.devices": "the scale",
    "trainer.callbacks": "llmb's own keys",
    "trainer.plugins": "'dtype', or a path below trainer.plugins",
    "data.micro_batch_size": "'mbs' of the row",
    "data.global_batch_size": "'gbs' of the row",
    "data.seq_length": "'seq_length' of the model",
    "data.num_train_samples": "'max_steps'",
    **{
        f"trainer.strategy.{name}": f"'{key}' of the row"
        for name, key in (
            ("tensor_model_parallel_size", "tp"),
            ("pipeline_model_parallel_size", "pp"),
            ("context_parallel_size", "cp"),
            ("virtual_pipeline_model_parallel_size", "vp"),
            ("expert_model_parallel_size", "ep"),
            ("expert_tensor_parallel_size", "etp"),
        )
    },
    **{
        f"{MODEL}{name}": f"'{key}' of the model"
        for name, key in (
            ("num_layers", "layers"),
            ("hidden_size", "hidden"),
            ("ffn_hidden_size", "ffn"),
            ("num_attention_heads", "heads"),
            ("num_query_groups", "kv_groups"),
            ("seq_length", "seq_length"),
            ("hybrid_override_pattern", "pattern"),
            ("num_moe_experts", "moe: experts"),
            ("moe_router_topk", "moe: top_k"),
            ("moe_ffn_hidden_size", "moe: ffn"),
            ("moe_shared_expert_intermediate_size", "moe: shared_experts"),
            ("moe_layer_freq", "moe: dense_layers and every"),
            ("q_lora_rank", "mla: q_rank"),
            ("kv_lora_rank", "mla: kv_rank"),
            ("qk_head_dim", "mla: head_dim"),
            ("qk_pos_emb_head_dim", "mla: rope_dim"),
            ("v_head_dim", "mla: value_dim"),
        )
    },
    f"{MODEL}cross_entropy_fusion_impl": "'cross_entropy' of nemo",
    f"{MODEL}attention_backend": "'attention_backend' of nemo",
    f"{MODEL}enable_cuda_graph": "'cuda_graphs' of the row",
    f"{OPTIMIZER}use_precision_aware_optimizer": "'precision_aware_optimizer' of nemo",
    "resume": "--load-checkpoint",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompute:
    """Which activations the backward pass computes again, in Megatron core's words.

    ``full``: whole layers, by ``method`` and ``num_layers``; ``selective``: the parts ``modules`` of each layer, None
    for those of attention.
    """

    granularity: Literal["full", "selective"]
    method: Literal["uniform", "block"] | None = None
    num_layers: int | None = None
    modules: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        require_positive(self)
        full = self.granularity == "full"
        for name in ("method", "num_layers"):
            if full != (getattr(self, name) is not None):
                message = f"granularity {self.granularity} {'needs' if full else 'has no'} '{name}'"
                raise KeyFaultError(message, name, value=getattr(self, name))
        if full and self.modules is not None:
            raise KeyFaultError("granularity full has no 'modules'", "modules", value=self.modules)

    def settings(self) -> dict[str, Any]:
        """By the path in NeMo's configuration."""
        values = {name: getattr(self, name) for name in ("granularity", "method", "num_layers")}
        values["modules"] = None if self.modules is None else list(self.modules)
        return {f"{MODEL}recompute_{name}": value for name, value in values.items() if value is not None}


def check_overrides(overrides: Mapping[str, Any]) -> None:
    """Raise KeyFaultError for the first path or value that cannot be overridden."""
    for path, value in overrides.items():
        names = path.split(".")
        if not all(name.isidentifier() for name in names):
            hint = "as in model.config.moe_permute_fusion"
            message = f"'{path}' is not a path in NeMo's configuration"
            raise KeyFaultError(message, path, hint=hint, code="path-invalid", value=path)
        for own, key in _OWN.items():
            if path == own or own.startswith(f"{path}."):
                message, hint = f"llmb sets '{own}' itself", f"use {key}"
                raise KeyFaultError(message, path, hint=hint, code="setting-reserved", value=path)
        _check_plain(value, path)


def check_optimizer(settings: Mapping[str, Any]) -> None:
    """As ``check_overrides``, for fields of the optimizer's configuration."""
    try:
        check_overrides({f"{OPTIMIZER}{name}": value for name, value in settings.items()})
    except KeyFaultError as error:
        first, *rest = error.path
        name = str(first).removeprefix(OPTIMIZER)
        raise KeyFaultError(str(error), name, *rest, hint=error.hint, code=error.code, value=error.value) from error


def _check_plain(value: Any, *path: str | int) -> None:
    if isinstance(value, list):
        for number, item in enumerate(value):
            _check_plain(item, *path, number)
    elif not isinstance(value, bool | int | float | str | None):
        message = f"'{value}' must be a number, a text, true, false, null or a list of these"
        raise KeyFaultError(message, *path, code="value-type", value=value)
