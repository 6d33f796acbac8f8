# SPDX-License-Identifier: Apache-2.0
"""The recipe of a Megatron-Bridge run: NVIDIA's base function and what is set on top. Reads and checks it."""

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from llmb_workloads.fields import RefusedError, read_json, read_object
from llmb_workloads.library import version
from llmb_workloads.world import Process


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One training run.

    ``release``: the image's, for readers of the file; ``libraries``: the packages that must be installed, by version;
    ``base``: NVIDIA's function that returns the configuration, as ``module:name``; ``set``: values by dotted path, in
    this order; ``overrides``: those of the user, applied last; ``environment``: variables for ranks in which they are
    not set; ``hub``: folders with a config.json, by the model hub's repository that it is from.

    A value is plain JSON, ``{"name": "module:name"}`` for an object of a library, or
    ``{"call": "module:name", "with": {...}}`` for what a call returns.
    """

    program: Literal["bridge_pretrain"]
    schema: Literal[1]
    name: str
    release: str
    libraries: dict[str, str]
    base: str
    set: dict[str, Any]
    overrides: dict[str, Any]
    environment: dict[str, str]
    hub: dict[str, str]
    nodes: int
    gpus_per_node: int


def read_recipe(path: Path) -> Recipe:
    """Read and check a recipe file; raises RefusedError when it cannot be read or is invalid."""
    return parse_recipe(read_json(path), f"{path}: recipe")


def parse_recipe(raw: object, place: str = "recipe") -> Recipe:
    """Read and check a decoded recipe; raises RefusedError for the first fault, whose place begins with ``place``."""
    recipe = read_object(Recipe, raw, place)
    if re.fullmatch(r"[\w.]+:\w+", recipe.base) is None:
        raise RefusedError(f"{place}.base", f"is '{recipe.base}'", "write module:function")
    for key, count in (("nodes", recipe.nodes), ("gpus_per_node", recipe.gpus_per_node)):
        if count < 1:
            raise RefusedError(f"{place}.{key}", f"is {count}", "write 1 or more")
    return recipe


def check_world(recipe: Recipe, process: Process) -> None:
    """Raise RefusedError unless the number of processes is the recipe's number of GPUs."""
    world = recipe.nodes * recipe.gpus_per_node
    if process.world != world:
        cause = f"ranks started: {process.world}, the recipe is for {recipe.nodes} × {recipe.gpus_per_node} GPUs"
        raise RefusedError("environment", cause, f"start {world} processes, one for each GPU, with srun or torchrun")


def check_libraries(recipe: Recipe) -> None:
    """Raise RefusedError unless the installed libraries have the recipe's versions.

    Settings move and change their meaning between releases, so a recipe belongs to one. A suffix of a build
    (``0.3.1+abc``, ``0.3.1rc2``) is the same release.
    """
    for name, wanted in recipe.libraries.items():
        found = version(name)
        if found is None:
            raise RefusedError(
                name, "is not installed", f"use the image of release {recipe.release} with {name} {wanted}"
            )
        if _release(found) != _release(wanted):
            cause = f"is another release than the recipe's, {wanted} of image {recipe.release}"
            fix = f"use that image, or plan the job for the release with {name} {found}"
            raise RefusedError(f"{name} {found}", cause, fix)


def _release(text: str) -> list[int]:
    match = re.match(r"\d+(?:\.\d+)*", text)
    return [int(part) for part in match[0].split(".")] if match is not None else []


CONFIG = "config.json"
REVISION = "0" * 40  # the hub names snapshots by commit


def fill_cache(folders: Mapping[str, str], parent: Path | None = None) -> Path:
    """The cache, on this node's own disk. Raises RefusedError where a config.json is missing.

    The ranks of a node fill the same folder; each file appears whole.
    """
    cache = (parent or Path(tempfile.gettempdir())) / f"llmb-hub-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    if cache.stat().st_uid != os.getuid():
        raise RefusedError(str(cache), "belongs to another user", "set TMPDIR to a folder of your own")
    for repository, folder in folders.items():
        source = Path(folder) / CONFIG
        if not source.is_file():
            raise RefusedError(str(source), "does not exist", "install it: llmb-install verify --repair --yes")
        model = cache / f"models--{repository.replace('/', '--')}"
        _appear(model / "snapshots" / REVISION / CONFIG, source.read_bytes())
        _appear(model / "refs" / "main", REVISION.encode())
    return cache


def _appear(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file() and path.read_bytes() == content:
        return
    handle, part = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    shutil.move(part, path)
