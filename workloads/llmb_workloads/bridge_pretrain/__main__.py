# SPDX-License-Identifier: Apache-2.0
"""python -m llmb_workloads.bridge_pretrain RECIPE.json [--print]: a run from a frozen recipe."""

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from llmb_workloads.bridge_pretrain.recipe import (
    BridgeRecipe,
    check_libraries,
    check_world,
    fill_cache,
    read_recipe,
)
from llmb_workloads.bridge_pretrain.settings import BRIDGE, build
from llmb_workloads.command import begin_log, recipe_path
from llmb_workloads.fields import RefusedError
from llmb_workloads.library import plain
from llmb_workloads.world import rank_from

USAGE = "usage: python -m llmb_workloads.bridge_pretrain RECIPE.json [--print]"
CONFIGURATION = "configuration.json"  # written beside the log
# The function whose variables this process was started with.
STARTED_WITH = "LLMB_BRIDGE_STARTED_WITH"


def main(arguments: list[str]) -> int:
    """Run the recipe that the argument names, or print its configuration. 2 if it is refused."""
    path = recipe_path(arguments, USAGE)
    if path is None:
        return 2
    try:
        recipe = read_recipe(path)
        warnings = check_libraries(recipe)
        # Before anything imports torch, which reads some of them only then. What is set already,
        # stays.
        for name, value in recipe.environment.items():
            os.environ.setdefault(name, value)
        if recipe.hub:
            os.environ["HF_HUB_CACHE"] = str(fill_cache(recipe.hub))
        if recipe.function_environment:
            begin_with_variables(recipe)
        if "--print" in arguments:
            # what the library prints while it is imported is no data
            with contextlib.redirect_stdout(sys.stderr):
                text = to_text(recipe, build(recipe))
            print(text)
            return 0
        process = rank_from(os.environ)
        check_world(recipe, process)
        config = build(recipe)
    except RefusedError as error:
        print(f"llmb error: {error}", file=sys.stderr)
        return 2
    if process.rank == 0:
        Path(CONFIGURATION).write_text(to_text(recipe, config) + "\n", encoding="utf-8")
    begin_log(process, lambda: opening_line(recipe))
    if process.rank == 0:
        for text in warnings:
            print(f"llmb warning: {text}", flush=True)
    train(config)
    return 0


def begin_with_variables(recipe: BridgeRecipe) -> None:
    """Start this process again with the variables of NVIDIA's function that are not set.

    The function needs torch, which reads some of them only when it is imported. NVIDIA's own
    launcher builds the configuration twice too. Returns in the process that has them.
    """
    if os.environ.get(STARTED_WITH) == recipe.base:
        return
    with contextlib.redirect_stdout(sys.stderr):
        config = BRIDGE.find(*recipe.base.split(":"))()
    variables = getattr(config, "env_vars", None) or {}  # 0.3 has none
    for name, value in variables.items():
        os.environ.setdefault(name, str(value))
    os.environ[STARTED_WITH] = recipe.base
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def train(config: Any) -> None:
    """Train as NVIDIA's run_script.py does, and end the process group."""
    find = BRIDGE.find
    pretrain = find("megatron.bridge.training.pretrain", "pretrain")
    step = find("megatron.bridge.training.gpt_step", "forward_step")
    import torch.distributed

    pretrain(config=config, forward_step_func=step)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def opening_line(recipe: BridgeRecipe) -> str:
    """The first line: base function, image release, ranks and versions."""
    libraries = ", ".join(f"{name} {version}" for name, version in BRIDGE.versions().items())
    function = recipe.base.partition(":")[2]
    world = recipe.nodes * recipe.gpus_per_node
    return f"bridge_pretrain: {function} of release {recipe.release}, ranks: {world}, {libraries}"


def to_text(recipe: BridgeRecipe, config: Any) -> str:
    """Return the configuration as JSON, with versions and this process's variables."""
    environment = {name: os.environ[name] for name in recipe.environment if name in os.environ}
    shown = {"base": recipe.base, "versions": BRIDGE.versions(), "environment": environment}
    return json.dumps({**shown, "configuration": plain(config)}, indent=2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
