# SPDX-License-Identifier: Apache-2.0
"""No run starts with values that no run could have."""

from collections.abc import Callable
from typing import Any

import pytest

from llmb_workloads.fields import RefusedError
from llmb_workloads.torch_recipe import parse_recipe

MakeRecipe = Callable[..., dict[str, Any]]


def refusal_of(raw: dict[str, Any]) -> str:
    with pytest.raises(RefusedError) as refusal:
        parse_recipe(raw)
    return str(refusal.value)


@pytest.mark.parametrize("change", [{"tp": 2}, {"pp": 4}, {"cp": 2}, {"vp": 2}])
def test_any_parallelism_but_data_is_refused(raw_recipe: MakeRecipe, change: dict[str, int]) -> None:
    sizes = {"tp": 1, "pp": 1, "cp": 1, "vp": None} | change
    message = refusal_of(raw_recipe(parallelism=sizes))
    assert message.startswith("recipe.parallelism: asks for tp ")
    assert "this program is data parallel only; set tp, pp and cp to 1" in message


def test_a_virtual_pipeline_of_one_is_none(raw_recipe: MakeRecipe) -> None:
    parse_recipe(raw_recipe(parallelism={"tp": 1, "pp": 1, "cp": 1, "vp": 1}))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("micro_batch", 0, "recipe.micro_batch: is 0; write 1 or more"),
        ("global_batch", -8, "recipe.global_batch: is -8; write 1 or more"),
        ("max_steps", 0, "recipe.max_steps: is 0; write 1 or more"),
        ("seed", -1, "recipe.seed: is -1; choose one from 0 to 2^63 - 1"),
        ("learning_rate", 0.0, "recipe.learning_rate: is 0; write a number above 0"),
        ("model_flops", -2e9, "recipe.model_flops: is -2e+09; write a number above 0"),
        ("checkpoint", {"save": True, "dir": ""}, "recipe.checkpoint.dir: is empty; name a folder"),
        ("profile", {"start_step": 0, "stop_step": 1, "dir": ""}, "recipe.profile.dir: is empty; name a folder"),
    ],
)
def test_an_impossible_value_is_refused(raw_recipe: MakeRecipe, key: str, value: object, message: str) -> None:
    assert refusal_of(raw_recipe(**{key: value})) == message


@pytest.mark.parametrize(("start", "stop"), [(-1, 5), (5, 5), (6, 5), (45, 51)])
def test_profiled_steps_lie_within_the_run(raw_recipe: MakeRecipe, start: int, stop: int) -> None:
    message = refusal_of(raw_recipe(profile={"start_step": start, "stop_step": stop, "dir": "p"}))
    assert message.startswith(f"recipe.profile: steps {start} to {stop} do not lie within 50 steps;")


@pytest.mark.parametrize(
    ("architecture", "change", "message"),
    [
        ("llama", {"layers": 0}, "recipe.model.layers: is 0; write 1 or more"),
        ("llama", {"kv_groups": 3}, "recipe.model.kv_groups: 3 does not divide 4 heads; choose a divisor of heads"),
        ("llama", {"hidden": 130}, "recipe.model.heads: 4 does not divide hidden 130; choose a divisor of hidden"),
        ("llama", {"head_dim": 33}, "recipe.model.head_dim: 33 is no multiple of 2, as llama's rotary"),
        ("nemotron", {"head_dim": 34}, "recipe.model.head_dim: 34 is no multiple of 4, as nemotron's rotary"),
        ("nemotron", {"pattern": "M-M-"}, "recipe.model.pattern: is given for a nemotron; write null"),
        ("nemotronh", {"pattern": None}, "recipe.model.pattern: is null; a nemotronh needs it"),
        ("nemotronh", {"mamba": None}, "recipe.model.mamba: is null; a nemotronh needs it"),
        ("nemotronh", {"pattern": "M-*ME"}, "recipe.model.pattern: has an unknown letter; use M (Mamba-2), - (MLP)"),
        ("nemotronh", {"pattern": "M-"}, "recipe.model.pattern: has 2 letters for 5 layers; write one letter"),
    ],
)
def test_an_impossible_shape_is_refused(
    raw_recipe: MakeRecipe, architecture: str, change: dict[str, object], message: str
) -> None:
    raw = raw_recipe(architecture)
    raw["model"].update(change)
    assert refusal_of(raw).startswith(message)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("state", 0, "recipe.model.mamba.state: is 0; write 1 or more"),
        ("groups", 3, "recipe.model.mamba.groups: 3 does not divide 8 Mamba heads; choose a divisor of heads"),
    ],
)
def test_impossible_mamba_layers_are_refused(raw_recipe: MakeRecipe, key: str, value: int, message: str) -> None:
    raw = raw_recipe("nemotronh")
    raw["model"]["mamba"][key] = value
    assert refusal_of(raw) == message
