# SPDX-License-Identifier: Apache-2.0
"""Checks the ``nemo`` of a size by the names of the installed NeMo, else by NeMo 2.3.1's."""

import ast
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any

from llmb.contract.nemo_recipe import MODEL, OPTIMIZER, NemoRecipe
from llmb.core import typed, yamlfile
from llmb.core.names import nearest, suggest
from llmb.core.values import dataclass
from llmb.errors import KeyFaultError

_RECIPES = Path("collections/llm/recipes")
_FLOPS = Path("lightning/pytorch/callbacks/flops_callback.py")
_FLOPS_TABLE = "_model_flops_map"
_OPTIMIZER = Path("megatron/core/optimizer/optimizer_config.py")
_OPTIMIZER_CLASS = "OptimizerConfig"
_TRANSFORMER = Path("megatron/core/transformer/transformer_config.py")
_NEMO_MODULES = "allowed_modules"
_NEEDED = ("performance_mode", "MegatronCommOverlapCallback")  # of a recipe, by llmb's program


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoNames:
    """The names that ``source`` has. The last three are empty if unknown."""

    source: str
    #: Modules with a pretrain_recipe.
    recipes: tuple[str, ...]
    #: Models with a formula. NeMo takes any FLOPs name that contains one of them.
    flops: tuple[str, ...]
    #: The recipes that have what llmb's program sets.
    usable: tuple[str, ...] = ()
    #: The fields of Megatron's OptimizerConfig with their type hints.
    optimizer: dict[str, str] = field(default_factory=dict)
    #: What selective recomputation may name.
    recompute_modules: tuple[str, ...] = ()

    def has_flops(self, name: str) -> bool:
        """Return True if NeMo computes the FLOPs of a model called ``name``."""
        return any(fragment in name for fragment in self.flops)


@cache
def listed_names() -> NemoNames:
    """Return the names of recipes.yaml."""
    return typed.read(NemoNames, yamlfile.load_packaged(Path(__file__).with_name("recipes.yaml")))


def installed_names(venv: Path | None) -> NemoNames | None:
    """Return the names of the NeMo in ``venv``, else in this Python, without importing it."""
    for package in _packages(venv):
        texts = {
            path.stem: path.read_text(encoding="utf-8")
            for path in (package / _RECIPES).glob("*.py")
        }
        names = sorted(name for name, text in texts.items() if "\ndef pretrain_recipe(" in text)
        if names:
            return NemoNames(
                source=f"NeMo in {package.parent}",
                recipes=tuple(names),
                flops=_flops(package),
                usable=tuple(
                    name for name in names if all(word in texts[name] for word in _NEEDED)
                ),
                optimizer=_optimizer(package.parent),
                recompute_modules=_recompute_modules(package.parent),
            )
    return None


def _packages(venv: Path | None) -> Iterator[Path]:
    """Find the folders in which the package nemo may be."""
    if venv is not None:
        yield from venv.glob("lib/python3*/site-packages/nemo")
    module = importlib.util.find_spec("nemo")
    yield from map(Path, (module.submodule_search_locations or ()) if module is not None else ())


def _parsed(path: Path) -> ast.Module:
    """Parse the source of a module. A file that cannot be read is an empty module."""
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return ast.parse("")


def _flops(package: Path) -> tuple[str, ...]:
    """Return the keys of the table of formulas, empty if this NeMo has another table."""
    for node in _parsed(package / _FLOPS).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(keys=keys)) if (
                name == _FLOPS_TABLE
            ):
                return tuple(str(key.value) for key in keys if isinstance(key, ast.Constant))
    return ()


def _optimizer(packages: Path) -> dict[str, str]:
    """The fields of the optimizer's configuration, with their type hints as written."""
    for node in _parsed(packages / _OPTIMIZER).body:
        if isinstance(node, ast.ClassDef) and node.name == _OPTIMIZER_CLASS:
            hints = [
                field_node for field_node in node.body if isinstance(field_node, ast.AnnAssign)
            ]
            return {
                ast.unparse(field_node.target): ast.unparse(field_node.annotation)
                for field_node in hints
            }
    return {}


def _recompute_modules(packages: Path) -> tuple[str, ...]:
    """The names that Megatron's own check of ``recompute_modules`` allows."""
    for node in ast.walk(_parsed(packages / _TRANSFORMER)):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Set(elts=items)) if (
                name == _NEMO_MODULES
            ):
                return tuple(
                    sorted(str(item.value) for item in items if isinstance(item, ast.Constant))
                )
    return ()


