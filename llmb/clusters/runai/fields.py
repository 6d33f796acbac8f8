# SPDX-License-Identifier: Apache-2.0
"""Checks the body of a new workload against the fields that Run:ai's API documents (fields.yaml)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from llmb.text import yamlfile
from llmb.text.names import suggest

REQUESTS = {"trainings": "TrainingCreationRequest", "distributed": "DistributedCreationRequest"}
_SCALAR = re.compile(r"(string|integer|number|boolean)(?: (\d*)\.\.(\d*))?(?: /(.*)/)?")
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_NAMES = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldFault:
    """A fault of one field: ``path`` names it from the top of the body (``spec.ports[0].container``)."""

    path: str
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        return f"{self.path} {self.message}"


def faults_of(kind: str, body: object) -> list[FieldFault]:
    """What the API would refuse in the body of a new workload; ``kind`` as in its address: ``trainings``."""
    return list(_faults(REQUESTS[kind], body, ""))


@lru_cache(maxsize=1)
def types() -> dict[str, Any]:
    """Every type of fields.yaml by name: its fields, or its allowed values."""
    found: dict[str, Any] = yamlfile.load(Path(__file__).with_name("fields.yaml")).data
    return found


def _faults(kind: str, value: object, path: str) -> Iterator[FieldFault]:
    """The faults of ``value``, which must have the type ``kind``. Null is a field that is not set."""
    if kind.startswith("["):
        yield from _list_faults(kind[1:-1], value, path)
    elif (scalar := _SCALAR.fullmatch(kind)) is not None:
        if (fault := _scalar_fault(scalar, value)) is not None:
            yield FieldFault(path=path, message=fault)
    elif isinstance(words := types()[kind], list):
        if value not in words:
            yield FieldFault(path=path, message=f"must be one of {', '.join(words)}", hint=suggest(str(value), words))
    else:
        yield from _object_faults(words, value, path)


def _list_faults(kind: str, value: object, path: str) -> Iterator[FieldFault]:
    if not isinstance(value, list):
        yield FieldFault(path=path, message="must be a list")
        return
    for index, one in enumerate(value):
        yield from _faults(kind, one, f"{path}[{index}]")


def _object_faults(fields: Mapping[str, str], value: object, path: str) -> Iterator[FieldFault]:
    if not isinstance(value, dict):
        yield FieldFault(path=path or "the body", message="must be an object")
        return
    known = {name.rstrip("!"): kind for name, kind in fields.items()}
    for name, own in value.items():
        where = f"{path}.{name}".lstrip(".")
        if name not in known:
            yield FieldFault(path=where, message="is not a field of Run:ai's API", hint=suggest(str(name), known))
        elif own is not None:
            yield from _faults(known[name], own, where)
    for name in fields:
        if name.endswith("!") and value.get(name[:-1]) is None:
            yield FieldFault(path=f"{path}.{name[:-1]}".lstrip("."), message="is missing")


def _scalar_fault(kind: re.Match[str], value: object) -> str | None:
    """The fault of a text, a number or a boolean; None where it is valid."""
    name, least, most, pattern = kind.groups()
    if not isinstance(value, _TYPES[name]) or (isinstance(value, bool) and name != "boolean"):
        return f"must be {_NAMES[name]}"
    size = len(value) if isinstance(value, str) else float(value) if isinstance(value, int | float) else 0
    be, unit = ("have", " characters") if name == "string" else ("be", "")
    if least and size < int(least):
        return "is empty" if value == "" else f"must {be} at least {least}{unit}"
    if most and size > int(most):
        return f"must {be} at most {most}{unit}"
    if pattern and re.match(pattern, str(value)) is None:
        return f"'{value}' must match {pattern}"
    return None
