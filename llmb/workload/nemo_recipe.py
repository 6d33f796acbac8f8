# SPDX-License-Identifier: Apache-2.0
"""How NeMo 2 builds and trains one size of a model, and what single releases set differently."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from llmb.workload.model import require_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoRelease:
    """What one published release sets differently from its size's NemoRecipe; fields as there, None: no difference.

    A variable of ``environment`` without a value is not set at all.
    """

    attention_backend: str | None = None
    cross_entropy: str | None = None
    precision_aware_optimizer: bool | None = None
    environment: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoRecipe:
    """How NeMo 2 builds a size: ``recipe`` is a module of nemo.collections.llm.recipes, used in performance mode.

    ``model``: the module whose model is trained, where it is another one; ``attention_backend``: a member of Megatron's
    AttnBackend, None for the model's own; ``cross_entropy``: Megatron's ``te`` or ``native``;
    ``precision_aware_optimizer``: whether dtype bf16 keeps the optimizer's states in lower precision;
    ``wgrad_deferral_limit``: how many micro batches' gradients of the output layer wait for the pipeline to drain, None
    where none do; ``releases``: what published releases set differently.
    ``flops_name``: what NeMo's FLOPs callback calls the model; ``vocab``: of the null tokenizer, in tokens, which NeMo
    adds the end of a document to;
    ``hub_tokenizer``: the model hub's repository with the model's own, ``gated`` when reading it needs a token;
    ``fp8_plugin``: the precision that dtype fp8 stands for (recipes.precision.mixed_precision); ``environment``: what
    this model's ranks need beside the variables of all NeMo jobs.
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

    def __post_init__(self) -> None:
        require_positive(self)

    def of(self, release: str | None) -> NemoRecipe:
        """The recipe with what ``release`` sets differently; one that is not in ``releases`` has no differences."""
        own = self.releases.get(release or "", NemoRelease())
        names = ("attention_backend", "cross_entropy", "precision_aware_optimizer")
        changes: dict[str, Any] = {name: getattr(own, name) for name in names if getattr(own, name) is not None}
        variables = {**self.environment, **own.environment}
        changes["environment"] = {name: value for name, value in variables.items() if value is not None}
        return replace(self, **changes)
