# SPDX-License-Identifier: Apache-2.0
"""The names of NeMo's recipes and of the models whose FLOPs it computes: those installed, else those of NeMo 2.3.1."""

import ast
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from llmb.text import typed, yamlfile

_RECIPES = Path("collections/llm/recipes")
_FLOPS = Path("lightning/pytorch/callbacks/flops_callback.py")
_FLOPS_TABLE = "_model_flops_map"


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoNames:
    """Names that ``source`` has: ``recipes``, modules with a pretrain_recipe, and ``flops``, models with a formula.

    NeMo takes any FLOPs name that contains one of ``flops``.
    """

    source: str
    recipes: tuple[str, ...]
    flops: tuple[str, ...]

    def has_flops(self, name: str) -> bool:
        """Whether NeMo computes the FLOPs of a model called ``name``."""
        return any(one in name for one in self.flops)


def listed_names() -> NemoNames:
    """The names of recipes.yaml."""
    return typed.read(NemoNames, yamlfile.load(Path(__file__).with_name("recipes.yaml")))


def installed_names(venv: Path | None) -> NemoNames | None:
    """The names of the NeMo in ``venv``, else in this Python; None without NeMo. Imports nothing of it."""
    for package in _packages(venv):
        recipes = (package / _RECIPES).glob("*.py")
        names = [path.stem for path in recipes if "\ndef pretrain_recipe(" in path.read_text(encoding="utf-8")]
        if names:
            return NemoNames(source=f"NeMo in {package.parent}", recipes=tuple(sorted(names)), flops=_flops(package))
    return None


def _packages(venv: Path | None) -> Iterator[Path]:
    """The folders in which the package nemo may be."""
    if venv is not None:
        yield from venv.glob("lib/python3*/site-packages/nemo")
    found = importlib.util.find_spec("nemo")
    yield from map(Path, (found.submodule_search_locations or ()) if found is not None else ())


def _flops(package: Path) -> tuple[str, ...]:
    """The keys of the table of formulas; none where this NeMo has another one."""
    try:
        tree = ast.parse((package / _FLOPS).read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return ()
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(keys=keys)) if name == _FLOPS_TABLE:
                return tuple(str(key.value) for key in keys if isinstance(key, ast.Constant))
    return ()
