# SPDX-License-Identifier: Apache-2.0
"""Reads the recipe of a NeMo run and checks it."""

from pathlib import Path

from llmb_workloads.fields import read_json, read_object
from llmb_workloads.nemo_pretrain.limits import check_recipe
from llmb_workloads.nemo_pretrain.recipe import Recipe


def parse_recipe(raw: object, place: str = "recipe") -> Recipe:
    """Check a decoded recipe; raises RefusedError at the first fault, which begins with `place`."""
    recipe = read_object(Recipe, raw, place)
    check_recipe(recipe, place)
    return recipe


def read_recipe(path: Path) -> Recipe:
    """Read and check a recipe file; raises RefusedError when it cannot be read or will not do."""
    return parse_recipe(read_json(path), f"{path}: recipe")
