# SPDX-License-Identifier: Apache-2.0
"""python -m llmb_workloads.torch_pretrain RECIPE.json: a training run from a frozen recipe."""

import importlib.metadata
import os
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from llmb_workloads.fields import RefusedError
from llmb_workloads.torch_recipe import read_recipe
from llmb_workloads.world import plan_batch, process_from

# Nemotron-H is in transformers from 5.3 on, with its dense MLP layers from 5.6 on.
NEEDED = {"torch": (2, 4), "transformers": (5, 6)}


# Hides notices of faster kernels, of connections and of the profiler, unless these are set.
QUIET = {"TRANSFORMERS_VERBOSITY": "error", "TORCH_CPP_LOG_LEVEL": "ERROR", "KINETO_LOG_LEVEL": "6"}


def check_versions(version_of: Callable[[str], str] = importlib.metadata.version) -> None:
    """Raise RefusedError if a library is missing or too old."""
    for name, needed in NEEDED.items():
        least = ".".join(map(str, needed))
        try:
            installed = version_of(name)
        except importlib.metadata.PackageNotFoundError as error:
            raise RefusedError(
                name, "is not installed", f"install {name} {least} or newer"
            ) from error
        if tuple(int(part) for part in re.findall(r"\d+", installed)[:2]) < needed:
            raise RefusedError(
                f"{name} {installed}", "is too old", f"install {name} {least} or newer"
            )


def main(arguments: list[str]) -> int:
    """Run the recipe that the argument names. The exit code is 2 if it is refused."""
    if len(arguments) != 1:
        print("usage: python -m llmb_workloads.torch_pretrain RECIPE.json", file=sys.stderr)
        return 2
    try:
        recipe = read_recipe(Path(arguments[0]))
        process = process_from(os.environ)
        plan = plan_batch(micro=recipe.micro_batch, total=recipe.global_batch, world=process.world)
        check_versions()
    except RefusedError as error:
        print(f"llmb error: {error}", file=sys.stderr)
        return 2
    os.environ["HF_HUB_OFFLINE"] = "1"
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    # Imported here: torch takes seconds, a refusal should not.
    from llmb_workloads.torch_train import train

    try:
        trainer = train(recipe, process, plan)
    except BaseException:
        traceback.print_exc()
        _leave(1)
    return _leave(0, trainer)


def _leave(code: int, *alive: object) -> NoReturn:
    """End the process while the trained objects are ``alive``.

    They live as an argument, or in the frames of the failure. The destructor of torch's gloo group
    joins a thread while holding the interpreter's lock, for which that thread may be waiting:
    sometimes a rank that had finished never ended (seen with torch 2.13).
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
