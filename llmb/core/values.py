# SPDX-License-Identifier: Apache-2.0
"""Creates frozen dataclasses in a third of the time that the standard library needs.

Its decorator compiles six functions for each class, and a command has 70 to 250 of these classes.
Here only ``__init__`` is compiled, and only for a class that has values. The other functions are
the same for all classes, or read the fields with ``operator.attrgetter``.
"""

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import MISSING, FrozenInstanceError
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass


def _dataclass(
    cls: type | None = None, /, *, frozen: bool, slots: bool, kw_only: bool = False
) -> Any:
    """Do as ``dataclasses.dataclass`` does, with ``frozen`` and ``slots``.

    ``__post_init__`` gives a field with ``init=False`` its value, without a default. ``InitVar`` is
    not supported.
    """
    assert frozen
    assert slots
    if cls is None:
        return partial(_dataclass, frozen=frozen, slots=slots, kw_only=kw_only)
    # Only what inherits from a frozen dataclass must be created as one.
    inherits = any(map(dataclasses.is_dataclass, cls.__mro__[1:]))
    value: Any = dataclasses.dataclass(
        init=False, repr=False, eq=False, frozen=inherits, slots=True, kw_only=kw_only
    )(cls)
    for name in ("init", "repr", "eq", "frozen"):
        setattr(value.__dataclass_params__, name, True)  # subclasses see a frozen dataclass
    fields = dataclasses.fields(value)
    value.__init__ = _Init(value, fields)
    for name, function in {**_SHARED, **_comparing(fields)}.items():
        if cls.__dict__.get(name) is None:  # Python sets __hash__ to None beside __eq__
            setattr(value, name, function)
    return value


if not TYPE_CHECKING:
    dataclass = _dataclass


class _Init:
    """Compiles the ``__init__`` of a class when it is first needed: most classes of a command have
    no values.
    """

    def __init__(self, cls: Any, fields: tuple[dataclasses.Field[Any], ...]) -> None:
        self.cls, self.fields = cls, fields

    def __get__(self, value: object, _: type) -> Any:
        function = self.cls.__init__ = _init_function(self.cls, self.fields)
        return function if value is None else partial(function, value)


def _init_function(cls: type, fields: Iterable[dataclasses.Field[Any]]) -> Any:
    names: dict[str, object] = {"_set": object.__setattr__, "_omitted": MISSING}
    positional, keywords, lines = ["self"], ["*"], []
    for field in fields:
        if not field.init:
            continue
        parameter = value = field.name
        if field.default is not MISSING:
            names[f"_default_{field.name}"] = field.default
            parameter += f"=_default_{field.name}"
        elif field.default_factory is not MISSING:
            names[f"_make_{field.name}"] = field.default_factory
            parameter += "=_omitted"
            value = f"_make_{field.name}() if {field.name} is _omitted else {field.name}"
        (keywords if field.kw_only else positional).append(parameter)
        lines.append(f" _set(self, {field.name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    parameters = ", ".join(positional + keywords if len(keywords) > 1 else positional)
    exec("\n".join([f"def __init__({parameters}):", *lines, " return"]), names)
    function: Any = names["__init__"]
    function.__qualname__ = f"{cls.__qualname__}.__init__"
    function.__module__ = cls.__module__
    function.__annotations__ = {field.name: field.type for field in fields} | {"return": None}
    return function


def _comparing(fields: Iterable[dataclasses.Field[Any]]) -> dict[str, Callable[..., Any]]:
    """Return ``__eq__`` and ``__hash__``."""
    compared = _values_of(field.name for field in fields if field.compare)
    hashed = _values_of(
        field.name for field in fields if (field.compare if field.hash is None else field.hash)
    )

    def __eq__(self: object, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return compared(self) == compared(other)

    def __hash__(self: object) -> int:
        return hash(hashed(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


def _values_of(names: Iterable[str]) -> Callable[[object], object]:
    """Return a function that returns the values of these fields of an object as a tuple."""
    listed = tuple(names)
    if len(listed) > 1:
        return attrgetter(*listed)
    if not listed:
        return lambda self: ()
    value = attrgetter(*listed)
    return lambda self: (value(self),)


def _repr(self: Any) -> str:
    shown = [field.name for field in dataclasses.fields(self) if field.repr]
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({values})"


def _set_attribute(self: object, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete_attribute(self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


_SHARED = {
    "__repr__": _repr,
    "__setattr__": _set_attribute,
    "__delattr__": _delete_attribute,
    "__getstate__": _get_state,
    "__setstate__": _set_state,
}
