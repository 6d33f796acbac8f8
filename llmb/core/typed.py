# SPDX-License-Identifier: Apache-2.0
"""Reads plain data into frozen dataclasses by their type hints.

Each fault has its place, code and fix.
"""

import dataclasses
import math
import types
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from llmb.core import files, names, own_files, scalars
from llmb.core.yamlfile import Document, KeyPath, dotted
from llmb.errors import Fault, InputFaults, KeyFaultError as KeyFaultError, LlmbError

T = TypeVar("T")

# of a field that is no key: it is neither read nor written
INTERNAL: Mapping[str, bool] = {"internal": True}
_LISTED = 12  # keys that a message names
_EXACT = frozenset({str, int, bool, type(None)})
_PLAIN = _EXACT | {float}
_REMOVE = "move it away"
# what the data of a damaged file may raise
_OF_DATA = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)


def read(cls: type[T], document: Document, path: KeyPath = (), **internal: object) -> T:
    """Return the dataclass ``cls`` from the data at ``path``. Raises InputFaults with every fault.

    ``internal``: values of its fields with the metadata INTERNAL.

    A field takes the data under its own name, converted to its type hint:

    - scalars, ``Literal``, ``X | None``, ``tuple[X, ...]`` (a single X is a tuple of one), mappings
      with text keys, dataclasses;
    - a class with a ``parse(value)`` class method that raises ValueError;
    - a mapping whose keys are a class with a static method ``type_of(key)``, which gives the type
      of a key's value;
    - ``Annotated[X, check]``: X, then ``check(value)``, which raises ValueError for a value that is
      not allowed. The keys of a mapping can be checked this way too.

    A dataclass may have a static method ``hint_for(key)``, which gives the hint for an unknown key.
    """
    reader = _Reader(document, internal={path: internal})
    result = reader.convert(cls, value_at(document.data, path), path)
    if reader.faults:
        raise InputFaults(reader.faults)
    return cast(T, result)


def read_json(cls: type[T], path: Path) -> T | None:
    """Return ``cls`` from a JSON file, None if it does not exist. Raises LlmbError."""
    data = files.read_json(path)
    return None if data is None else read(cls, Document(name=str(path), data=data))


def read_own(cls: type[T], path: Path | str, data: Any) -> T:
    """Return the dataclass ``cls`` from the ``data`` of a file that some llmb wrote.

    A newer release may have written it: unknown keys are ignored, and ``keeping`` writes them back.
    Raises LlmbError for a damaged file, whatever its fault.
    """
    try:
        return cast(T, own_files.converter(cls)(data))
    except _OF_DATA:
        pass  # with all care, for the fault
    reader = _Reader(Document(name=str(path), data=data), is_own=True)
    try:
        result = reader.convert(cls, data, ())
    except _OF_DATA as error:
        message = f"{path} is damaged: {type(error).__name__}: {error}"
        raise LlmbError(message, hint=_REMOVE, code="file-damaged") from error
    if reader.faults:
        first, others_count = reader.faults[0], len(reader.faults) - 1
        message = f"{path} is damaged: {first.message}" + (
            f" (and {others_count} more)" if others_count else ""
        )
        raise LlmbError(
            message, hint=_REMOVE, code="file-damaged", key=first.key, value=first.value
        )
    return cast(T, result)


def read_in_part(
    cls: type[T], document: Document, path: KeyPath = (), **internal: object
) -> tuple[T | None, list[Fault]]:
    """Read like ``read``, but return the faults together with what could be read.

    So the rest can be checked too. A faulty field has its default. The value is None if a required
    field is faulty.
    """
    reader = _Reader(document, lenient=True, internal={path: internal})
    return reader.convert(cls, value_at(document.data, path), path), reader.faults


