# SPDX-License-Identifier: Apache-2.0
"""Reads a JSON value into a frozen dataclass by its annotations, and names the place of a fault."""

import dataclasses
import difflib
import json
import math
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints


class RefusedError(Exception):
    """The program cannot start. The message is one line: place, cause, fix."""

    def __init__(self, place: str, cause: str, fix: str) -> None:
        super().__init__(f"{place}: {cause}; {fix}")
        self.place = place


T = TypeVar("T")

WORDS: dict[type, str] = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
}


def read_object(kind: type[T], raw: object, place: str) -> T:
    """Build `kind` from a JSON object of exactly its keys. Keys with defaults may be missing."""
    if not isinstance(raw, dict):
        raise RefusedError(place, f"is {shown(raw)}", "write an object in braces")
    hints = get_type_hints(kind)
    _check_keys(set(raw), set(hints), _optional(kind), place)
    return kind(
        **{key: _read_value(hints[key], raw[key], f"{place}.{key}") for key in hints if key in raw}
    )


def _optional(kind: Any) -> set[str]:
    """The fields with a default: files of earlier releases do not have them."""
    missing = dataclasses.MISSING
    return {
        declared.name
        for declared in dataclasses.fields(kind)
        if (declared.default, declared.default_factory) != (missing, missing)
    }


Problem = tuple[str, str, str]  # of a recipe: the key, the cause and the fix


def refuse(problems: Iterable[Problem], place: str) -> None:
    """Raise RefusedError for the first problem, at a place below `place`."""
    for key, cause, fix in problems:
        raise RefusedError(f"{place}.{key}", cause, fix)


def below_one(part: Any, prefix: str = "") -> Iterator[Problem]:
    """Yield a problem for each number of the dataclass `part` that is below 1."""
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if type(value) in (int, float) and value < 1:
            yield f"{prefix}{field.name}", f"is {value:g}", "write 1 or more"


def outside(start_step: int, stop_step: int, max_steps: int) -> Iterator[Problem]:
    """Yield the problem of a profile whose steps are not within the run."""
    if not 0 <= start_step < stop_step <= max_steps:
        cause = f"steps {start_step} to {stop_step} are not within {max_steps} steps"
        yield "profile", cause, "choose 0 <= start_step < stop_step <= max_steps"


def read_json(path: Path) -> Any:
    """Return the content of a JSON file. Raises RefusedError."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RefusedError(
            str(path), f"cannot be read ({error.strerror})", "check the path"
        ) from error
    except ValueError as error:
        raise RefusedError(str(path), f"is not JSON ({error})", "correct the file") from error


def shown(raw: object) -> str:
    """Return a value for an error message, short enough for one line."""
    text = repr(raw)
    return text if len(text) <= 40 else text[:37] + "..."


def _check_keys(keys: set[str], known: set[str], optional: set[str], place: str) -> None:
    for key in sorted(keys - known):
        near = difflib.get_close_matches(key, known, n=1)
        fix = f"did you mean '{near[0]}'?" if near else f"known keys: {', '.join(sorted(known))}"
        raise RefusedError(place, f"has an unknown key '{key}'", fix)
    for key in sorted(known - keys - optional):
        # The recipe has every value: it is null where there is none.
        raise RefusedError(place, f"has no key '{key}'", "add it (null for none)")


def _read_value(kind: Any, raw: object, place: str) -> Any:
    origin = get_origin(kind)
    if origin in (types.UnionType, Union):  # Literal | None is a Union
        return _read_union(get_args(kind), raw, place)
    if origin is Literal:
        return _read_choice(get_args(kind), raw, place)
    if kind is Any:
        return raw
    if origin is dict:
        return _read_dict(get_args(kind)[1], raw, place)
    if origin is tuple:
        return _read_list(get_args(kind)[0], raw, place)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return read_object(kind, raw, place)
    return _read_plain(kind, raw, place)


def _read_union(kinds: tuple[Any, ...], raw: object, place: str) -> Any:
    if raw is None and type(None) in kinds:
        return None
    inner = [kind for kind in kinds if kind is not type(None)]
    return _read_value(inner[0], raw, place) if len(inner) == 1 else _read_one_of(inner, raw, place)


def _read_one_of(kinds: list[Any], raw: object, place: str) -> Any:
    """Read one of several objects, which their key `kind` tells apart."""
    tags: dict[str, Any] = {get_args(get_type_hints(kind)["kind"])[0]: kind for kind in kinds}
    tag = raw.get("kind") if isinstance(raw, dict) else next(iter(tags))
    return read_object(tags[_read_choice(tuple(tags), tag, f"{place}.kind")], raw, place)


def _read_list(kind: Any, raw: object, place: str) -> tuple[Any, ...]:
    if not isinstance(raw, list):
        raise RefusedError(place, f"is {shown(raw)}", "write a list in brackets")
    return tuple(_read_value(kind, item, f"{place}[{number}]") for number, item in enumerate(raw))


def _read_dict(kind: Any, raw: object, place: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise RefusedError(place, f"is {shown(raw)}", "write an object in braces")
    return {key: _read_value(kind, item, f"{place}.{key}") for key, item in raw.items()}


def _read_choice(choices: tuple[Any, ...], raw: object, place: str) -> Any:
    for choice in choices:
        if raw == choice and type(raw) is type(choice):
            return choice
    raise RefusedError(place, f"is {shown(raw)}", f"choose one of {', '.join(map(str, choices))}")


def _read_plain(kind: type, raw: object, place: str) -> object:
    if kind is float and type(raw) is int:
        return float(raw)
    # `type` and not `isinstance`: for Python true is an int.
    if type(raw) is not kind:
        raise RefusedError(place, f"is {shown(raw)}", f"write {WORDS[kind]}")
    if isinstance(raw, float) and not math.isfinite(raw):
        raise RefusedError(place, f"is {raw}", "write a finite number")
    return raw
