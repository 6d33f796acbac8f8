# SPDX-License-Identifier: Apache-2.0
"""Checks the fields of a value that a plugin made against their type hints: Python itself does not."""

import dataclasses
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from llmb.errors import KeyFaultError

_Check = Callable[[Any], bool]


def check_types(value: Any) -> None:
    """Raise KeyFaultError (code ``value-type``) at the first field of a dataclass that has not the type of its hint.

    A whole number is also a float, but True is no number. Knows scalars, classes, ``Literal``, unions, tuples of one
    type and mappings; a value with another hint is not checked.
    """
    cls: type = type(value)
    for name, kind, fits in _checks(cls):
        given = getattr(value, name)
        if fits(given):
            continue
        message = f"{type(value).__name__}.{name} must be {_shown(kind)}, not {given!r}"
        raise KeyFaultError(message, name, hint=_hint(kind, given), code="value-type", value=given)


def _hint(kind: Any, given: object) -> str | None:
    """How to write ``given`` as ``kind``, where a slip of the pen is likely."""
    of_texts = get_origin(kind) is tuple and get_args(kind)[0] is str
    if of_texts and isinstance(given, str):
        return f"a tuple of one text has a comma: ({given!r},)"
    if of_texts and isinstance(given, (list, tuple)):
        return "tuple(map(str, ...))"
    if kind is str or (get_origin(kind) in (Mapping, dict) and get_args(kind)[1] is str):
        return "str(...)"
    return None


@cache
def _checks(cls: type) -> tuple[tuple[str, Any, _Check], ...]:
    hints = get_type_hints(cls)
    return tuple((field.name, hints[field.name], _check(hints[field.name])) for field in dataclasses.fields(cls))


def _check(kind: Any) -> _Check:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return lambda given: any(type(given) is type(word) and given == word for word in inner)
    if origin in (Union, types.UnionType):
        either = [_check(one) for one in inner]
        return lambda given: any(fits(given) for fits in either)
    if origin is tuple and len(inner) == 2 and inner[1] is Ellipsis:
        item = _check(inner[0])
        return lambda given: isinstance(given, tuple) and all(map(item, given))
    if origin in (Mapping, dict):
        key, item = map(_check, inner)
        return lambda given: isinstance(given, Mapping) and all(key(k) and item(v) for k, v in given.items())
    if kind is float:
        return lambda given: isinstance(given, int | float) and not isinstance(given, bool)
    if kind is int:
        return lambda given: isinstance(given, int) and not isinstance(given, bool)
    return (lambda given: isinstance(given, kind)) if isinstance(kind, type) else lambda given: True


def _shown(kind: Any) -> str:
    """A type as plugin authors write it, such as ``tuple[str, ...]``."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin in (Union, types.UnionType):
        return " or ".join(map(_shown, inner))
    if kind is type(None):
        return "None"
    if origin is not None:
        words = ", ".join("..." if one is Ellipsis else _shown(one) for one in inner)
        return f"{origin.__name__}[{words}]"
    return str(getattr(kind, "__name__", kind))
