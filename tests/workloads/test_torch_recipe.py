# SPDX-License-Identifier: Apache-2.0
"""A recipe is read whole or refused in one line with its fix."""

import dataclasses
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb_workloads.fields import RefusedError
from llmb_workloads.torch_recipe import parse_recipe, read_recipe

MakeRecipe = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("architecture", ["llama", "nemotron", "nemotronh"])
def test_a_recipe_keeps_every_value(raw_recipe: MakeRecipe, architecture: str) -> None:
    raw = raw_recipe(
        architecture,
        checkpoint={"save": True, "dir": "c"},
        profile={"start_step": 45, "stop_step": 50, "dir": "p"},
    )
    assert dataclasses.asdict(parse_recipe(raw)) == raw


def test_a_whole_number_serves_as_a_float(raw_recipe: MakeRecipe) -> None:
    assert parse_recipe(raw_recipe(learning_rate=1)).learning_rate == 1.0


@pytest.mark.parametrize(
    "key", ["program", "dtype", "max_steps", "checkpoint", "profile", "model_flops"]
)
def test_a_missing_key_is_refused(raw_recipe: MakeRecipe, key: str) -> None:
    raw = raw_recipe()
    del raw[key]
    with pytest.raises(RefusedError, match=rf"^recipe: .*'{key}'"):
        parse_recipe(raw)


def test_an_unknown_key_gets_the_nearest_word(raw_recipe: MakeRecipe) -> None:
    with pytest.raises(RefusedError, match=r"'micro_bacth'.*'micro_batch'"):
        parse_recipe(raw_recipe() | {"micro_bacth": 1})


def test_a_key_like_no_other_gets_the_list(
    raw_recipe: MakeRecipe, wording: Callable[..., None]
) -> None:
    raw = raw_recipe()
    raw["parallelism"]["zebra"] = 1
    with pytest.raises(RefusedError) as refused:
        parse_recipe(raw)
    assert refused.value.place == "recipe.parallelism"
    wording("torch_pretrain", str(refused.value))


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("program", "nemo_pretrain", "recipe.program"),
        ("dtype", "fp8", "recipe.dtype"),
        ("micro_batch", 2.0, "recipe.micro_batch"),
        ("max_steps", True, "recipe.max_steps"),
        ("learning_rate", "fast", "recipe.learning_rate"),
        ("learning_rate", float("nan"), "recipe.learning_rate"),
        ("model", [], "recipe.model"),
        ("checkpoint", {"save": 1, "dir": "c"}, "recipe.checkpoint.save"),
        ("profile", {"start_step": 0, "stop_step": 1, "dir": 7}, "recipe.profile.dir"),
    ],
)
def test_a_value_of_another_kind_is_refused(
    raw_recipe: MakeRecipe, key: str, value: object, place: str, wording: Callable[..., None]
) -> None:
    with pytest.raises(RefusedError) as refusal:
        parse_recipe(raw_recipe(**{key: value}))
    assert refusal.value.place == place
    wording("torch_pretrain", str(refusal.value))


def test_an_error_shows_only_the_beginning_of_a_long_value() -> None:
    with pytest.raises(RefusedError) as refusal:
        parse_recipe(["x" * 1000])
    assert len(str(refusal.value)) < 100


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=os.strerror(errno.ENOENT)) as refused:
        read_recipe(tmp_path / "none.json")
    assert refused.value.place == str(tmp_path / "none.json")


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "recipe.json"
    file.write_text("{", encoding="utf-8")
    with pytest.raises(RefusedError) as refusal:
        read_recipe(file)
    assert refusal.value.place == str(file)


def test_a_file_is_read(raw_recipe: MakeRecipe, tmp_path: Path) -> None:
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps(raw_recipe()), encoding="utf-8")
    assert read_recipe(file) == parse_recipe(raw_recipe())
