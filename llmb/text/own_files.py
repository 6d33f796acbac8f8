# SPDX-License-Identifier: Apache-2.0
"""Converts the data of llmb's own files quickly: one function for each type hint, made once.

It accepts only what llmb writes. Anything else raises Unusual, and ``typed.read_own`` then converts it with all care:
so this decides how fast thousands of files are read, and never what they mean.

Values are frozen, so those of equal data are one: the jobs, launches and configurations of repeats.
"""

import dataclasses
import marshal
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

_LARGEST = 2**63
_INFINITE = float("inf")
_BY_VALUE = 2  # the version of marshal whose bytes are equal for equal data of equal types, and for no other
_FIRST, _MOST = 200, 4096  # of the values of a class: those that are kept before any is met again, and of all

Convert = Callable[[Any], Any]


class Unusual(ValueError):
    """The data is not what llmb writes."""


_MADE: dict[type, Convert] = {}


def converter(cls: type) -> Convert:
    """A function that returns the dataclass ``cls`` of plain data. It raises ValueError, TypeError or LookupError."""
    if cls not in _MADE:
        _MADE[cls] = _dataclass(cls)
    return _MADE[cls]


def _dataclass(cls: type) -> Convert:
    hints = get_type_hints(cls, include_extras=True)
    own = {field.name: _convert(hints[field.name]) for field in dataclasses.fields(cls)}

    def convert(value: Any) -> Any:
        if type(value) is not dict:
            raise Unusual
        return cls(**{name: own[name](item) for name, item in value.items() if name in own})

    return convert


def _convert(hint: Any) -> Convert:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return lambda value: value
    if origin is Annotated:
        return _checked(arguments[0], arguments[1:])
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if origin is Literal:
        return _chosen(arguments)
    if origin is tuple:
        return _sequence(_convert(arguments[0]))
    if origin in (dict, Mapping):
        return _table(arguments[0], _convert(arguments[1]))
    if hasattr(hint, "parse"):
        parse: Convert = hint.parse
        return parse
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        return _shared(hint)
    return _SCALARS.get(hint, _refuse)


def _shared(cls: type) -> Convert:
    """For a dataclass within another: equal data have one value, as long as at least every other one was known."""
    known: dict[bytes, Any] = {}
    found = 0

    def convert(value: Any) -> Any:
        nonlocal found
        own = converter(cls)  # not before: a class may contain itself
        if len(known) > _FIRST + found or len(known) >= _MOST:
            return own(value)
        data = marshal.dumps(value, _BY_VALUE)
        if data in known:
            found += 1
            return known[data]
        known[data] = own(value)
        return known[data]

    return convert


def _text(value: Any) -> Any:
    if type(value) is str and "\0" not in value:
        return value
    raise Unusual


def _whole(value: Any) -> Any:
    if type(value) is int and -_LARGEST <= value <= _LARGEST:
        return value
    raise Unusual


def _number(value: Any) -> Any:
    if type(value) is float and -_INFINITE < value < _INFINITE:
        return value
    return float(_whole(value))


def _truth(value: Any) -> Any:
    if type(value) is bool:
        return value
    raise Unusual


def _path(value: Any) -> Any:
    if _text(value) and value[0] != "~":
        return Path(value)
    raise Unusual


def _refuse(_value: Any) -> Any:
    raise Unusual


def _text_or_none(value: Any) -> Any:
    if value is None or (type(value) is str and "\0" not in value):
        return value
    raise Unusual


def _whole_or_none(value: Any) -> Any:
    if value is None or (type(value) is int and -_LARGEST <= value <= _LARGEST):
        return value
    raise Unusual


_OR_NONE: dict[Convert, Convert] = {_text: _text_or_none, _whole: _whole_or_none}
_SCALARS: dict[Any, Convert] = {str: _text, int: _whole, float: _number, bool: _truth, Path: _path}


def _union(arguments: tuple[Any, ...]) -> Convert:
    """For ``X | None``; other unions are left to ``typed``."""
    rest = [hint for hint in arguments if hint is not type(None)]
    if len(rest) != 1:
        return _refuse
    own = _convert(rest[0])
    if own in _OR_NONE:
        return _OR_NONE[own]
    return lambda value: None if value is None else own(value)


def _chosen(words: tuple[Any, ...]) -> Convert:
    def choose(value: Any) -> Any:
        if value in words:
            return value
        raise Unusual

    return choose


def _sequence(own: Convert) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is list:
            return tuple([own(item) for item in value])
        raise Unusual

    return convert


def _table(key_hint: Any, own: Convert) -> Convert:
    key = _convert(key_hint)
    if (key, own) == (_text, _text):
        return _texts

    def convert(value: Any) -> Any:
        if type(value) is dict:
            return {key(name): own(item) for name, item in value.items()}
        raise Unusual

    return convert


def _texts(value: Any) -> Any:
    if type(value) is not dict:
        raise Unusual
    for name, item in value.items():
        if type(name) is not str or type(item) is not str or "\0" in item or "\0" in name:
            raise Unusual
    return value


def _checked(hint: Any, checks: tuple[Any, ...]) -> Convert:
    own = _convert(hint)

    def convert(value: Any) -> Any:
        found = own(value)
        if found is not None:
            for check in checks:
                check(found)
        return found

    return convert
