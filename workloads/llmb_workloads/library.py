# SPDX-License-Identifier: Apache-2.0
"""A training library as the programs use it: finds parts by name, shows versions and objects."""

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
    """A library by the name of its ``package`` and of its top ``module``."""

    package: str
    module: str
    #: What to use if a part is missing.
    fix: str
    #: The packages whose versions a measurement depends on.
    shown: tuple[str, ...]

    @property
    def label(self) -> str:
        """The package with its version."""
        return f"{self.package} {version(self.package) or '(not installed)'}"

    def find(self, module: str, name: str) -> Any:
        """Return attribute `name` of `module`. Raises RefusedError if it is not installed."""
        try:
            loaded_module = importlib.import_module(module)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            fix = (
                self.fix
                if missing in ("", self.module)
                else f"install what brings {missing}, or {self.fix}"
            )
            raise RefusedError(self.label, f"has no module {module} ({error})", fix) from error
        except ImportError as error:
            raise RefusedError(
                self.label, f"cannot load {module} ({error})", "repair the environment"
            ) from error
        if not hasattr(loaded_module, name):
            near = nearest(name, dir(loaded_module))
            raise RefusedError(
                self.label,
                f"{module} has no '{name}'",
                f"{near}  {self.fix}" if near is not None else self.fix,
            )
        return getattr(loaded_module, name)

    def versions(self) -> dict[str, str]:
        """Return the versions that a measurement depends on, without missing packages."""
        return {name: installed for name in self.shown if (installed := version(name)) is not None}


def version(package: str) -> str | None:
    """Return the installed version of ``package``, None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return a question that names the most similar of ``known``, None if none is similar."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean '{near[0]}'?" if near else None


def plain(value: Any) -> Any:
    """Return `value` as JSON data. A configured call has the name of its function as `_target_`.

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
        named = {
            field.name: plain(getattr(value, field.name, None))
            for field in dataclasses.fields(value)
        }
        return {"_target_": _name(type(value)), **named}
    return _name(value) if hasattr(value, "__qualname__") else str(value)


def _configured(config: Any) -> dict[str, Any]:
    owner = config.__fn_or_cls__
    parameters = inspect.signature(owner).parameters
    # `each.empty` is a parameter without a default.
    defaults = {
        name: parameter.default
        for name, parameter in parameters.items()
        if parameter.default is not parameter.empty
    }
    arguments = {**defaults, **config.__arguments__}
    return {"_target_": _name(owner), **{name: plain(value) for name, value in arguments.items()}}


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"
