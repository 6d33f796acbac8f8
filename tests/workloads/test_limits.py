# SPDX-License-Identifier: Apache-2.0
"""Tests that invalid values are refused before a run starts."""

from collections.abc import Callable
from typing import Any

import pytest

from llmb_workloads.fields import RefusedError
from llmb_workloads.torch_recipe import parse_recipe

MakeRecipe = Callable[..., dict[str, Any]]


def refusal_of(raw: dict[str, Any]) -> RefusedError:
    with pytest.raises(RefusedError) as refusal:
        parse_recipe(raw)
    return refusal.value


@pytest.mark.parametrize("change", [{"tp": 2}, {"pp": 4}, {"cp": 2}, {"vp": 2}])
def test_any_parallelism_but_data_is_refused(
    raw_recipe: MakeRecipe, change: dict[str, int], wording: Callable[..., None]
) -> None:
    sizes = {"tp": 1, "pp": 1, "cp": 1, "vp": None} | change
    refusal = refusal_of(raw_recipe(parallelism=sizes))
    assert refusal.place == "recipe.parallelism"
    wording("torch_pretrain", str(refusal))


def test_a_virtual_pipeline_of_one_is_none(raw_recipe: MakeRecipe) -> None:
    parse_recipe(raw_recipe(parallelism={"tp": 1, "pp": 1, "cp": 1, "vp": 1}))


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("micro_batch", 0, "recipe.micro_batch"),
        ("global_batch", -8, "recipe.global_batch"),
        ("max_steps", 0, "recipe.max_steps"),
        ("seed", -1, "recipe.seed"),
        ("learning_rate", 0.0, "recipe.learning_rate"),
        ("model_flops", -2e9, "recipe.model_flops"),
        ("checkpoint", {"save": True, "dir": ""}, "recipe.checkpoint.dir"),
        ("profile", {"start_step": 0, "stop_step": 1, "dir": ""}, "recipe.profile.dir"),
    ],
)
def test_an_impossible_value_is_refused(
    raw_recipe: MakeRecipe, key: str, value: object, place: str, wording: Callable[..., None]
) -> None:
    refusal = refusal_of(raw_recipe(**{key: value}))
    assert refusal.place == place
    wording("torch_pretrain", str(refusal))


@pytest.mark.parametrize(("start", "stop"), [(-1, 5), (5, 5), (6, 5), (45, 51)])
def test_profiled_steps_are_within_the_run(raw_recipe: MakeRecipe, start: int, stop: int) -> None:
    refusal = refusal_of(raw_recipe(profile={"start_step": start, "stop_step": stop, "dir": "p"}))
    assert refusal.place == "recipe.profile"


@pytest.mark.parametrize(
    ("architecture", "change", "place"),
    [
        ("llama", {"layers": 0}, "recipe.model.layers"),
        ("llama", {"kv_groups": 3}, "recipe.model.kv_groups"),
        ("llama", {"hidden": 130}, "recipe.model.heads"),
        ("llama", {"head_dim": 33}, "recipe.model.head_dim"),
        ("nemotron", {"head_dim": 34}, "recipe.model.head_dim"),
        ("nemotron", {"pattern": "M-M-"}, "recipe.model.pattern"),
        ("nemotronh", {"pattern": None}, "recipe.model.pattern"),
        ("nemotronh", {"mamba": None}, "recipe.model.mamba"),
        ("nemotronh", {"pattern": "M-*ME"}, "recipe.model.pattern"),
        ("nemotronh", {"pattern": "M-"}, "recipe.model.pattern"),
    ],
)
def test_an_impossible_shape_is_refused(
    raw_recipe: MakeRecipe,
    architecture: str,
    change: dict[str, object],
    place: str,
    wording: Callable[..., None],
) -> None:
    raw = raw_recipe(architecture)
    raw["model"].update(change)
    refusal = refusal_of(raw)
    assert refusal.place == place
    wording("torch_pretrain", str(refusal))


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("state", 0, "recipe.model.mamba.state"),
        ("groups", 3, "recipe.model.mamba.groups"),
    ],
)
def test_impossible_mamba_layers_are_refused(
    raw_recipe: MakeRecipe, key: str, value: int, place: str, wording: Callable[..., None]
) -> None:
    raw = raw_recipe("nemotronh")
    raw["model"]["mamba"][key] = value
    refusal = refusal_of(raw)
    assert refusal.place == place
    wording("torch_pretrain", str(refusal))
