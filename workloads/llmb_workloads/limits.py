# SPDX-License-Identifier: Apache-2.0
"""What a recipe's values may be: each rule says the place, the cause and the fix."""

from collections.abc import Iterator
from dataclasses import fields

from llmb_workloads.errors import RefusedError
from llmb_workloads.torch_recipe import Mamba, ModelShape, Parallelism, Profile, Recipe

LAYER_LETTERS = {"M": "Mamba-2", "-": "MLP", "*": "attention"}


def check_recipe(recipe: Recipe) -> None:
    """Raise RefusedError at the first value that no run could have."""
    for problem in _problems(recipe):
        raise problem


def _problems(recipe: Recipe) -> Iterator[RefusedError]:
    yield from _below_one(recipe.model, "recipe.model")
    yield from _below_one(recipe.parallelism, "recipe.parallelism")
    yield from _model(recipe.model)
    yield from _parallelism(recipe.parallelism)
    yield from _numbers(recipe)
    if recipe.profile is not None:
        yield from _profile(recipe.profile, recipe.max_steps)
    for name, part in (("checkpoint", recipe.checkpoint), ("profile", recipe.profile)):
        if part is not None and not part.dir:
            yield RefusedError(f"recipe.{name}.dir", "is empty", "name a folder")


def _below_one(part: ModelShape | Mamba | Parallelism, place: str) -> Iterator[RefusedError]:
    for field in fields(part):
        value = getattr(part, field.name)
        if isinstance(value, int) and value < 1:
            yield RefusedError(f"{place}.{field.name}", f"is {value}", "write 1 or more")


def _model(model: ModelShape) -> Iterator[RefusedError]:
    if model.heads % model.kv_groups:
        cause = f"{model.kv_groups} does not divide {model.heads} heads"
        yield RefusedError("recipe.model.kv_groups", cause, "choose a divisor of heads")
    # transformers' Llama asks for this even where head_dim is given.
    if model.hidden % model.heads and (model.head_dim is None or model.architecture == "llama"):
        cause = f"{model.heads} does not divide hidden {model.hidden}"
        yield RefusedError("recipe.model.heads", cause, "choose a divisor of hidden")
    yield from _rotary(model)
    yield from _hybrid(model) if model.architecture == "nemotronh" else _dense(model)


def _rotary(model: ModelShape) -> Iterator[RefusedError]:
    # Rotary embeddings turn pairs: of the whole head in llama, of half of it in nemotron.
    unit = {"llama": 2, "nemotron": 4, "nemotronh": 1}[model.architecture]
    head_dim = model.head_dim or model.hidden // model.heads
    if head_dim % unit:
        cause = f"{head_dim} is no multiple of {unit}, as {model.architecture}'s rotary embedding needs"
        yield RefusedError("recipe.model.head_dim", cause, "choose other heads or head_dim")


def _dense(model: ModelShape) -> Iterator[RefusedError]:
    for name in ("pattern", "mamba"):
        if getattr(model, name) is not None:
            cause = f"is given for a {model.architecture}"
            yield RefusedError(f"recipe.model.{name}", cause, "write null: it is nemotronh's alone")


def _hybrid(model: ModelShape) -> Iterator[RefusedError]:
    if model.pattern is None or model.mamba is None:
        missing = "pattern" if model.pattern is None else "mamba"
        yield RefusedError(f"recipe.model.{missing}", "is null", "a nemotronh needs it")
        return
    if set(model.pattern) - set(LAYER_LETTERS):
        letters = ", ".join(f"{letter} ({word})" for letter, word in LAYER_LETTERS.items())
        yield RefusedError("recipe.model.pattern", "has an unknown letter", f"use {letters}")
    if len(model.pattern) != model.layers:
        cause = f"has {len(model.pattern)} letters for {model.layers} layers"
        yield RefusedError("recipe.model.pattern", cause, "write one letter for each layer")
    yield from _below_one(model.mamba, "recipe.model.mamba")
    if model.mamba.heads % model.mamba.groups:
        cause = f"{model.mamba.groups} does not divide {model.mamba.heads} Mamba heads"
        yield RefusedError("recipe.model.mamba.groups", cause, "choose a divisor of heads")


def _parallelism(sizes: Parallelism) -> Iterator[RefusedError]:
    if sizes.tp * sizes.pp * sizes.cp > 1 or (sizes.vp or 1) > 1:
        asked = f"asks for tp {sizes.tp}, pp {sizes.pp}, cp {sizes.cp}, vp {sizes.vp}"
        cause = f"{asked}, but this program is data parallel only"
        yield RefusedError("recipe.parallelism", cause, "set tp, pp and cp to 1 and vp to null")


def _numbers(recipe: Recipe) -> Iterator[RefusedError]:
    for name in ("micro_batch", "global_batch", "max_steps"):
        if getattr(recipe, name) < 1:
            yield RefusedError(f"recipe.{name}", f"is {getattr(recipe, name)}", "write 1 or more")
    if not 0 <= recipe.seed < 2**63:
        yield RefusedError("recipe.seed", f"is {recipe.seed}", "choose one from 0 to 2^63 - 1")
    for name in ("learning_rate", "model_flops"):
        value = getattr(recipe, name)
        if value is not None and value <= 0:
            yield RefusedError(f"recipe.{name}", f"is {value:g}", "write a number above 0")


def _profile(profile: Profile, max_steps: int) -> Iterator[RefusedError]:
    if not 0 <= profile.start_step < profile.stop_step <= max_steps:
        cause = f"steps {profile.start_step} to {profile.stop_step} do not lie within {max_steps} steps"
        yield RefusedError("recipe.profile", cause, "choose 0 <= start_step < stop_step <= max_steps")
