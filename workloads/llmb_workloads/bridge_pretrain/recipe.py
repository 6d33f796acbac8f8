# SPDX-License-Identifier: Apache-2.0
"""The recipe of a Megatron-Bridge run: reads and checks it."""

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
class BridgeRecipe:
    """One training run: NVIDIA's base function, and what is set on top.

    A value is plain JSON, ``{"name": "module:name"}`` for an object of a library, or ``{"call":
    "module:name", "with": {...}}`` for what a call returns.
    """

    program: Literal["bridge_pretrain"]
    schema: Literal[1]
    name: str
    #: The release of the image, for readers of the file.
    release: str
    #: The packages that must be installed, by version.
    libraries: dict[str, str]
    #: NVIDIA's function that returns the configuration, as ``module:name``.
    base: str
    #: Values by dotted path, in this order.
    set: dict[str, Any]
    #: The user's values, applied last.
    overrides: dict[str, Any]
    #: Variables for ranks in which they are not set.
    environment: dict[str, str]
    #: The configuration that ``base`` returns has further ones, ``env_vars``.
    function_environment: bool = False
    #: Folders with installed files, by repository of the model hub, or ``repository@revision`` for
    #: another revision than ``main``.
    hub: dict[str, str]
    nodes: int
    gpus_per_node: int


def read_recipe(path: Path) -> BridgeRecipe:
    """Read and check a recipe file. Raises RefusedError."""
    return parse_recipe(read_json(path), f"{path}: recipe")


def parse_recipe(raw: object, place: str = "recipe") -> BridgeRecipe:
    """Check a decoded recipe. Raises RefusedError for the first fault, with ``place``."""
    recipe = read_object(BridgeRecipe, raw, place)
    if re.fullmatch(r"[\w.]+:\w+", recipe.base) is None:
        raise RefusedError(f"{place}.base", f"is '{recipe.base}'", "write module:function")
    for key, count in (("nodes", recipe.nodes), ("gpus_per_node", recipe.gpus_per_node)):
        if count < 1:
            raise RefusedError(f"{place}.{key}", f"is {count}", "write 1 or more")
    return recipe


def check_world(recipe: BridgeRecipe, process: Process) -> None:
    """Raise RefusedError unless the number of processes is the recipe's number of GPUs."""
    world = recipe.nodes * recipe.gpus_per_node
    if process.world != world:
        cause = (
            f"ranks started: {process.world}, the recipe is for {recipe.nodes} ×"
            f" {recipe.gpus_per_node} GPUs"
        )
        raise RefusedError(
            "environment",
            cause,
            f"start {world} processes, one for each GPU, with srun or torchrun",
        )


def check_libraries(recipe: BridgeRecipe) -> list[str]:
    """Return a warning for each library of another patch level than the recipe's.

    Settings move and change their meaning between minor versions, so a recipe belongs to one:
    raises RefusedError for another one. Sites update images by patch levels, in which a setting
    changes at most. A suffix of a build (``0.3.1+abc``, ``0.3.1rc2``) is the same version.
    """
    warnings = []
    for name, required in recipe.libraries.items():
        installed = version(name)
        if installed is None:
            raise RefusedError(
                name,
                "is not installed",
                f"use the image of release {recipe.release} with {name} {required}",
            )
        if _numbers(installed)[:2] != _numbers(required)[:2]:
            cause = f"is another release than the recipe's, {required} of image {recipe.release}"
            fix = f"use that image, or plan the job for the release with {name} {installed}"
            raise RefusedError(f"{name} {installed}", cause, fix)
        if _numbers(installed) != _numbers(required):
            warnings.append(
                f"{name} {installed}, the recipe is for {required} of image {recipe.release}"
            )
    return warnings


def _numbers(text: str) -> list[int]:
    match = re.match(r"\d+(?:\.\d+)*", text)
    return [int(part) for part in match[0].split(".")] if match is not None else []


CONFIG = "config.json"
REVISION = "0" * 40  # the hub names snapshots by commit


def fill_cache(folders: Mapping[str, str], parent: Path | None = None) -> Path:
    """Fill the hub's cache on this node's own disk. Raises RefusedError for a missing config.json.

    It gets all files of each folder, a tokenizer's too. The hub's client finds the snapshot of a
    ``repository@revision`` only by that name. The ranks of a node fill the same folder, so each
    file appears whole.
    """
    cache = (parent or Path(tempfile.gettempdir())) / f"llmb-hub-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    if cache.stat().st_uid != os.getuid():
        raise RefusedError(
            str(cache), "belongs to another user", "set TMPDIR to a folder of your own"
        )
    for key, folder in folders.items():
        repository, _, revision = key.partition("@")
        source = Path(folder) / CONFIG
        if not source.is_file():
            raise RefusedError(
                str(source), "does not exist", "install it: llmb-install verify --repair --yes"
            )
        model = cache / f"models--{repository.replace('/', '--')}"
        for file in sorted(source.parent.iterdir()):
            if file.is_file() and not file.name.startswith("."):
                snapshot = model / "snapshots" / (revision or REVISION)
                _appear(snapshot / file.name, file.read_bytes())
        if not revision:
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
