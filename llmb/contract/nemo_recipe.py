# SPDX-License-Identifier: Apache-2.0
"""NeMo 2's recipe of a size, what releases differ in, and the settings that a size may override."""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Annotated, Any, Literal, Self

from llmb.contract.model import require_positive
from llmb.core.values import dataclass
from llmb.errors import KeyFaultError

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
    """The activations that the backward pass computes again, in Megatron core's words.

    ``full``: whole layers, by ``method`` and ``num_layers``. ``selective``: the parts ``modules``
    of each layer, None for the parts of attention.
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
        return {
            f"{MODEL}recompute_{name}": value for name, value in values.items() if value is not None
        }


def check_overrides(overrides: Mapping[str, Any]) -> None:
    """Raise KeyFaultError for the first path or value that cannot be overridden."""
    for path, value in overrides.items():
        names = path.split(".")
        if not all(name.isidentifier() for name in names):
            hint = "as in model.config.moe_permute_fusion"
            message = f"'{path}' is not a path in NeMo's configuration"
            raise KeyFaultError(message, path, hint=hint, code="path-invalid", value=path)
        for pattern, key in _OWN.items():
            if path == pattern or pattern.startswith(f"{path}."):
                message, hint = f"llmb sets '{pattern}' itself", f"use {key}"
                raise KeyFaultError(message, path, hint=hint, code="setting-reserved", value=path)
        _check_plain(value, path)


def check_optimizer(settings: Mapping[str, Any]) -> None:
    """As ``check_overrides``, for fields of the optimizer's configuration."""
    try:
        check_overrides({f"{OPTIMIZER}{name}": value for name, value in settings.items()})
    except KeyFaultError as error:
        first, *below = error.path
        name = str(first).removeprefix(OPTIMIZER)
        raise KeyFaultError(
            str(error), name, *below, hint=error.hint, code=error.code, value=error.value
        ) from error


def _check_plain(value: Any, *path: str | int) -> None:
    if isinstance(value, list):
        for number, item in enumerate(value):
            _check_plain(item, *path, number)
    elif not isinstance(value, bool | int | float | str | None):
        message = f"'{value}' must be a number, a text, true, false, null or a list of these"
        raise KeyFaultError(message, *path, code="value-type", value=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoRelease:
    """The settings in which a published release differs from the NemoRecipe, else None.

    A variable of ``environment`` that is None is not set.
    """

    attention_backend: str | None = None
    cross_entropy: str | None = None
    precision_aware_optimizer: bool | None = None
    environment: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoRecipe:
    """The way NeMo 2 builds a size."""

    #: A module of nemo.collections.llm.recipes, used in performance mode.
    recipe: str
    #: The model's name in NeMo's FLOPs callback.
    flops_name: str
    #: Of the null tokenizer, without the end-of-document token that NeMo adds. None: one less than
    #: that of the model, so that both have the same tokens.
    vocab: int | None = None
    #: Another recipe module, whose model is trained.
    model: str | None = None
    #: A member of Megatron's AttnBackend, None for the model's own.
    attention_backend: str | None = None
    #: Megatron's ``te`` or ``native``.
    cross_entropy: str = "te"
    #: Dtype bf16 keeps the optimizer's states in lower precision.
    precision_aware_optimizer: bool = True
    #: Micro batches whose output-layer gradients wait for the pipeline to drain, None for none.
    wgrad_deferral_limit: int | None = None
    #: The hub repository of the model's own tokenizer.
    hub_tokenizer: str | None = None
    #: The tokenizer needs a token.
    gated: bool = False
    #: The precision plugin for dtype fp8 (recipes.precision.mixed_precision).
    fp8_plugin: str = "bf16_with_fp8_mixed"
    #: Variables of this model's ranks, in addition to those of all NeMo jobs.
    environment: dict[str, str] = field(default_factory=dict)
    #: Settings in which published releases differ.
    releases: dict[str, NemoRelease] = field(default_factory=dict)
    #: Further settings, by their paths in NeMo's configuration
    #: (``model.config.moe_permute_fusion``).
    overrides: Annotated[dict[str, Any], check_overrides] = field(default_factory=dict)
    #: Fields of its OptimizerConfig.
    optimizer: Annotated[dict[str, Any], check_optimizer] = field(default_factory=dict)
    #: The activations that are computed again.
    recompute: Recompute | None = None

    def __post_init__(self) -> None:
        require_positive(self)
        for path in self.overrides:
            if path in self._named_settings():
                key = "optimizer" if path.startswith(OPTIMIZER) else "recompute"
                message, hint = f"'{path}' is set by '{key}' too", "keep one of them"
                raise KeyFaultError(
                    message, "overrides", path, hint=hint, code="setting-duplicate", value=path
                )

    def settings(self) -> dict[str, Any]:
        """All overridden settings, by their paths in NeMo's configuration."""
        return {**self._named_settings(), **self.overrides}

    def _named_settings(self) -> dict[str, Any]:
        settings = {f"{OPTIMIZER}{name}": value for name, value in self.optimizer.items()}
        return {**settings, **(self.recompute.settings() if self.recompute is not None else {})}

    def of(self, release: str | None) -> Self:
        """Return the recipe of ``release``, unchanged for one that is not in ``releases``."""
        release_changes = self.releases.get(release or "", NemoRelease())
        names = ("attention_backend", "cross_entropy", "precision_aware_optimizer")
        changes: dict[str, Any] = {
            name: getattr(release_changes, name)
            for name in names
            if getattr(release_changes, name) is not None
        }
        variables = {**self.environment, **release_changes.environment}
        changes["environment"] = {
            name: value for name, value in variables.items() if value is not None
        }
        return replace(self, **changes)
