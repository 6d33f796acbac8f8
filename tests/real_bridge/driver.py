# SPDX-License-Identifier: Apache-2.0
"""python driver.py ours|theirs ROWS.json FOUND.json: the leaves of each row's configuration.

`ours` builds recipes with llmb's program; `theirs` calls NVIDIA's functions and imports nothing of
llmb. They run in two processes, because some objects of the library are shared by all
configurations of a process.
"""

import importlib
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

mocks, names = importlib.import_module("mocks"), importlib.import_module("leaves")


def ours(row: dict[str, Any]) -> tuple[Any, dict[str, str]]:
    """What the program builds of a recipe, and its variables."""
    build = importlib.import_module("llmb_workloads.bridge_pretrain.settings").build
    recipe = importlib.import_module("llmb_workloads.bridge_pretrain.recipe")
    read = recipe.parse_recipe(row["recipe"])
    recipe.check_libraries(read)
    config = build(read)
    function = getattr(config, "env_vars", {}) if read.function_environment else {}
    return config, {name: str(value) for name, value in function.items()} | read.environment


def theirs(row: dict[str, Any]) -> tuple[Any, dict[str, str]]:
    """What NVIDIA's function returns, and the variables that belong to it from 0.6 on."""
    module, _, name = row["base"].partition(":")
    config = getattr(importlib.import_module(module), name)()
    return config, {name: str(value) for name, value in getattr(config, "env_vars", {}).items()}


def shown(
    make: Callable[[dict[str, Any]], tuple[Any, dict[str, str]]], row: dict[str, Any]
) -> dict[str, Any]:
    """Leaves, variables, and what the library's own checks say, as at the start of a training:
    null where it accepts the configuration.
    """
    os.environ.update(WORLD_SIZE=str(row["gpus"]), RANK="0")
    mocks.pretend_gpu(row["gpu"])
    try:
        config, variables = make(row)
    except Exception as error:
        if type(error).__name__ != "RefusedError":
            raise
        return {"refused": str(error)}
    found = {"leaves": names.leaves(config), "environment": variables, "invalid": None}
    before = dict(os.environ)
    try:
        importlib.import_module("megatron.bridge.training.config").runtime_config_update(config)
        check_experts(config.model, row["gpus"])
    except (AssertionError, ValueError) as error:
        found["invalid"] = str(error)
    finally:
        os.environ.clear()
        os.environ.update(before)
    return found


def check_experts(model: Any, gpus: int) -> None:
    """Raise ValueError for experts that a stage's GPUs cannot hold.

    Megatron core does so when it makes its process groups (parallel_state.py).
    """
    ways = (
        getattr(model, "expert_model_parallel_size", None) or 1,
        getattr(model, "expert_tensor_parallel_size", None) or 1,
        model.pipeline_model_parallel_size,
    )
    if gpus % math.prod(ways):
        raise ValueError(f"{gpus} GPUs do not divide by ep·etp·pp = {ways}")


def main(side: str, source: str, target: str) -> None:
    """Write what one side makes of the rows."""
    mocks.install()
    mocks.add_missing_file()
    rows = json.loads(Path(source).read_text(encoding="utf-8"))
    make = ours if side == "ours" else theirs
    found = {label: shown(make, row) for label, row in rows.items()}
    Path(target).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
