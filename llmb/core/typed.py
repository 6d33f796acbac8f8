# SPDX-License-Identifier: Apache-2.0
"""Reads plain data into frozen dataclasses by their type hints.

Each fault has its place, code and fix.
"""

import dataclasses
import math
import operator
import types
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING
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
from llmb.core.values import dataclass
from llmb.core.yamlfile import Document, KeyPath, dotted
from llmb.errors import Fault, InputFaults, KeyFaultError as KeyFaultError, LlmbError

T = TypeVar("T")

# of a field that is no key: it is neither read nor written
INTERNAL: Mapping[str, bool] = {"internal": True}
_LISTED = 12  # keys that a message names
EXACT = frozenset({str, int, bool, type(None)})
PLAIN = EXACT | {float}
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
#: A method of _Reader, and its argument before the data and the path.
_Way = tuple[Callable[..., Any], Any]


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
    if kind in PLAIN:
        return value if kind is not float or math.isfinite(value) else non_finite(value)
    if hasattr(kind, "unparse"):
        return _to_data(value.unparse(), non_finite)
    if (items_of := _items_of(kind)) is not None:
        return {
            key: item
            if (of_item := type(item)) in EXACT or (of_item is float and math.isfinite(item))
            else _to_data(item, non_finite)
            for key, item in items_of(value)
        }
    if isinstance(value, (tuple, list)):
        kinds = set(map(type, value))
        if kinds <= EXACT or (kinds == {float} and all(map(math.isfinite, value))):
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
    values_of = operator.attrgetter(*names, "__class__")  # in C; of one name it returns no tuple
    return lambda value: zip(names, values_of(value), strict=False)


