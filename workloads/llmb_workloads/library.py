# SPDX-License-Identifier: Apache-2.0
"""A training library as the programs use it: finds its parts by name, shows its versions and its objects."""

import dataclasses
import difflib
import importlib
import importlib.metadata
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from llmb_workloads.fields import RefusedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A library by the name of its ``package`` and of its top ``module``; ``fix``: what to use where a part is missing.

    ``shown``: the packages whose versions a measurement depends on.
    """

    package: str
    module: str
    fix: str
    shown: tuple[str, ...]

    @property
    def label(self) -> str:
        """The package with its version."""
        return f"{self.package} {version(self.package) or '(not installed)'}"

    def find(self, module: str, name: str) -> Any:
        """The attribute `name` of `module`. Raises RefusedError when the library, or this part, is not installed."""
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            fix = self.fix if missing in ("", self.module) else f"install what brings {missing}, or {self.fix}"
            raise RefusedError(self.label, f"has no module {module} ({error})", fix) from error
        except ImportError as error:
            raise RefusedError(self.label, f"cannot load {module} ({error})", "repair the environment") from error
        if not hasattr(found, name):
            near = nearest(name, dir(found))
            raise RefusedError(
                self.label, f"{module} has no '{name}'", f"{near}  {self.fix}" if near is not None else self.fix
            )
        return getattr(found, name)

    def versions(self) -> dict[str, str]:
        """The versions of the packages that a measurement depends on; missing ones are omitted."""
        return {name: found for name in self.shown if (found := version(name)) is not None}


def version(package: str) -> str | None:
    """The installed version of ``package``, None without."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The question that names the most similar of ``known``, None if none is."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean '{near[0]}'?" if near else None


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
        named = {field.name: plain(getattr(value, field.name, None)) for field in dataclasses.fields(value)}
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
