# SPDX-License-Identifier: Apache-2.0
"""The recipe of a torch run: reads and checks it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from llmb_workloads.fields import Problem, below_one, outside, read_json, read_object, refuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba:
    """The Mamba-2 layers of a nemotronh: sizes, and the scan's chunk in tokens."""

    heads: int
    head_dim: int
    expand: int
    chunk: int
    state: int
    groups: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchModel:
    """A model's shape. `head_dim` null means hidden / heads.

    Only nemotronh has `pattern` and `mamba`.
    """

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
class TorchParallelism:
    """Tensor, pipeline, context and virtual pipeline parallel sizes."""

    tp: int
    pp: int
    cp: int
    vp: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchCheckpoint:
    """Save after the last step if `save`, in a new folder below `dir`."""

    save: bool
    dir: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchProfile:
    """Trace the steps from `start_step` to before `stop_step` (0-based) into `dir`."""

    start_step: int
    stop_step: int
    dir: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchRecipe:
    """One training run. `model_flops` is FLOPs of a sample, forward and backward."""

    program: Literal["torch_pretrain"]
    model: TorchModel
    parallelism: TorchParallelism
    dtype: Literal["bf16", "fp32"]
    micro_batch: int
    global_batch: int
    max_steps: int
    learning_rate: float
    seed: int
    model_flops: float | None
    checkpoint: TorchCheckpoint | None
    profile: TorchProfile | None


LAYER_LETTERS = {"M": "Mamba-2", "-": "MLP", "*": "attention"}


def _problems(recipe: TorchRecipe) -> Iterator[Problem]:
    yield from below_one(recipe.model, "model.")
    yield from below_one(recipe.parallelism, "parallelism.")
    yield from _model(recipe.model)
    yield from _parallelism(recipe.parallelism)
    yield from _numbers(recipe)
    if recipe.profile is not None:
        yield from outside(recipe.profile.start_step, recipe.profile.stop_step, recipe.max_steps)
    for name, part in (("checkpoint", recipe.checkpoint), ("profile", recipe.profile)):
        if part is not None and not part.dir:
            yield f"{name}.dir", "is empty", "name a folder"


def _model(model: TorchModel) -> Iterator[Problem]:
    if model.heads % model.kv_groups:
        cause = f"{model.kv_groups} does not divide {model.heads} heads"
        yield "model.kv_groups", cause, "choose a divisor of heads"
    # transformers' Llama requires this even where head_dim is given.
    if model.hidden % model.heads and (model.head_dim is None or model.architecture == "llama"):
        cause = f"{model.heads} does not divide hidden {model.hidden}"
        yield "model.heads", cause, "choose a divisor of hidden"
    yield from _rotary(model)
    yield from _hybrid(model) if model.architecture == "nemotronh" else _dense(model)


def _rotary(model: TorchModel) -> Iterator[Problem]:
    # Rotary embeddings rotate pairs: of the whole head in llama, of half of it in nemotron.
    unit = {"llama": 2, "nemotron": 4, "nemotronh": 1}[model.architecture]
    head_dim = model.head_dim or model.hidden // model.heads
    if head_dim % unit:
        cause = (
            f"{head_dim} is not a multiple of {unit}, as the rotary embedding of"
            f" {model.architecture} requires"
        )
        yield "model.head_dim", cause, "choose other heads or head_dim"


def _dense(model: TorchModel) -> Iterator[Problem]:
    for name in ("pattern", "mamba"):
        if getattr(model, name) is not None:
            cause = f"is given for a {model.architecture}"
            yield f"model.{name}", cause, "write null: only nemotronh has it"


def _hybrid(model: TorchModel) -> Iterator[Problem]:
    if model.pattern is None or model.mamba is None:
        missing = "pattern" if model.pattern is None else "mamba"
        yield f"model.{missing}", "is null", "nemotronh requires it"
        return
    if set(model.pattern) - set(LAYER_LETTERS):
        letters = ", ".join(f"{letter} ({word})" for letter, word in LAYER_LETTERS.items())
        yield "model.pattern", "has an unknown letter", f"use {letters}"
    if len(model.pattern) != model.layers:
        cause = f"has {len(model.pattern)} letters for {model.layers} layers"
        yield "model.pattern", cause, "write one letter for each layer"
    yield from below_one(model.mamba, "model.mamba.")
    if model.mamba.heads % model.mamba.groups:
        cause = f"{model.mamba.groups} does not divide {model.mamba.heads} Mamba heads"
        yield "model.mamba.groups", cause, "choose a divisor of heads"


def _parallelism(sizes: TorchParallelism) -> Iterator[Problem]:
    if sizes.tp * sizes.pp * sizes.cp > 1 or (sizes.vp or 1) > 1:
        sizes_text = f"asks for tp {sizes.tp}, pp {sizes.pp}, cp {sizes.cp}, vp {sizes.vp}"
        cause = f"{sizes_text}, but this program is data parallel only"
        yield "parallelism", cause, "set tp, pp and cp to 1 and vp to null"


def _numbers(recipe: TorchRecipe) -> Iterator[Problem]:
    for name in ("micro_batch", "global_batch", "max_steps"):
        if getattr(recipe, name) < 1:
            yield name, f"is {getattr(recipe, name)}", "write 1 or more"
    if not 0 <= recipe.seed < 2**63:
        yield "seed", f"is {recipe.seed}", "choose one from 0 to 2^63 - 1"
    for name in ("learning_rate", "model_flops"):
        value = getattr(recipe, name)
        if value is not None and value <= 0:
            yield name, f"is {value:g}", "write a number above 0"


def parse_recipe(raw: object) -> TorchRecipe:
    """Read and check a decoded recipe. Raises RefusedError for the first fault."""
    recipe = read_object(TorchRecipe, raw, "recipe")
    refuse(_problems(recipe), "recipe")
    return recipe


def read_recipe(path: Path) -> TorchRecipe:
    """Read and check a recipe file. Raises RefusedError."""
    return parse_recipe(read_json(path))
