# SPDX-License-Identifier: Apache-2.0
"""How NeMo 2 builds a size, and how published releases differ from that."""

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self

from llmb.errors import KeyFaultError
from llmb.workload.model import require_positive
from llmb.workload.overrides import OPTIMIZER, Recompute, check_optimizer, check_overrides


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoRelease:
    """The settings in which a published release differs from the NemoRecipe of its size; None: no difference.

    A variable of ``environment`` that is None is not set.
    """

    attention_backend: str | None = None
    cross_entropy: str | None = None
    precision_aware_optimizer: bool | None = None
    environment: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoRecipe:
    """How NeMo 2 builds a size: ``recipe`` is a module of nemo.collections.llm.recipes, used in performance mode.

    ``model``: another recipe module, whose model is trained;
    ``flops_name``: the model's name in NeMo's FLOPs callback;
    ``vocab``: of the null tokenizer, without the end-of-document token that NeMo adds;
    ``attention_backend``: a member of Megatron's AttnBackend, None for the model's own;
    ``cross_entropy``: Megatron's ``te`` or ``native``;
    ``precision_aware_optimizer``: whether dtype bf16 keeps the optimizer's states in lower precision;
    ``wgrad_deferral_limit``: micro batches whose output-layer gradients wait for the pipeline to drain, None for none;
    ``hub_tokenizer``: the hub repository of the model's own tokenizer; ``gated``: whether it needs a token;
    ``fp8_plugin``: the precision plugin for dtype fp8 (recipes.precision.mixed_precision);
    ``environment``: variables of this model's ranks, in addition to those of all NeMo jobs;
    ``releases``: settings in which published releases differ;
    ``overrides``: further settings, by their paths in NeMo's configuration (``model.config.moe_permute_fusion``);
    ``optimizer``: fields of its OptimizerConfig; ``recompute``: which activations are computed again.
    """

    recipe: str
    flops_name: str
    vocab: int
    model: str | None = None
    attention_backend: str | None = None
    cross_entropy: str = "te"
    precision_aware_optimizer: bool = True
    wgrad_deferral_limit: int | None = None
    hub_tokenizer: str | None = None
    gated: bool = False
    fp8_plugin: str = "bf16_with_fp8_mixed"
    environment: dict[str, str] = field(default_factory=dict)
    releases: dict[str, NemoRelease] = field(default_factory=dict)
    overrides: Annotated[dict[str, Any], check_overrides] = field(default_factory=dict)
    optimizer: Annotated[dict[str, Any], check_optimizer] = field(default_factory=dict)
    recompute: Recompute | None = None

    def __post_init__(self) -> None:
        require_positive(self)
        for path in self.overrides:
            if path in self._named_settings():
                key = "optimizer" if path.startswith(OPTIMIZER) else "recompute"
                message, hint = f"'{path}' is set by '{key}' too", "keep one of them"
                raise KeyFaultError(message, "overrides", path, hint=hint, code="setting-duplicate", value=path)

    def settings(self) -> dict[str, Any]:
        """All overridden settings, by their paths in NeMo's configuration."""
        return {**self._named_settings(), **self.overrides}

    def _named_settings(self) -> dict[str, Any]:
        own = {f"{OPTIMIZER}{name}": value for name, value in self.optimizer.items()}
        return {**own, **(self.recompute.settings() if self.recompute is not None else {})}

    def of(self, release: str | None) -> Self:
        """The recipe with the settings of ``release``; a release that is not in ``releases`` changes nothing."""
        own = self.releases.get(release or "", NemoRelease())
        names = ("attention_backend", "cross_entropy", "precision_aware_optimizer")
        changes: dict[str, Any] = {name: getattr(own, name) for name in names if getattr(own, name) is not None}
        variables = {**self.environment, **own.environment}
        changes["environment"] = {name: value for name, value in variables.items() if value is not None}
        return replace(self, **changes)
