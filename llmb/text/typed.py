# SPDX-License-Identifier: Apache-2.0
"""Turns plain data into frozen dataclasses by their type hints, telling every fault with its place and fix."""

import dataclasses
import math
import re
import types
import typing
from collections.abc import Hashable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union

from llmb.errors import Fault, InputFaults, LlmbError
from llmb.text.names import suggest
from llmb.text.yamlfile import Document, KeyPath

T = TypeVar("T")

_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", Path: "a path"}
_SCALARS = frozenset({str, int, float, bool, type(None)})
_EXPONENT = re.compile(r"[-+]?\d+(?:\.\d*)?e[-+]?\d+", re.IGNORECASE)  # 1e-3 and 4.1e13, which YAML 1.1 takes for text
_KEYS_TOLD = 12
_LARGEST = 2**63
_MOVE = "move it away"
_NOT_AS_IT_LOOKS = re.compile(r"[-+]?0\d[\d_]*|[^:]+:.*")  # 0100, to YAML 1.1 in base 8, and 2:08, in base 60


class KeyFaultError(ValueError):
    """What a ``parse`` or ``__post_init__`` finds wrong at key path ``path`` below its value."""

    def __init__(self, message: str, *path: Hashable, hint: str | None = None) -> None:
        super().__init__(message)
        self.path, self.hint = path, hint


def read(cls: type[T], document: Document, path: KeyPath = ()) -> T:
    """The dataclass ``cls`` from the data at ``path`` of ``document``. Raises InputFaults with every fault.

    A field takes the data under its own name with the type of its hint: scalars, ``Literal``, ``X | None``,
    ``tuple[X, ...]`` (one X stands for a tuple of one), mappings with text keys, dataclasses, and classes with a
    ``parse(value)`` class method that raises ValueError. A dataclass with a static method ``hint_for(key)`` says itself
    what to do about a key that is not its own. ``Annotated[X, check]`` reads X and calls ``check(value)``,
    which raises ValueError for a value of the right type that is not allowed; so it does with a mapping's keys.
    """
    reader = _Reader(document)
    result = reader.convert(cls, _at(document, path), path)
    if reader.faults:
        raise InputFaults(reader.faults)
    return typing.cast(T, result)


def read_own(cls: type[T], path: Path, data: Any) -> T:
    """The dataclass ``cls`` from the ``data`` of a file that llmb itself has written, perhaps a newer release.

    Keys that this release does not know are passed over; ``keeping`` writes them back. Raises LlmbError for a damaged
    file, whatever is wrong with it.
    """
    reader = _Reader(Document(name=str(path), data=data), own=True)
    try:
        result = reader.convert(cls, data, ())
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise LlmbError(f"{path} is damaged: {type(error).__name__}: {error}", hint=_MOVE) from error
    if reader.faults:
        more = f" (and {len(reader.faults) - 1} more)" if len(reader.faults) > 1 else ""
        raise LlmbError(f"{path} is damaged: {reader.faults[0].message}{more}", hint=_MOVE)
    return typing.cast(T, result)


def keeping(value: Any, before: Any) -> Any:
    """``to_data(value)`` with the keys of ``before``, the data that it is written over, which ``value`` cannot hold."""
    data = to_data(value)
    return _with_unknown(value, data, before)


def _with_unknown(value: Any, data: Any, before: Any) -> Any:
    if hasattr(value, "unparse"):
        return data
    if dataclasses.is_dataclass(value) and isinstance(data, dict) and isinstance(before, dict):
        own = {field.name for field in dataclasses.fields(value)}
        known = {key: _with_unknown(getattr(value, key), item, before.get(key)) for key, item in data.items()}
        return {**known, **{key: item for key, item in before.items() if key not in own}}
    if isinstance(value, (tuple, list)) and isinstance(data, list) and isinstance(before, list):
        rest = [None] * max(0, len(data) - len(before))
        return [_with_unknown(*one) for one in zip(value, data, [*before, *rest], strict=False)]
    return data


def read_in_part(cls: type[T], document: Document, path: KeyPath = ()) -> tuple[T | None, list[Fault]]:
    """As ``read``, but gives the faults beside what could be read, so that the rest can be checked too.

    A faulty field takes its default; None where one without a default is faulty.
    """
    reader = _Reader(document, lenient=True)
    return reader.convert(cls, _at(document, path), path), reader.faults


