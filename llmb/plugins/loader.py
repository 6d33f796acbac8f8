# SPDX-License-Identifier: Apache-2.0
"""Finds and loads plugins; one that fails is reported and does not affect the others."""

from collections.abc import Iterable
from importlib.metadata import EntryPoint
from typing import Any

import pluggy

from llmb import hookspecs
from llmb.errors import LlmbError
from llmb.plugins.calls import Calls
from llmb.plugins.contract import Reason, contract_problem, problem_of, stated_in
from llmb.plugins.loaded import Plugins, problem_of_error
from llmb.plugins.owners import Problem
from llmb.plugins.sources import Source, all_sources
from llmb.system.guard import allowed_seconds, guarded

__all__ = ["Plugins", "Problem", "load_plugins"]


def load_plugins(builtin: Iterable[tuple[str, Any]], *, entries: Iterable[EntryPoint] | None = None) -> Plugins:
    """Load ``builtin``, whose last plugin is the default, and all others: of distributions, and of LLMB_PLUGINS.

    ``entries``: load these in place of the others. Raises UsageError for an LLMB_PLUGIN_TIMEOUT that is no number.
    """
    allowed_seconds()
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    own = list(builtin)
    for name, plugin in own:
        manager.register(plugin, name)
    plugins = Plugins(calls=Calls(manager=manager), default=own[-1][0])
    sources, unusable = all_sources(entries)
    plugins.problems += unusable
    for source in sources:
        _register(plugins, source)
    return plugins


def _register(plugins: Plugins, source: Source) -> None:
    if source.name in plugins.calls.found:
        reason = "it has another entry point of the same name"
        plugins.problems.append(Problem(source=source.name, code="name-duplicate", reason=reason))
        return
    plugins.calls.found[source.name] = source
    try:
        with guarded(source.name, "import", owner=source.owner):
            plugin = source.load()
            found = problem_of(plugin, source.distribution)
            if found is None:
                plugins.manager.register(plugin, source.name)
    except LlmbError as error:
        problem = problem_of_error(source.name, error)
        if plugins.manager.has_plugin(source.name):
            plugins.manager.unregister(name=source.name)
        code, reason = _newer(source) or (problem.code, problem.reason)
        plugins.problems.append(Problem(source=source.name, code=code, reason=reason, faults=problem.faults))
        return
    if found is not None:
        plugins.problems.append(Problem(source=source.name, code=found[0], reason=found[1]))


def _newer(source: Source) -> Reason | None:
    """The reason if a plugin that cannot be imported is made for another contract, whose names llmb lacks."""
    file = source.find_file()
    stated = stated_in(file) if file is not None else None
    return contract_problem(stated, source.distribution) if stated is not None else None