def compact_data(value: Any) -> Any:
    """Return ``own_data(value)`` without the fields that have their defaults.

    Its file is half as long. Text of a log may contain NUL, which no file of llmb's own may.
    """
    kind = type(value)
    if value is None or kind is int or kind is bool or (kind is float and math.isfinite(value)):
        return value
    if kind is str:
        return value.replace("\0", "\ufffd") if "\0" in value else value
    if (defaults := _defaults(kind)) is not None:  # type: ignore[arg-type]
        data = {}
        for name, default in defaults:
            item = getattr(value, name)
            if item is not default and item != default:
                data[name] = compact_data(item)
        return data
    if isinstance(value, Mapping):
        return {name: compact_data(item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [compact_data(item) for item in value]
    return own_data(value)


@cache
def _defaults(kind: type) -> list[tuple[str, Any]] | None:
    """Return the name and the default of each field, None for a type that is no dataclass."""
    if not dataclasses.is_dataclass(kind):
        return None
    return [
        (key.name, key.default if key.default_factory is MISSING else key.default_factory())
        for key in dataclasses.fields(kind)
    ]


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
def _ways(cls: type) -> dict[str, _Way]:
    """Return how the data of each field that is a key is converted, in the order of the fields."""
    hints = get_type_hints(cls, include_extras=True)
    fields = (field for field in dataclasses.fields(cls) if "internal" not in field.metadata)
    return {field.name: _way(hints[field.name]) for field in fields}


def _way(hint: Any) -> _Way:
    """Return how data is converted to a type hint."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return _Reader.unchanged, None
    if origin is Annotated:
        base = arguments[0]
        kind = base if _is_union(base) else get_origin(base) or base
        return _Reader.checked, _Checks(way=_way(base), kind=kind, functions=arguments[1:])
    if _is_union(hint):
        members = [member for member in arguments if member is not type(None)]
        ways = {member: _way(member) for member in members}
        union = (_Reader.union, ways) if len(ways) > 1 else ways[members[0]]
        return (_Reader.optional, union) if type(None) in arguments else union
    if origin is Literal:
        return _Reader.literal, arguments
    if origin is tuple:
        return _Reader.sequence, _way(arguments[0])
    if origin in (dict, Mapping):
        return _Reader.table, arguments
    if callable(getattr(hint, "parse", None)):  # a field may have the name too
        return _Reader.parsed, hint
    return (_Reader.dataclass if dataclasses.is_dataclass(hint) else _Reader.scalar), hint


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


@cache
def _required(cls: type) -> frozenset[str]:
    """Return the names of the fields without a default."""
    return frozenset(
        field.name
        for field in dataclasses.fields(cls)
        if field.default is MISSING and field.default_factory is MISSING
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checks:
    """The check functions of an ``Annotated`` hint, for values of one kind."""

    way: _Way
    #: What isinstance accepts.
    kind: Any
    functions: tuple[Callable[[Any], object], ...]


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
        method, argument = _way(hint)
        return method(self, argument, value, path)

    def unchanged(self, _: None, value: Any, path: KeyPath) -> Any:
        return value

    def checked(self, checks: _Checks, value: Any, path: KeyPath) -> Any:
        before = len(self.faults)
        method, argument = checks.way
        result = method(self, argument, value, path)
        if len(self.faults) > before or not isinstance(result, checks.kind):
            return result
        try:
            for check in checks.functions:
                check(result)
        except ValueError as error:
            self.reject(path, error, value)
        return result

    def optional(self, way: _Way, value: Any, path: KeyPath) -> Any:
        method, argument = way
        return None if value is None else method(self, argument, value, path)

    def union(self, ways: dict[Any, _Way], value: Any, path: KeyPath) -> Any:
        kind: Any = type(value)
        if kind is int and str in ways and ":" in (text := self.document.texts.get(path, "")):
            return text  # a time, which YAML 1.1 reads as a number in base 60
        if not self.is_own and {float, str} <= ways.keys() and scalars.has_exponent(value):
            kind = float
        if kind not in scalars.KINDS or kind not in ways:
            classes = [hint for hint in ways if kind is dict and dataclasses.is_dataclass(hint)]
            kind = classes[0] if classes else [*ways][-1]
        method, argument = ways[kind]
        return method(self, argument, value, path)

    def sequence(self, way: _Way, value: Any, path: KeyPath) -> Any:
        method, argument = way
        if value is None and method is _Reader.dataclass:
            message = "must be a list of mappings, not null"
            self.fault(path, message, "write - {...} for each", code="value-type", value=value)
            return ()
        if not isinstance(value, list):
            return (method(self, argument, value, path),)
        return tuple(
            method(self, argument, item, (*path, index)) for index, item in enumerate(value)
        )

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

    def table(self, hints: tuple[Any, Any], value: Any, path: KeyPath) -> dict[str, Any]:
        key_hint, hint = hints
        if not isinstance(value, dict):
            self.fault(path, "must be a mapping of names to values", code="value-type", value=value)
            return {}
        for key in value:
            if type(key) not in (str, int):  # YAML reads no as false, and 25.10 as 25.1
                message = f"'{key}' must be a name"
                self.fault((*path, key), message, "put it in quotes", code="key-invalid", value=key)
            elif get_origin(key_hint) is Annotated:
                self.convert(key_hint, str(key), (*path, key))
        if hasattr(key_hint, "type_of"):
            return {
                str(key): self.convert(key_hint.type_of(str(key)), item, (*path, key))
                for key, item in value.items()
            }
        method, argument = _way(hint)
        return {str(key): method(self, argument, item, (*path, key)) for key, item in value.items()}

    def parsed(self, hint: Any, value: Any, path: KeyPath) -> Any:
        keys = (
            value
            if isinstance(value, dict)
            else range(len(value))
            if isinstance(value, list)
            else ()
        )
        places = (path, *((*path, key) for key in keys)) if self.document.texts else ()
        if [place for place in places if self.is_ambiguous(place)]:
            return None
        try:
            return hint.parse(value)
        except ValueError as error:
            self.reject(path, error, value)
            return None

    def dataclass(self, cls: type, value: Any, path: KeyPath) -> Any:
        if not isinstance(value, dict):
            keys = list(_ways(cls))
            message = f"must be a mapping with the keys {names.listed(keys, _LISTED)}"
            self.fault(path, message, code="value-type", value=value)
            return None
        ways = _ways(cls)
        for key in value:
            if key not in ways and not self.is_own:
                hint = (
                    cls.hint_for(str(key))
                    if hasattr(cls, "hint_for")
                    else names.suggest(str(key), list(ways))
                )
                self.fault(
                    (*path, key), f"'{key}' is not a key here", hint, code="key-unknown", value=key
                )
        before = len(self.faults)
        complete = True
        required = _required(cls)
        values = dict(self.internal.get(path, {}))
        for name, (method, argument) in ways.items():
            if name in value:
                so_far = len(self.faults)
                item = method(self, argument, value[name], (*path, name))
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
        if type(value) is hint and not self.is_own and path not in self.document.texts:
            return value
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
