# SPDX-License-Identifier: Apache-2.0
"""Builds Megatron-Bridge's configuration: NVIDIA's function, overridden by dotted paths."""

import dataclasses
import enum
import typing
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from llmb_workloads.bridge_pretrain.recipe import BridgeRecipe
from llmb_workloads.fields import RefusedError, shown
from llmb_workloads.library import Library, nearest

BRIDGE = Library(
    package="megatron-bridge",
    module="megatron",
    fix="use the image of the recipe's release",
    shown=("megatron-bridge", "megatron-core", "transformer-engine", "torch"),
)
PLAIN = (bool, int, float, str)


def build(recipe: BridgeRecipe) -> Any:
    """Build the configuration. Raises RefusedError for names and values that the library lacks."""
    config = _find(recipe.base)()
    for part, values in (("set", recipe.set), ("overrides", recipe.overrides)):
        for path, raw in values.items():
            put(config, path, raw, f"recipe.{part}.{path}")
    return config


def put(config: Any, path: str, raw: Any, place: str) -> None:
    """Set the value at a dotted ``path`` of ``config``. Raises RefusedError at ``place``."""
    *parents, last = path.split(".")
    owner = config
    for name in parents:
        _check_name(owner, name, place)
        owner = getattr(owner, name)
        if not dataclasses.is_dataclass(owner):
            raise RefusedError(
                place, f"goes through '{name}', which is {shown(owner)}", "set that first"
            )
    _check_name(owner, last, place)
    setattr(owner, last, _value(owner, last, raw, place))


def _check_name(owner: Any, name: str, place: str) -> None:
    settings = {*(field.name for field in dataclasses.fields(owner)), *vars(owner)}
    if name not in settings:
        fix = (
            nearest(name, settings) or f"{type(owner).__name__} has: {', '.join(sorted(settings))}"
        )
        raise RefusedError(
            place, f"{BRIDGE.label} has no setting '{name}' in {type(owner).__name__}", fix
        )


def _value(owner: Any, name: str, raw: Any, place: str) -> Any:
    if isinstance(raw, dict):
        return _made(raw, place)
    if isinstance(raw, str) and (members := _members(owner, name)) is not None:
        return _member(members, raw, place)
    kinds = set(_kinds(owner, name))
    choices = [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    types = {kind for kind in kinds if kind in PLAIN}
    if float in types:
        types.add(int)
    if raw is None:
        if type(None) not in kinds and any(kinds) and getattr(owner, name, None) is not None:
            raise RefusedError(
                place, "is null", f"it is {shown(getattr(owner, name))}; write a value of that kind"
            )
    elif choices and raw not in choices and type(raw) not in types:
        fix = nearest(str(raw), [choice for choice in choices if isinstance(choice, str)])
        raise RefusedError(
            place, f"is {shown(raw)}", fix or f"choose one of {', '.join(map(str, choices))}"
        )
    elif not choices and types and kinds <= {*PLAIN, type(None)} and type(raw) not in types:
        raise RefusedError(
            place,
            f"is {shown(raw)}",
            f"write {' or '.join(sorted(kind.__name__ for kind in types))}",
        )
    return raw


def _made(raw: dict[str, Any], place: str) -> Any:
    """Return the object that ``{"name": ...}`` or ``{"call": ..., "with": {...}}`` describes."""
    if set(raw) == {"name"}:
        return _find(raw["name"])
    if set(raw) == {"call", "with"}:
        try:
            return _find(raw["call"])(**raw["with"])
        except TypeError as error:
            raise RefusedError(
                place, f"{raw['call']} refuses {shown(raw['with'])} ({error})", "correct them"
            ) from error
    raise RefusedError(
        place, f"is {shown(raw)}", 'write {"name": ...} or {"call": ..., "with": {...}}'
    )


def _members(owner: Any, name: str) -> type[enum.Enum] | None:
    """Return the enumeration of a setting, by its annotation or its present value."""
    value = getattr(owner, name, None)
    kinds = [kind for kind in (*_kinds(owner, name), type(value)) if isinstance(kind, type)]
    return next((kind for kind in kinds if issubclass(kind, enum.Enum)), None)


def _member(members: type[enum.Enum], raw: str, place: str) -> enum.Enum:
    if raw not in members.__members__:
        fix = nearest(raw, members.__members__) or f"choose one of {', '.join(members.__members__)}"
        raise RefusedError(place, f"is {shown(raw)}", fix)
    return members[raw]


def _kinds(owner: Any, name: str) -> Iterator[Any]:
    """Yield the types of a setting by its annotation, nothing if it cannot be read here."""
    try:
        hints = typing.get_type_hints(type(owner))
    except (NameError, TypeError, AttributeError):
        return
    pending = [hints[name]] if name in hints else []
    while pending:
        kind = pending.pop()
        inner = get_args(kind)
        if (inner and get_origin(kind) is not Literal and type(None) in inner) or _is_union(kind):
            pending.extend(inner)
        else:
            yield kind


def _is_union(kind: Any) -> bool:
    return get_origin(kind) is typing.Union or type(kind).__name__ == "UnionType"


def _find(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return BRIDGE.find(module, attribute)