UNUSABLE = "recipe-unusable"
_NEMO_2_3 = "nemo:25.04"  # its image
_MODULES = f"{MODEL}recompute_modules"
# Of OptimizerConfig's hints; a value with another hint is not judged.
_FITS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "str": ("a text", lambda value: isinstance(value, str)),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "int": ("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "float": (
        "a number",
        lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    ),
}


def known_names(image: str | None) -> NemoNames | None:
    """Return the listed names if the NeMo in ``image`` is the listed one, else None."""
    return listed_names() if _NEMO_2_3 in (image or _NEMO_2_3) else None


def recipe_faults(nemo: NemoRecipe, names: NemoNames) -> Iterator[KeyFaultError]:
    """Find each fault, at its key path below ``nemo``."""
    yield from _unknown(nemo, names)
    if nemo.recipe in names.recipes and (fault := unusable(nemo, names)) is not None:
        yield fault
    for path, value in nemo.settings().items():
        name = path.removeprefix(OPTIMIZER)
        if path.startswith(OPTIMIZER) and names.optimizer:
            place = ("optimizer", name) if name in nemo.optimizer else ("overrides", path)
            yield from _of_optimizer(name, value, place, names)
        elif path == _MODULES and names.recompute_modules and isinstance(value, list):
            place = ("overrides", path) if path in nemo.overrides else ("recompute", "modules")
            yield from _of_modules(value, place, names)


def unusable(nemo: NemoRecipe, names: NemoNames) -> KeyFaultError | None:
    """Return the fault of a recipe that lacks what llmb's program sets, None if none is known."""
    if nemo.recipe in names.usable or not names.usable:
        return None
    cause = (
        "has no performance mode with the callback for communication overlap, which llmb's program"
        " sets"
    )
    close = nearest(nemo.recipe, names.usable) or "NAME"
    hint = f"recipe: {close}, with model: {nemo.recipe}; usable are {', '.join(names.usable)}"
    message = f"recipe '{nemo.recipe}' of {names.source} {cause}"
    return KeyFaultError(message, "recipe", hint=hint, code=UNUSABLE, value=nemo.recipe)


def _unknown(nemo: NemoRecipe, names: NemoNames) -> Iterator[KeyFaultError]:
    for part in ("recipe", "model"):
        name = getattr(nemo, part)
        if name is not None and name not in names.recipes:
            message, hint = f"{names.source} has no recipe '{name}'", suggest(name, names.recipes)
            yield KeyFaultError(message, part, hint=hint, code="recipe-unknown", value=name)
    if names.flops and not names.has_flops(nemo.flops_name):
        message, hint = (
            f"{names.source} has no FLOPs formula '{nemo.flops_name}'",
            suggest(nemo.flops_name, names.flops),
        )
        yield KeyFaultError(
            message, "flops_name", hint=hint, code="flops-name-unknown", value=nemo.flops_name
        )


def _of_optimizer(
    name: str, value: object, place: tuple[str, ...], names: NemoNames
) -> Iterator[KeyFaultError]:
    if name not in names.optimizer:
        message, hint = (
            f"the optimizer of {names.source} has no field '{name}'",
            suggest(name, [*names.optimizer]),
        )
        yield KeyFaultError(message, *place, hint=hint, code="field-unknown", value=name)
        return
    kind = names.optimizer[name]
    inner = (
        kind.removeprefix("Optional[").removesuffix("]") if kind.startswith("Optional[") else kind
    )
    if inner not in _FITS or (value is None and inner != kind):
        return
    expected_type, fits = _FITS[inner]
    if not fits(value):
        fix = (
            "write it as 1.0e-4, with a point"
            if expected_type == "a number" and isinstance(value, str)
            else None
        )
        message = f"must be {expected_type}, not {value!r}"
        yield KeyFaultError(message, *place, hint=fix, code="value-type", value=value)


def _of_modules(
    modules: list[Any], place: tuple[str, ...], names: NemoNames
) -> Iterator[KeyFaultError]:
    for module in modules:
        if module not in names.recompute_modules:
            message = f"{names.source} has no module '{module}' to recompute"
            hint = suggest(str(module), names.recompute_modules)
            yield KeyFaultError(message, *place, hint=hint, code="module-unknown", value=module)
