# SPDX-License-Identifier: Apache-2.0
"""Adapts plugins of an older contract to this one, for as long as the policy promises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from llmb.core.values import dataclass
from llmb.hookspecs import CONTRACT, hookimpl

Adapt = Callable[[object], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """Makes a plugin of one MAJOR of the contract a plugin of the next one.

    It is added with the next MAJOR, and removed with a later one, at least a year after ``since``
    (docs/plugin-contract.md). Then plugins of its MAJOR are refused.
    """

    #: The day on which the next MAJOR was released, as ``2027-03-01``.
    since: str
    #: Returns the plugin with the hooks, arguments and answers of the next MAJOR.
    adapt: Adapt


#: The adapter of each older MAJOR whose plugins this llmb works with. There is no older MAJOR yet.
ADAPTERS: Mapping[int, Adapter] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """A contract that plugins are loaded for, with the older ones that are adapted to it."""

    version: str = CONTRACT
    adapters: Mapping[int, Adapter] = field(default_factory=lambda: ADAPTERS)

    @property
    def oldest_major(self) -> int:
        """The oldest MAJOR whose plugins work: there is an adapter for it and all later ones."""
        major = self.major
        while major - 1 in self.adapters:
            major -= 1
        return major

    @property
    def major(self) -> int:
        return major_of(self.version)

    def adapted(self, plugin: object, major: int) -> object:
        """Return a plugin of ``major`` with the hooks of this contract."""
        for number in range(major, self.major):
            plugin = self.adapters[number].adapt(plugin)
        return plugin


def major_of(version: str) -> int:
    """Return the MAJOR of ``MAJOR.MINOR``."""
    return int(version.partition(".")[0])


class Adapted:
    """A plugin with some hooks in the place of its own, for adapters.

    ``hooks`` are functions by the name of their hook. A value None hides what the plugin has.
    """

    def __init__(self, plugin: object, hooks: Mapping[str, Callable[..., Any] | None]) -> None:
        self._plugin, self._hidden = plugin, {name for name, hook in hooks.items() if hook is None}
        for name, hook in hooks.items():
            if hook is not None:
                setattr(self, name, hookimpl(hook))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in self._hidden:
            raise AttributeError(name)
        return getattr(self._plugin, name)

    def __dir__(self) -> list[str]:
        names = {name for name in dir(self._plugin) if not name.startswith("_")}
        return sorted({*names, *vars(self)} - self._hidden)
