# SPDX-License-Identifier: Apache-2.0
"""python -m llmb_workloads.torch_pretrain RECIPE.json: a training run from a frozen recipe."""

import importlib.metadata
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping
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


# For demonstrations and tests of verdicts: each step lasts longer by this share, as in a night with
# a fault. Part of the run's environment, so that each comparison names it.
SLOW_ON_PURPOSE = "SLOW_ON_PURPOSE"


def pause_share(environ: Mapping[str, str]) -> float:
    """Return the pause after each step as a share of it, 0 by default. Raises RefusedError."""
    text = environ.get(SLOW_ON_PURPOSE, "0")
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= MOST_PAUSE:
        raise RefusedError(
            "environment",
            f"{SLOW_ON_PURPOSE} is '{text}'",
            f"write the pause as a share of each step, 0 to {MOST_PAUSE}, or unset it",
        )
    return share


MOST_PAUSE = 10


def main(arguments: list[str]) -> int:
    """Run the recipe that the argument names. The exit code is 2 if it is refused."""
    if len(arguments) != 1:
        print("usage: python -m llmb_workloads.torch_pretrain RECIPE.json", file=sys.stderr)
        return 2
    try:
        recipe = read_recipe(Path(arguments[0]))
        process = process_from(os.environ)
        plan = plan_batch(micro=recipe.micro_batch, total=recipe.global_batch, world=process.world)
        pause = pause_share(os.environ)
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
        trainer = train(recipe, process, plan, pause)
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
