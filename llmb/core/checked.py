# SPDX-License-Identifier: Apache-2.0
"""Checks values that a plugin made against the type hints of their fields."""

import dataclasses
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from llmb.errors import KeyFaultError

# Fields of lines and patterns, whose blanks do not separate words.
_OF_LINES = ("must_have", "must_not_have", "text", "beside", "without", "not_behind")
_LONGEST = 120  # characters of a value in a message
_Check = Callable[[Any], bool]


def check_types(value: Any) -> None:
    """Raise KeyFaultError (``value-type``) at the first field without the type of its hint.

    A whole number is also a float, but True is no number. Knows scalars, classes, ``Literal``,
    unions, tuples of one type and mappings. A value with another hint is not checked.
    """
    cls: type = type(value)
    for name, kind, fits in _checks(cls):
        value_of_field = getattr(value, name)
        if fits(value_of_field):
            continue
        text = repr(value_of_field)
        text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
        message = f"{type(value).__name__}.{name} must be {_shown(kind)}, not {text}"
        hint = _hint(name, kind, value_of_field)
        raise KeyFaultError(message, name, hint=hint, code="value-type", value=value_of_field)


def _hint(name: str, kind: Any, value: object) -> str | None:
    """Return the code that makes ``value`` a ``kind``, if a slip of the pen is likely."""
    origin, inner = get_origin(kind), get_args(kind)
    of_texts = origin is tuple and inner[0] is str
    if of_texts and isinstance(value, str):
        words = tuple(value.split())
        if len(words) > 1 and name not in _OF_LINES:
            return f"one text for each word: {words!r}"
        return f"a tuple of one text has a comma: ({value!r},)"
    if of_texts and isinstance(value, (list, tuple)):
        return "tuple(map(str, ...))"
    if origin is tuple and isinstance(value, list) and _check(kind)(tuple(value)):
        return "tuple(...)"
    if origin in (Mapping, dict):
        return _hint_for_mapping(inner[1], value)
    return "str(...)" if kind is str and value is not None else None


def _hint_for_mapping(kind: Any, value: object) -> str | None:
    if value is None:
        return "{} for none"
    if not isinstance(value, Mapping):
        return None
    for key, item in value.items():
        if not isinstance(key, str):
            return f"its keys are texts: {str(key)!r}"
        if kind is str and item is None:
            return f"omit {key!r}, or give it a text"
        if kind is str and not isinstance(item, str):
            return f"its values are texts: {{{key!r}: {str(item)!r}}}"
    return None


@cache
def _checks(cls: type) -> tuple[tuple[str, Any, _Check], ...]:
    hints = get_type_hints(cls)
    return tuple(
        (field.name, hints[field.name], _check(hints[field.name]))
        for field in dataclasses.fields(cls)
    )


def _check(kind: Any) -> _Check:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return lambda value: any(type(value) is type(word) and value == word for word in inner)
    if origin in (Union, types.UnionType):
        either = [_check(member) for member in inner]
        return lambda value: any(fits(value) for fits in either)
    if origin is tuple and len(inner) == 2 and inner[1] is Ellipsis:
        item = _check(inner[0])
        return lambda value: isinstance(value, tuple) and all(map(item, value))
    if origin in (Mapping, dict):
        key, item = map(_check, inner)
        return lambda value: (
            isinstance(value, Mapping) and all(key(k) and item(v) for k, v in value.items())
        )
    if kind is float:
        return lambda value: isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return lambda value: isinstance(value, int) and not isinstance(value, bool)
    return (lambda value: isinstance(value, kind)) if isinstance(kind, type) else lambda value: True


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
        words = ", ".join("..." if argument is Ellipsis else _shown(argument) for argument in inner)
        return f"{origin.__name__}[{words}]"
    return str(getattr(kind, "__name__", kind))
