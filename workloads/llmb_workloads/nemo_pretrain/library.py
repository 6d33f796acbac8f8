# SPDX-License-Identifier: Apache-2.0
"""Accesses the installed NeMo, names what it lacks, and shows a configuration as plain data."""

import dataclasses
import difflib
import importlib
import importlib.metadata
import inspect
from collections.abc import Iterable
from typing import Any

from llmb_workloads.fields import RefusedError

FIX = "use NeMo 2.3, as in the image nvcr.io/nvidia/nemo:25.04.01"
SHOWN = ("nemo_toolkit", "megatron-core", "transformer-engine", "nemo_run", "torch")


def find(module: str, name: str) -> Any:
    """The attribute `name` of `module`. Raises RefusedError when NeMo, or this part of it, is not installed."""
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise RefusedError(_nemo(), f"has no module {module} ({error})", _fix(error)) from error
    except ImportError as error:
        raise RefusedError(_nemo(), f"cannot load {module} ({error})", "repair the environment") from error
    if not hasattr(found, name):
        raise RefusedError(_nemo(), f"{module} has no '{name}'", _nearest(name, dir(found)) or FIX)
    return getattr(found, name)


def assign(config: Any, **values: Any) -> None:
    """Set the arguments of a fiddle configuration. Raises RefusedError for one that its class does not have."""
    # fiddle accepts any name where the class has **kwargs; the fault would show much later, in every rank.
    _check(config.__fn_or_cls__, values)
    for name, value in values.items():
        setattr(config, name, value)


def call(function: Any, **values: Any) -> Any:
    """Call NeMo's function. Raises RefusedError for an argument that it does not have."""
    _check(function, values)
    return function(**values)


def versions() -> dict[str, str]:
    """The versions of the libraries that a measurement depends on; missing ones are omitted."""
    return {name: version for name in SHOWN if (version := _version(name)) is not None}


def _check(owner: Any, names: Iterable[str]) -> None:
    known = inspect.signature(owner).parameters
    for name in names:
        if name not in known:
            raise RefusedError(_nemo(), f"{owner.__module__}.{owner.__qualname__} has no setting '{name}'", FIX)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _nemo() -> str:
    return f"nemo_toolkit {_version('nemo_toolkit') or '(not installed)'}"


def _fix(error: ModuleNotFoundError) -> str:
    missing = (error.name or "").partition(".")[0]
    return FIX if missing in ("", "nemo") else f"install what brings {missing}, or {FIX}"


def _nearest(name: str, known: list[str]) -> str | None:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean '{near[0]}'?  {FIX}" if near else None


def plain(value: Any) -> Any:
    """`value` as JSON data; a configured call is an object whose `_target_` is the function or class that it calls.

    Arguments that are not set have the defaults of the call.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "__fn_or_cls__"):
        return _configured(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"_target_": _name(type(value)), **named}
    return _name(value) if hasattr(value, "__qualname__") else str(value)


def _configured(config: Any) -> dict[str, Any]:
    owner = config.__fn_or_cls__
    parameters = inspect.signature(owner).parameters
    # `each.empty` is a parameter without a default.
    defaults = {name: each.default for name, each in parameters.items() if each.default is not each.empty}
    arguments = {**defaults, **config.__arguments__}
    return {"_target_": _name(owner), **{name: plain(value) for name, value in arguments.items()}}


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"