def fault_of(
    error: KeyFaultError, document: Document, path: KeyPath, value: object = None
) -> Fault:
    """Return ``error``, which the ``value`` at ``path`` has, as a fault with its place.

    Its message begins with the dotted path.
    """
    rejected = error.value
    if rejected is None:
        with suppress(LookupError, TypeError):  # a path at which the value has nothing
            rejected = value_at(value, error.path)
    path = (*path, *error.path)
    key = dotted(path)
    return Fault(
        place=document.place(path),
        message=f"{key}: {error}" if key else str(error),
        hint=error.hint,
        code=error.code,
        key=key,
        value=rejected,
    )


def value_at(value: Any, path: KeyPath) -> Any:
    """Return what nested mappings and lists have at ``path``. Raises LookupError, TypeError."""
    for key in path:
        value = value[key]
    return value


def to_data(value: Any) -> Any:
    """Return ``value`` as plain data for JSON or YAML. The inverse of ``read``.

    Dataclasses become mappings, tuples lists.
    """
    return _to_data(value, float)


def own_data(value: Any) -> Any:
    """Return ``to_data(value)`` for a file of llmb's own. The inverse of ``read_own``.

    JSON has no NaN and no infinity, so both become text.
    """
    return _to_data(value, lambda number: str(float(number)))


def json_data(value: Any) -> Any:
    """Return ``to_data(value)`` for other programs: NaN and infinity become None."""
    return _to_data(value, lambda number: None)


