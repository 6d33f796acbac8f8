# SPDX-License-Identifier: Apache-2.0
"""Calls hooks of one plugin: guarded, with its settings, and checks the kind of answers.

Also finds the skipped plugin that would offer a cluster type or a command, which is then no mistake
of the user.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import pluggy

from llmb import api
from llmb.errors import PluginError
from llmb.plan.locate import CONFIG_FILE
from llmb.plugins.guard import guarded, wrong_answer
from llmb.plugins.owners import Problem

if TYPE_CHECKING:
    from llmb.contract.cluster_type import SkippedType
    from llmb.plugins.answers import Wrapping
    from llmb.plugins.sources import PluginSource

Arguments = dict[str, Any]


@dataclass(eq=False, kw_only=True)
class Calls:
    """Calls hooks of the plugins of ``manager``."""

    manager: pluggy.PluginManager
    #: Each plugin's origin by its name.
    sources: dict[str, PluginSource] = field(default_factory=dict)
    _settings: dict[str, type | None] = field(default_factory=dict)
    _overdue: dict[tuple[str, str], PluginError] = field(default_factory=dict)

    def implementation(self, source: str, hook: str) -> Callable[..., Any] | None:
        """Return the plugin's own function for ``hook``, or None."""
        return getattr(self.manager.get_plugin(source), hook, None)

    def owner(self, source: str) -> str:
        """Return the top module of a plugin, which tracebacks name. Empty for llmb's own."""
        return self.sources[source].owner if source in self.sources else ""

    def call(self, source: str, hook: str, call: Callable[[], Any]) -> Any:
        """The answer of ``call``, which calls ``hook``. Raises PluginError, LlmbError of the hook.

        A hook that was interrupted once is not called again: it would take the whole time limit
        again.
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
            raise self.answer_error(
                source, hook, answer, f"a {' or a '.join(kind.__name__ for kind in kinds)}"
            )

    def answer_error(self, source: str, hook: str, answer: object, expected: str) -> PluginError:
        """The error for an answer that is not what is ``expected``."""
        return wrong_answer(source, hook, answer, expected, self.implementation(source, hook))

    def settings_kind(self, source: str) -> type | None:
        """Return the dataclass of a plugin's settings, or None. Raises PluginError."""
        if source not in self._settings:
            implementation, hook = self.implementation(source, "llmb_settings"), "llmb_settings"
            kind = None
            if implementation is not None:
                kind = self.call(source, hook, implementation)
                if not (isinstance(kind, type) and is_dataclass(kind)):
                    raise self.answer_error(source, hook, kind, "a dataclass")
            self._settings[source] = kind
        return self._settings[source]

    def with_settings(self, source: str, arguments: Arguments) -> Arguments:
        """Return the arguments with the plugin's settings in the site. Raises InputFaults."""
        site, kind = (
            arguments.get("site"),
            self.settings_kind(source) if "site" in arguments else None,
        )
        if kind is None or not isinstance(site, api.Site):
            return arguments
        from llmb.plugins import settings

        with guarded(source, "llmb_settings", owner=self.owner(source)):
            settings_value = settings.read_own(site.plugins, source, kind)
        return {**arguments, "site": replace(site, own_settings=settings_value)}

    def wrapped(self, source: str, launch: api.Launch, arguments: Arguments) -> api.Launch:
        """Return ``launch`` as the wrapper of a plugin changes it.

        ``changed_by`` names the plugin and the fields.
        """
        from llmb.plugins.answers import changes, through

        wrapper = next(
            implementation
            for implementation in self.manager.hook.llmb_launch.get_hookimpls()
            if implementation.plugin_name == source
        )
        values = self.with_settings(source, arguments)

        def wrap() -> api.Launch:
            return through(
                cast("Wrapping", wrapper.function(*(values[name] for name in wrapper.argnames))),
                launch,
            )

        try:
            after: api.Launch = self.call(source, "llmb_launch", wrap)
        except PluginError as error:
            without = f"remove it from 'plugins' of {CONFIG_FILE} to run without it"
            if without not in (error.hint or ""):
                error.hint = "; ".join(filter(None, (error.hint, without)))
            raise
        changed = tuple(changes(launch, after))
        return (
            replace(after, changed_by={**launch.changed_by, source: changed}) if changed else after
        )


# the parts of problems of llmb_clusters, llmb_commands
_ALL_TYPES, _ALL_COMMANDS = "cluster types", "commands"


def skipped_types(name: str, problems: Iterable[Problem], calls: Calls) -> list[SkippedType]:
    """Return the skipped plugins that offer, or may offer, the cluster type ``name``."""
    from llmb.contract.cluster_type import SkippedType

    skipped = []
    for problem in problems:
        is_type = problem.part == f"cluster type '{name}'"
        if is_type or _may_offer(problem, _ALL_TYPES, calls):
            skipped.append(
                SkippedType(
                    source=problem.source,
                    reason=problem.reason,
                    offers=is_type or _mentions(problem.source, name, calls),
                )
            )
    return skipped


def skipped_commands(
    name: str, problems: Sequence[Problem], calls: Calls
) -> tuple[list[str], list[str]]:
    """Return why nobody has the command ``name``, and the skipped plugins that may offer it."""
    of_command = [problem for problem in problems if problem.part == f"command '{name}'"]
    candidates = [str(problem) for problem in problems if _may_offer(problem, _ALL_COMMANDS, calls)]
    if len(of_command) > 1 and all(problem.code == "name-duplicate" for problem in of_command):
        sources = " and ".join(problem.source for problem in of_command)
        return [f"plugins {sources} offer it, so none of them is used: uninstall one"], candidates
    return [str(problem) for problem in of_command], candidates


def _may_offer(problem: Problem, part: str, calls: Calls) -> bool:
    """Return True if all of a plugin is skipped, or ``part`` of it."""
    return problem.part == part or (
        not problem.part and not calls.manager.has_plugin(problem.source)
    )


def _mentions(source: str, name: str, calls: Calls) -> bool:
    """Return True if a plugin's module, importable or not, has ``name`` as a text."""
    origin = calls.sources.get(source)
    file = origin.find_file() if origin is not None else None
    try:
        text = file.read_text(encoding="utf-8", errors="replace") if file is not None else ""
    except OSError:
        return False
    return re.search(rf"""["']{re.escape(name)}["']""", text) is not None
