# SPDX-License-Identifier: Apache-2.0
"""python -m llmb_workloads.nemo_pretrain RECIPE.json [--print]: a NeMo 2 training run from a frozen recipe."""

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

from llmb_workloads.fields import RefusedError
from llmb_workloads.library import plain
from llmb_workloads.nemo_pretrain.build import NEMO, build
from llmb_workloads.nemo_pretrain.recipe import Recipe, check_world, read_recipe
from llmb_workloads.node import node_line
from llmb_workloads.world import rank_from

USAGE = "usage: python -m llmb_workloads.nemo_pretrain RECIPE.json [--print]"


def main(arguments: list[str]) -> int:
    """Run the recipe that the argument names, or print its configuration; the exit code is 2 when it is refused."""
    paths = [argument for argument in arguments if argument != "--print"]
    if len(paths) != 1 or paths[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        return 2
    try:
        recipe = read_recipe(Path(paths[0]))
        if "--print" in arguments:
            return _print(recipe)
        place = rank_from(os.environ)
        check_world(recipe, place)
        partial = build(recipe)
    except RefusedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if place.rank == 0:
        print(opening_line(recipe), flush=True)
    if place.local_rank == 0 and (line := node_line()) is not None:
        print(line, flush=True)
    execute(partial)
    return 0


def execute(partial: Any) -> None:
    """Run a configured nemo_run.Partial to its end in this process, without a launcher."""
    import nemo_run

    # NeMo prints its steps to stdout and the end to stderr: one file would have them late and in the wrong order.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    nemo_run.run(partial, direct=True)


def opening_line(recipe: Recipe) -> str:
    """The first line: recipe, precision, ranks and versions."""
    world = recipe.nodes * recipe.gpus_per_node
    libraries = ", ".join(f"{name} {version}" for name, version in NEMO.versions().items())
    model = f"{recipe.recipe} (model {recipe.model_recipe})" if recipe.model_recipe is not None else recipe.recipe
    return f"nemo_pretrain: {model} with {recipe.precision.plugin}, ranks: {world}, {libraries}"


def _print(recipe: Recipe) -> int:
    # NeMo's output during its import is not part of the data.
    with contextlib.redirect_stdout(sys.stderr):
        shown = {"recipe": recipe.recipe, "versions": NEMO.versions(), "configuration": plain(build(recipe))}
    print(json.dumps(shown, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
