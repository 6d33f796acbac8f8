# SPDX-License-Identifier: Apache-2.0
"""Converts the data of llmb's own files quickly: one function for each type hint, made once.

It accepts only what llmb writes. Anything else raises Unusual, and ``typed.read_own`` then converts
it with all care: so this decides how fast thousands of files are read, and never what they mean.

Values are frozen, so those of equal data are one: the jobs, launches and configurations of repeats.
"""

import dataclasses
import marshal
import types
from collections.abc import Callable, Mapping
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

_LARGEST = 2**63
_INFINITE = float("inf")
#: Floats that JSON has no word for, by the text that llmb writes for each.
NON_FINITE = {str(number): number for number in (float("nan"), _INFINITE, -_INFINITE)}
# the version of marshal whose bytes are equal for equal data of equal types, and for no other
_BY_VALUE = 2
# of the values of a class: those that are kept before any is met again, and of all
_FIRST, _MOST = 200, 4096

Convert = Callable[[Any], Any]


class Unusual(ValueError):
    """The data is not what llmb writes."""


_MADE: dict[type, Convert] = {}


def converter(cls: type) -> Convert:
    """Return a function that makes the dataclass ``cls`` of plain data.

    It raises ValueError, TypeError or LookupError.
    """
    if cls not in _MADE:
        _MADE[cls] = _dataclass(cls)
    return _MADE[cls]


def _dataclass(cls: type) -> Convert:
    hints = get_type_hints(cls, include_extras=True)
    converters = {field.name: _convert(hints[field.name]) for field in dataclasses.fields(cls)}

    def convert(value: Any) -> Any:
        if type(value) is not dict:
            raise Unusual
        return cls(
            **{name: converters[name](item) for name, item in value.items() if name in converters}
        )

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
    """Return a converter for a dataclass within another, which gives equal data one value.

    It keeps values as long as at least every other one was known.
    """
    values: dict[bytes, Any] = {}
    hits = 0

    def convert(value: Any) -> Any:
        nonlocal hits
        convert_new = converter(cls)  # not before: a class may contain itself
        if len(values) > _FIRST + hits or len(values) >= _MOST:
            return convert_new(value)
        data = marshal.dumps(value, _BY_VALUE)
        if data in values:
            hits += 1
            return values[data]
        values[data] = convert_new(value)
        return values[data]

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
    if type(value) is str and value in NON_FINITE:
        return NON_FINITE[value]
    return float(_whole(value))


def _truth(value: Any) -> Any:
    if type(value) is bool:
        return value
    raise Unusual


def _path(value: Any) -> Any:
    if isinstance(value, Path):  # given by its place, not by the file
        return value
    if _text(value) and value[0] != "~":
        return Path(value)
    raise Unusual


def _refuse(_value: Any) -> Any:
    raise Unusual


_SCALARS: dict[Any, Convert] = {str: _text, int: _whole, float: _number, bool: _truth, Path: _path}


def _union(arguments: tuple[Any, ...]) -> Convert:
    """Return a converter for ``X | None``, or for scalars of which each keeps its own type."""
    members = [hint for hint in arguments if hint is not type(None)]
    if len(members) != 1:
        return _scalar_of(arguments)
    convert = _convert(members[0])
    return lambda value: None if value is None else convert(value)


def _scalar_of(kinds: tuple[Any, ...]) -> Convert:
    """Return a converter that keeps 100, 100.0, True and the text 100 apart. A NaN stays text."""
    checks = {kind: _SCALARS[kind] for kind in kinds if kind in _SCALARS}
    if type(None) in kinds:
        checks[type(None)] = lambda value: value

    def convert(value: Any) -> Any:
        check = checks.get(type(value))
        if check is None:
            raise Unusual
        return check(value)

    return convert


def _chosen(words: tuple[Any, ...]) -> Convert:
    def choose(value: Any) -> Any:
        if value in words:
            return value
        raise Unusual

    return choose


def _sequence(convert_item: Convert) -> Convert:
    is_of_numbers, is_of_whole = convert_item is _number, convert_item is _whole

    def convert(value: Any) -> Any:
        if type(value) is not list:
            raise Unusual
        if is_of_numbers and set(map(type, value)) == {float} and all(map(isfinite, value)):
            return tuple(value)  # a loss curve has hundreds
        if is_of_whole and set(map(type, value)) == {int} and max(map(abs, value)) < _LARGEST:
            return tuple(value)
        return tuple([convert_item(item) for item in value])

    return convert


def _table(key_hint: Any, convert_item: Convert) -> Convert:
    key = _convert(key_hint)

    def convert(value: Any) -> Any:
        if type(value) is dict:
            return {key(name): convert_item(item) for name, item in value.items()}
        raise Unusual

    return convert


def _checked(hint: Any, checks: tuple[Any, ...]) -> Convert:
    convert_base = _convert(hint)

    def convert(value: Any) -> Any:
        result = convert_base(value)
        if result is not None:
            for check in checks:
                check(result)
        return result

    return convert