def _at(document: Document, path: KeyPath) -> Any:
    value = document.data
    for key in path:
        value = value[key]
    return value


def to_data(value: Any) -> Any:
    """Plain data for JSON or YAML of a value: dataclasses become mappings, tuples lists. The inverse of ``read``."""
    if type(value) in _SCALARS:
        return value
    if hasattr(value, "unparse"):
        return value.unparse()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_data(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: to_data(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_data(item) for item in value]
    return str(value) if isinstance(value, Path) else value


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls, include_extras=True)


class _Reader:
    def __init__(self, document: Document, *, lenient: bool = False, own: bool = False) -> None:
        self.document, self.lenient, self.own = document, lenient, own
        self.faults: list[Fault] = []

    def fault(self, path: KeyPath, message: str, hint: str | None = None) -> None:
        where = ".".join(str(key) for key in path)
        text = f"{where}: {message}" if where else message
        self.faults.append(Fault(place=self.document.place(path), message=text, hint=hint))

    def wrong(self, path: KeyPath, error: ValueError) -> None:
        if isinstance(error, KeyFaultError):
            self.fault((*path, *error.path), str(error), error.hint)
        else:
            self.fault(path, str(error))

    def convert(self, hint: Any, value: Any, path: KeyPath) -> Any:
        origin = typing.get_origin(hint)
        if hint is Any:
            return value
        if origin is Annotated:
            return self.checked(typing.get_args(hint), value, path)
        if origin in (Union, types.UnionType):
            return self.union(typing.get_args(hint), value, path)
        if origin is Literal:
            return self.literal(typing.get_args(hint), value, path)
        if origin is tuple:
            item_hint = typing.get_args(hint)[0]
            if not isinstance(value, list):
                return (self.convert(item_hint, value, path),)
            return tuple(self.convert(item_hint, item, (*path, index)) for index, item in enumerate(value))
        if origin in (dict, Mapping):
            key_hint, value_hint = typing.get_args(hint)
            return self.table(key_hint, value_hint, value, path)
        if hasattr(hint, "parse"):
            return self.parsed(hint, value, path)
        if dataclasses.is_dataclass(hint):
            return self.dataclass(typing.cast(type, hint), value, path)
        return self.scalar(hint, value, path)

    def checked(self, arguments: tuple[Any, ...], value: Any, path: KeyPath) -> Any:
        before = len(self.faults)
        result = self.convert(arguments[0], value, path)
        base = typing.get_origin(arguments[0]) or arguments[0]
        try:
            for check in arguments[1:] if isinstance(result, base) and len(self.faults) == before else ():
                check(result)
        except ValueError as error:
            self.wrong(path, error)
        return result

    def union(self, hints: tuple[Any, ...], value: Any, path: KeyPath) -> Any:
        if value is None and type(None) in hints:
            return None
        rest = [hint for hint in hints if hint is not type(None)]
        if type(value) is int and str in rest and ":" in (text := self.document.texts.get(path, "")):
            return text  # 10:00:00 is to YAML a number in base 60, and to everybody else a time
        fitting = [hint for hint in rest if hint in _WORDS and type(value) is hint]
        return self.convert(fitting[0] if fitting else rest[-1], value, path)

    def literal(self, words: tuple[Any, ...], value: Any, path: KeyPath) -> Any:
        if value not in words:
            choices = [str(word) for word in words]
            self.fault(path, f"'{value}' is not one of {', '.join(choices)}", suggest(str(value), choices))
        return value

    def table(self, key_hint: Any, hint: Any, value: Any, path: KeyPath) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.fault(path, "must be a mapping of names to values")
            return {}
        for key in value:
            if type(key) not in (str, int):  # YAML takes no for false, and 25.10 for 25.1
                self.fault((*path, key), f"'{key}' must be a name", "put it in quotes")
            elif typing.get_origin(key_hint) is Annotated:
                self.check_key(typing.get_args(key_hint)[1:], str(key), (*path, key))
        return {str(key): self.convert(hint, item, (*path, key)) for key, item in value.items()}

    def check_key(self, checks: tuple[Any, ...], key: str, path: KeyPath) -> None:
        try:
            for check in checks:
                check(key)
        except ValueError as error:
            self.wrong(path, error)

    def parsed(self, hint: Any, value: Any, path: KeyPath) -> Any:
        keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        if [at for at in (path, *((*path, key) for key in keys)) if self.is_misread(at)]:
            return None
        try:
            return hint.parse(value)
        except ValueError as error:
            self.wrong(path, error)
            return None

    def dataclass(self, cls: type, value: Any, path: KeyPath) -> Any:
        if not isinstance(value, dict):
            keys = list(_hints(cls))
            more = f" and {len(keys) - _KEYS_TOLD} more" if len(keys) > _KEYS_TOLD else ""
            self.fault(path, f"must be a mapping with the keys {', '.join(keys[:_KEYS_TOLD])}{more}")
            return None
        hints = _hints(cls)
        for key in value:
            if key not in hints and not self.own:
                known = cls.hint_for(str(key)) if hasattr(cls, "hint_for") else suggest(str(key), list(hints))
                self.fault((*path, key), f"'{key}' is not a key here", known)
        before = len(self.faults)
        complete = True
        values = {}
        for field in dataclasses.fields(cls):
            required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            if field.name in value:
                so_far = len(self.faults)
                item = self.convert(hints[field.name], value[field.name], (*path, field.name))
                if len(self.faults) == so_far:
                    values[field.name] = item
                else:
                    complete = complete and not required
            elif required:
                self.fault(path, f"'{field.name}' is missing")
                complete = False
        if len(self.faults) > before and not (self.lenient and complete):
            return None
        try:
            return cls(**values)
        except ValueError as error:  # what __post_init__ finds wrong between fields
            self.wrong(path, error)
            return None

    def is_misread(self, path: KeyPath) -> bool:
        """Whether a number is to YAML another one than it looks; told as a fault."""
        text = self.document.texts.get(path, "")
        if _NOT_AS_IT_LOOKS.fullmatch(text) is None:
            return False
        number = _at(self.document, path)
        hint = f"write {number} if that is meant, else the number without a leading zero or a colon"
        self.fault(path, f"'{text}' is to YAML the number {number}", hint)
        return True

    def number(self, value: int | str, path: KeyPath) -> float | None:
        try:
            return float(value)
        except OverflowError:
            self.fault(path, "the number is too large", "write one below 1e308")
            return None

    def scalar(self, hint: Any, value: Any, path: KeyPath) -> Any:
        if hint in (int, float) and self.is_misread(path):
            return value
        if self.own and (wrong := _out_of_range(value)):
            self.fault(path, wrong)
            return value
        if hint is float and (type(value) is int or (isinstance(value, str) and _EXPONENT.fullmatch(value))):
            return self.number(value, path)
        if hint is str and type(value) in (int, float):
            return self.document.texts.get(path, str(value))
        if hint is Path and isinstance(value, str) and value:
            try:
                return Path(value).expanduser()
            except RuntimeError:  # ~nobody/there
                self.fault(path, f"nobody knows the home folder in {value}", "write the folder out")
                return None
        if type(value) is not hint:
            shown = "nothing" if value is None else repr(value)
            self.fault(path, f"must be {_WORDS.get(hint, hint)}, not {shown}", _scalar_hint(hint, value))
        return value


def _out_of_range(value: Any) -> str | None:
    """What is wrong with a value that llmb never writes and later code could trip over."""
    if type(value) is int and abs(value) > _LARGEST:
        return "the number is too large"
    if type(value) is float and not math.isfinite(value):
        return f"{value} is not a number"
    return "a NUL character" if isinstance(value, str) and "\0" in value else None


def _scalar_hint(hint: Any, value: Any) -> str | None:
    """The fix for a value of the wrong type, where it is plain."""
    if hint is str and value is None:
        return "write '' for an empty text, or leave it out"
    if hint is str and not isinstance(value, (list, dict)):
        return "put it in quotes"
    if hint is int and isinstance(value, str) and re.fullmatch(r"\d+(\s*,\s*\d+)+", value, re.ASCII):
        return f"write [{value}]"
    if hint is int and isinstance(value, str) and (re.fullmatch(r"\d+", value, re.ASCII) or _EXPONENT.fullmatch(value)):
        number = float(value) if _EXPONENT.fullmatch(value) else int(value)
        return f"write {number:.0f}" if number < 1e15 and number == int(number) else None
    return None
