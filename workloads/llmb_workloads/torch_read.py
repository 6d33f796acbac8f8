# SPDX-License-Identifier: Apache-2.0
"""Reads the recipe of a torch run and checks it."""

from pathlib import Path

from llmb_workloads.fields import read_json, read_object
from llmb_workloads.limits import check_recipe
from llmb_workloads.torch_recipe import Recipe


def parse_recipe(raw: object) -> Recipe:
    """Check a decoded recipe; raises RefusedError at the first fault."""
    recipe = read_object(Recipe, raw, "recipe")
    check_recipe(recipe)
    return recipe


def read_recipe(path: Path) -> Recipe:
    """Read and check a recipe file; raises RefusedError when it cannot be read or will not do."""
    return parse_recipe(read_json(path))
