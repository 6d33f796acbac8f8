# SPDX-License-Identifier: Apache-2.0
"""Calls hooks of one plugin: guarded, with its settings, and with answers of the right kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, is_dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import pluggy

from llmb import api
from llmb.config.locate import CONFIG_FILE
from llmb.errors import PluginError
from llmb.system.guard import guarded, wrong_answer

if TYPE_CHECKING:
    from llmb.plugins.complete import Wrapping
    from llmb.plugins.sources import Source

Arguments = dict[str, Any]


@dataclass(eq=False, kw_only=True)
class Calls:
    """Calls hooks of the plugins of ``manager``; ``found``: where each one comes from, by its name."""

    manager: pluggy.PluginManager
    found: dict[str, Source] = field(default_factory=dict)
    _settings: dict[str, type | None] = field(default_factory=dict)
    _overdue: dict[tuple[str, str], PluginError] = field(default_factory=dict)

    def implementation(self, source: str, hook: str) -> Callable[..., Any] | None:
        """The plugin's own function for ``hook``; None without one."""
        return getattr(self.manager.get_plugin(source), hook, None)

    def owner(self, source: str) -> str:
        """The top module of a plugin, by which its code is known in tracebacks; empty for llmb's own."""
        return self.found[source].owner if source in self.found else ""

    def call(self, source: str, hook: str, call: Callable[[], Any]) -> Any:
        """The answer of ``call``, which calls ``hook``. Raises PluginError, LlmbError of the hook.

        A hook that was interrupted once is not called again: it would take the whole time limit again.
        """
        if (source, hook) in self._overdue:
            raise self._overdue[source, hook]
        try:
            with guarded(source, hook, owner=self.owner(source)):
                return call()
        except PluginError as error:
            if error.code == "plugin-timeout":
                self._overdue[source, hook] = error
            raise

    def require(self, source: str, hook: str, answer: object, kinds: tuple[type, ...]) -> None:
        """Raise PluginError unless ``answer`` is one of ``kinds``."""
        if not isinstance(answer, kinds):
            raise self.wrong(source, hook, answer, f"a {' or a '.join(kind.__name__ for kind in kinds)}")

    def wrong(self, source: str, hook: str, answer: object, wanted: str) -> PluginError:
        """The error for an answer that is not what is ``wanted``."""
        return wrong_answer(source, hook, answer, wanted, self.implementation(source, hook))

    def settings_kind(self, source: str) -> type | None:
        """The dataclass of a plugin's settings; None if it takes none. Raises PluginError."""
        if source not in self._settings:
            implementation, hook = self.implementation(source, "llmb_settings"), "llmb_settings"
            found = None
            if implementation is not None:
                found = self.call(source, hook, implementation)
                if not (isinstance(found, type) and is_dataclass(found)):
                    raise self.wrong(source, hook, found, "a dataclass")
            self._settings[source] = found
        return self._settings[source]

    def with_settings(self, source: str, arguments: Arguments) -> Arguments:
        """The arguments as the plugin ``source`` gets them: the site with its settings. Raises InputFaults."""
        site, kind = arguments.get("site"), self.settings_kind(source) if "site" in arguments else None
        if kind is None or not isinstance(site, api.Site):
            return arguments
        from llmb.plugins import settings

        with guarded(source, "llmb_settings", owner=self.owner(source)):
            own = settings.read_own(site.plugins, source, kind)
        return {**arguments, "site": replace(site, own_settings=own)}

    def wrapped(self, source: str, launch: api.Launch, arguments: Arguments) -> api.Launch:
        """``launch`` as the wrapper of a plugin changes it; ``changed_by`` names the plugin and the fields."""
        from llmb.plugins.complete import changes, through

        own = next(one for one in self.manager.hook.llmb_launch.get_hookimpls() if one.plugin_name == source)
        given = self.with_settings(source, arguments)

        def wrap() -> api.Launch:
            return through(cast("Wrapping", own.function(*(given[name] for name in own.argnames))), launch)

        try:
            after: api.Launch = self.call(source, "llmb_launch", wrap)
        except PluginError as error:
            without = f"remove it from 'plugins' of {CONFIG_FILE} to run without it"
            if without not in (error.hint or ""):
                error.hint = "; ".join(filter(None, (error.hint, without)))
            raise
        changed = tuple(changes(launch, after))
        return replace(after, changed_by={**launch.changed_by, source: changed}) if changed else after
