# SPDX-License-Identifier: Apache-2.0
"""Checks the ``nemo`` of a size by the names of a NeMo, which would refuse a wrong one in every rank."""

from collections.abc import Callable, Iterator
from typing import Any

from llmb.errors import KeyFaultError
from llmb.frameworks.nemo.recipe_names import NemoNames, listed_names
from llmb.text.names import nearest, suggest
from llmb.workload.nemo_recipe import MODEL, OPTIMIZER, NemoRecipe

UNUSABLE = "recipe-unusable"
_NEMO_2_3 = "nemo:25.04"  # its image
_MODULES = f"{MODEL}recompute_modules"
# Of OptimizerConfig's hints; a value with another hint is not judged.
_FITS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "str": ("a text", lambda value: isinstance(value, str)),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "int": ("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "float": ("a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool)),
}


def known_names(image: str | None) -> NemoNames | None:
    """The listed names, if they are those of the NeMo in ``image``; None of another release."""
    return listed_names() if _NEMO_2_3 in (image or _NEMO_2_3) else None


def recipe_faults(nemo: NemoRecipe, names: NemoNames) -> Iterator[KeyFaultError]:
    """Each fault, at its key path below ``nemo``."""
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
    """The fault of a recipe that lacks what llmb's program sets; None for a usable one, or where none is known."""
    if nemo.recipe in names.usable or not names.usable:
        return None
    why = "has no performance mode with the callback for communication overlap, which llmb's program sets"
    close = nearest(nemo.recipe, names.usable) or "NAME"
    hint = f"recipe: {close}, with model: {nemo.recipe}; usable are {', '.join(names.usable)}"
    message = f"recipe '{nemo.recipe}' of {names.source} {why}"
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
        yield KeyFaultError(message, "flops_name", hint=hint, code="flops-name-unknown", value=nemo.flops_name)


def _of_optimizer(name: str, value: object, place: tuple[str, ...], names: NemoNames) -> Iterator[KeyFaultError]:
    if name not in names.optimizer:
        message, hint = f"the optimizer of {names.source} has no field '{name}'", suggest(name, [*names.optimizer])
        yield KeyFaultError(message, *place, hint=hint, code="field-unknown", value=name)
        return
    kind = names.optimizer[name]
    inner = kind.removeprefix("Optional[").removesuffix("]") if kind.startswith("Optional[") else kind
    if inner not in _FITS or (value is None and inner != kind):
        return
    wanted, fits = _FITS[inner]
    if not fits(value):
        fix = "write it as 1.0e-4, with a point" if wanted == "a number" and isinstance(value, str) else None
        message = f"must be {wanted}, not {value!r}"
        yield KeyFaultError(message, *place, hint=fix, code="value-type", value=value)


def _of_modules(modules: list[Any], place: tuple[str, ...], names: NemoNames) -> Iterator[KeyFaultError]:
    for module in modules:
        if module not in names.recompute_modules:
            message = f"{names.source} has no module '{module}' to recompute"
            hint = suggest(str(module), names.recompute_modules)
            yield KeyFaultError(message, *place, hint=hint, code="module-unknown", value=module)
