# SPDX-License-Identifier: Apache-2.0
"""The names of NeMo: recipes, FLOPs formulas, fields of the optimizer. Those installed, else those of NeMo 2.3.1."""

import ast
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from llmb.text import typed, yamlfile

_RECIPES = Path("collections/llm/recipes")
_FLOPS = Path("lightning/pytorch/callbacks/flops_callback.py")
_FLOPS_TABLE = "_model_flops_map"
_OPTIMIZER = Path("megatron/core/optimizer/optimizer_config.py")
_OPTIMIZER_CLASS = "OptimizerConfig"
_TRANSFORMER = Path("megatron/core/transformer/transformer_config.py")
_MODULES = "allowed_modules"
_NEEDED = ("performance_mode", "MegatronCommOverlapCallback")  # of a recipe, by llmb's program


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoNames:
    """Names that ``source`` has: ``recipes``, modules with a pretrain_recipe, and ``flops``, models with a formula.

    NeMo takes any FLOPs name that contains one of ``flops``. ``usable``: the recipes that have what llmb's program
    sets; ``optimizer``: the fields of Megatron's OptimizerConfig with their type hints; ``recompute_modules``: what
    selective recomputation may name. The last three are empty where they are not known.
    """

    source: str
    recipes: tuple[str, ...]
    flops: tuple[str, ...]
    usable: tuple[str, ...] = ()
    optimizer: dict[str, str] = field(default_factory=dict)
    recompute_modules: tuple[str, ...] = ()

    def has_flops(self, name: str) -> bool:
        """Whether NeMo computes the FLOPs of a model called ``name``."""
        return any(one in name for one in self.flops)


@cache
def listed_names() -> NemoNames:
    """The names of recipes.yaml."""
    return typed.read(NemoNames, yamlfile.load(Path(__file__).with_name("recipes.yaml")))


def installed_names(venv: Path | None) -> NemoNames | None:
    """The names of the NeMo in ``venv``, else in this Python; None without NeMo. Imports nothing of it."""
    for package in _packages(venv):
        texts = {path.stem: path.read_text(encoding="utf-8") for path in (package / _RECIPES).glob("*.py")}
        names = sorted(name for name, text in texts.items() if "\ndef pretrain_recipe(" in text)
        if names:
            return NemoNames(
                source=f"NeMo in {package.parent}",
                recipes=tuple(names),
                flops=_flops(package),
                usable=tuple(name for name in names if all(word in texts[name] for word in _NEEDED)),
                optimizer=_optimizer(package.parent),
                recompute_modules=_recompute_modules(package.parent),
            )
    return None


def _packages(venv: Path | None) -> Iterator[Path]:
    """The folders in which the package nemo may be."""
    if venv is not None:
        yield from venv.glob("lib/python3*/site-packages/nemo")
    found = importlib.util.find_spec("nemo")
    yield from map(Path, (found.submodule_search_locations or ()) if found is not None else ())


def _parsed(path: Path) -> ast.Module:
    """The source of a module; an empty one where there is none to read."""
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return ast.parse("")


def _flops(package: Path) -> tuple[str, ...]:
    """The keys of the table of formulas; none where this NeMo has another one."""
    for node in _parsed(package / _FLOPS).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(keys=keys)) if name == _FLOPS_TABLE:
                return tuple(str(key.value) for key in keys if isinstance(key, ast.Constant))
    return ()


def _optimizer(packages: Path) -> dict[str, str]:
    """The fields of the optimizer's configuration, with their type hints as written."""
    for node in _parsed(packages / _OPTIMIZER).body:
        if isinstance(node, ast.ClassDef) and node.name == _OPTIMIZER_CLASS:
            hints = [one for one in node.body if isinstance(one, ast.AnnAssign)]
            return {ast.unparse(one.target): ast.unparse(one.annotation) for one in hints}
    return {}


def _recompute_modules(packages: Path) -> tuple[str, ...]:
    """The names that Megatron's own check of ``recompute_modules`` allows."""
    for node in ast.walk(_parsed(packages / _TRANSFORMER)):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Set(elts=items)) if name == _MODULES:
                return tuple(sorted(str(item.value) for item in items if isinstance(item, ast.Constant)))
    return ()
