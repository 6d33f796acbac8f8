# SPDX-License-Identifier: Apache-2.0
"""python -m llmb_workloads.nemo_pretrain RECIPE.json [--print]: NeMo 2 from a frozen recipe."""

import contextlib
import json
import os
import sys
from typing import Any

from llmb_workloads.command import begin_log, recipe_path
from llmb_workloads.fields import RefusedError
from llmb_workloads.library import plain
from llmb_workloads.nemo_pretrain.build import NEMO, build
from llmb_workloads.nemo_pretrain.recipe import NemoRunRecipe, check_world, read_recipe
from llmb_workloads.world import rank_from

USAGE = "usage: python -m llmb_workloads.nemo_pretrain RECIPE.json [--print]"


def main(arguments: list[str]) -> int:
    """Run the recipe that the argument names, or print its configuration. 2 if it is refused."""
    path = recipe_path(arguments, USAGE)
    if path is None:
        return 2
    try:
        recipe = read_recipe(path)
        if "--print" in arguments:
            return _print(recipe)
        process = rank_from(os.environ)
        check_world(recipe, process)
        partial = build(recipe)
    except RefusedError as error:
        print(f"llmb error: {error}", file=sys.stderr)
        return 2
    begin_log(process, lambda: opening_line(recipe))
    execute(partial)
    return 0


def execute(partial: Any) -> None:
    """Run a configured nemo_run.Partial to its end in this process, without a launcher."""
    import nemo_run

    nemo_run.run(partial, direct=True)


def opening_line(recipe: NemoRunRecipe) -> str:
    """The first line: recipe, precision, ranks and versions."""
    world = recipe.nodes * recipe.gpus_per_node
    libraries = ", ".join(f"{name} {version}" for name, version in NEMO.versions().items())
    model = (
        f"{recipe.recipe} (model {recipe.model_recipe})"
        if recipe.model_recipe is not None
        else recipe.recipe
    )
    return f"nemo_pretrain: {model} with {recipe.precision.plugin}, ranks: {world}, {libraries}"


def _print(recipe: NemoRunRecipe) -> int:
    # NeMo's output during its import is not part of the data.
    with contextlib.redirect_stdout(sys.stderr):
        shown = {
            "recipe": recipe.recipe,
            "versions": NEMO.versions(),
            "configuration": plain(build(recipe)),
        }
    print(json.dumps(shown, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