def _to_data(value: Any, non_finite: Callable[[float], Any]) -> Any:
    """Return ``value`` as plain data. ``non_finite`` makes that of a NaN or an infinity."""
    kind: type = type(value)
    if kind in _PLAIN:
        return value if kind is not float or math.isfinite(value) else non_finite(value)
    if hasattr(kind, "unparse"):
        return _to_data(value.unparse(), non_finite)
    if (items_of := _items_of(kind)) is not None:
        return {
            key: item if type(item) in _EXACT else _to_data(item, non_finite)
            for key, item in items_of(value)
        }
    if isinstance(value, (tuple, list)):
        kinds = set(map(type, value))
        if kinds <= _EXACT or (kinds == {float} and all(map(math.isfinite, value))):
            return list(value)
        return [_to_data(item, non_finite) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return non_finite(value)
    return str(value) if isinstance(value, Path) else value


@cache
def _items_of(kind: type) -> Callable[[Any], Iterable[tuple[Any, Any]]] | None:
    """Return a function that returns the items of a mapping, or the keys of a dataclass with their
    values. None for other types.
    """
    if issubclass(kind, Mapping):
        return kind.items
    if not dataclasses.is_dataclass(kind):
        return None
    fields = dataclasses.fields(kind)
    names = [field.name for field in fields if "internal" not in field.metadata]
    return lambda value: [(name, getattr(value, name)) for name in names]


def keeping(value: Any, before: Any) -> Any:
    """Return ``own_data(value)`` with the keys of ``before`` that ``value`` does not know.

    ``before`` is the data that it replaces.
    """
    return _with_unknown(value, own_data(value), before)


def _with_unknown(value: Any, data: Any, before: Any) -> Any:
    if hasattr(value, "unparse"):
        return data
    if dataclasses.is_dataclass(value) and isinstance(data, dict) and isinstance(before, dict):
        names = {field.name for field in dataclasses.fields(value)}
        merged = {
            key: _with_unknown(getattr(value, key), item, before.get(key))
            for key, item in data.items()
        }
        return {**merged, **{key: item for key, item in before.items() if key not in names}}
    if isinstance(value, Mapping) and isinstance(before, dict):
        return {key: _with_unknown(value[key], item, before.get(key)) for key, item in data.items()}
    if isinstance(value, (tuple, list)) and isinstance(data, list) and isinstance(before, list):
        padding = [None] * max(0, len(data) - len(before))
        return [
            _with_unknown(*triple) for triple in zip(value, data, [*before, *padding], strict=False)
        ]
    return data


@cache
def _hints(cls: type) -> dict[str, Any]:
    """Return the type hint of each field that is a key, in the order of the fields."""
    hints = get_type_hints(cls, include_extras=True)
    fields = (field for field in dataclasses.fields(cls) if "internal" not in field.metadata)
    return {field.name: hints[field.name] for field in fields}


@cache
def _required(cls: type) -> frozenset[str]:
    """Return the names of the fields without a default."""
    return frozenset(
        field.name
        for field in dataclasses.fields(cls)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    )


class _Reader:
    """Converts data by type hints and collects the faults."""

    def __init__(
        self,
        document: Document,
        *,
        lenient: bool = False,
        is_own: bool = False,
        internal: Mapping[KeyPath, Mapping[str, object]] = MappingProxyType({}),
    ) -> None:
        self.document, self.lenient, self.is_own, self.internal = (
            document,
            lenient,
            is_own,
            internal,
        )
        self.faults: list[Fault] = []

    def fault(
        self,
        path: KeyPath,
        message: str,
        hint: str | None = None,
        *,
        code: str,
        value: object = None,
    ) -> None:
        """Record a fault. Its message begins with the dotted ``path``."""
        error = KeyFaultError(message, hint=hint, code=code, value=value)
        self.faults.append(fault_of(error, self.document, path))

    def reject(self, path: KeyPath, error: ValueError, value: object) -> None:
        """Record what a ``parse``, a check or a ``__post_init__`` raised for ``value``."""
        if not isinstance(error, KeyFaultError):
            error = KeyFaultError(str(error), value=value)
        self.faults.append(fault_of(error, self.document, path, value))

    def convert(self, hint: Any, value: Any, path: KeyPath) -> Any:
        if type(hint) is type and hint in scalars.KINDS:  # first, as half of all values are scalars
            return self.scalar(hint, value, path)
        origin = get_origin(hint)
        if hint is Any:
            return value
        if origin is Annotated:
            return self.checked(get_args(hint), value, path)
        if origin in (Union, types.UnionType):
            return self.union(get_args(hint), value, path)
        if origin is Literal:
            return self.literal(get_args(hint), value, path)
        if origin is tuple:
            item_hint = get_args(hint)[0]
            if not isinstance(value, list):
                return (self.convert(item_hint, value, path),)
            return tuple(
                self.convert(item_hint, item, (*path, index)) for index, item in enumerate(value)
            )
        if origin in (dict, Mapping):
            key_hint, value_hint = get_args(hint)
            return self.table(key_hint, value_hint, value, path)
        if callable(getattr(hint, "parse", None)):  # a field may have the name too
            return self.parsed(hint, value, path)
        if dataclasses.is_dataclass(hint):
            return self.dataclass(cast(type, hint), value, path)
        return self.scalar(hint, value, path)

    def checked(self, arguments: tuple[Any, ...], value: Any, path: KeyPath) -> Any:
        before = len(self.faults)
        result = self.convert(arguments[0], value, path)
        is_union = get_origin(arguments[0]) in (Union, types.UnionType)
        base = arguments[0] if is_union else get_origin(arguments[0]) or arguments[0]
        try:
            for check in (
                arguments[1:] if isinstance(result, base) and len(self.faults) == before else ()
            ):
                check(result)
        except ValueError as error:
            self.reject(path, error, value)
        return result

    def union(self, hints: tuple[Any, ...], value: Any, path: KeyPath) -> Any:
        if value is None and type(None) in hints:
            return None
        members = [hint for hint in hints if hint is not type(None)]
        if (
            type(value) is int
            and str in members
            and ":" in (text := self.document.texts.get(path, ""))
        ):
            return text  # a time, which YAML 1.1 reads as a number in base 60
        if not self.is_own and {float, str} <= set(members) and scalars.has_exponent(value):
            return self.convert(float, value, path)
        fitting = [hint for hint in members if hint in scalars.KINDS and type(value) is hint]
        if isinstance(value, dict):
            classes = [hint for hint in members if isinstance(hint, type)]
            fitting += [hint for hint in classes if dataclasses.is_dataclass(hint)]
        return self.convert(fitting[0] if fitting else members[-1], value, path)

    def literal(self, words: tuple[Any, ...], value: Any, path: KeyPath) -> Any:
        if value not in words:
            choices = [str(word) for word in words]
            message, close = (
                f"'{value}' is not one of {', '.join(choices)}",
                names.nearest(str(value), choices),
            )
            hint = f"did you mean '{close}'?" if close else None
            self.fault(path, message, hint, code="value-not-allowed", value=value)
        return value

    def table(self, key_hint: Any, hint: Any, value: Any, path: KeyPath) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.fault(path, "must be a mapping of names to values", code="value-type", value=value)
            return {}
        for key in value:
            if type(key) not in (str, int):  # YAML reads no as false, and 25.10 as 25.1
                message = f"'{key}' must be a name"
                self.fault((*path, key), message, "put it in quotes", code="key-invalid", value=key)
            elif get_origin(key_hint) is Annotated:
                self.checked(get_args(key_hint), str(key), (*path, key))
        type_of = getattr(key_hint, "type_of", lambda key: hint)
        return {
            str(key): self.convert(type_of(str(key)), item, (*path, key))
            for key, item in value.items()
        }

    def parsed(self, hint: Any, value: Any, path: KeyPath) -> Any:
        keys = (
            value
            if isinstance(value, dict)
            else range(len(value))
            if isinstance(value, list)
            else ()
        )
        if [at for at in (path, *((*path, key) for key in keys)) if self.is_ambiguous(at)]:
            return None
        try:
            return hint.parse(value)
        except ValueError as error:
            self.reject(path, error, value)
            return None

    def dataclass(self, cls: type, value: Any, path: KeyPath) -> Any:
        if not isinstance(value, dict):
            keys = list(_hints(cls))
            message = f"must be a mapping with the keys {names.listed(keys, _LISTED)}"
            self.fault(path, message, code="value-type", value=value)
            return None
        hints = _hints(cls)
        for key in value:
            if key not in hints and not self.is_own:
                hint = (
                    cls.hint_for(str(key))
                    if hasattr(cls, "hint_for")
                    else names.suggest(str(key), list(hints))
                )
                self.fault(
                    (*path, key), f"'{key}' is not a key here", hint, code="key-unknown", value=key
                )
        before = len(self.faults)
        complete = True
        required = _required(cls)
        values = dict(self.internal.get(path, {}))
        for name, hint in hints.items():
            if name in value:
                so_far = len(self.faults)
                item = self.convert(hint, value[name], (*path, name))
                if len(self.faults) == so_far:
                    values[name] = item
                else:
                    complete = complete and name not in required
            elif name in required:
                self.fault(path, f"'{name}' is missing", code="key-missing", value=name)
                complete = False
        if len(self.faults) > before and not (self.lenient and complete):
            return None
        try:
            return cls(**values)
        except ValueError as error:  # a check between fields, in __post_init__
            self.reject(path, error, value)
            return None

    def is_ambiguous(self, path: KeyPath) -> bool:
        """Return True, and record a fault, if YAML reads a number differently than people do."""
        try:
            if text := self.document.texts.get(path):
                scalars.check_notation(text, value_at(self.document.data, path))
        except KeyFaultError as error:
            self.reject(path, error, None)
            return True
        return False

    def scalar(self, hint: Any, value: Any, path: KeyPath) -> Any:
        if hint in (int, float) and self.is_ambiguous(path):
            return value
        try:
            if (
                self.is_own
                and hint is float
                and type(value) is str
                and value in own_files.NON_FINITE
            ):
                return own_files.NON_FINITE[value]
            if self.is_own:
                scalars.check_own(value)
            return scalars.convert(hint, value, self.document.texts.get(path))
        except KeyFaultError as error:
            self.reject(path, error, value)
            return value
