# SPDX-License-Identifier: Apache-2.0
"""Finds and loads plugins. One that fails is reported and does not affect the others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

from llmb import hookspecs
from llmb.errors import LlmbError
from llmb.plugins.adapters import Contract
from llmb.plugins.calls import Calls
from llmb.plugins.contract import (
    FIRST_CONTRACT,
    STATEMENT,
    Reason,
    contract_problem,
    hook_problem,
    major_for,
    statement_in,
)
from llmb.plugins.guard import allowed_seconds, guarded
from llmb.plugins.loaded import Plugins, problem_of_error
from llmb.plugins.owners import Problem
from llmb.plugins.sources import (
    BENCHMARKS,
    PluginSource,
    YamlBenchmarks,
    all_sources,
    as_plugin,
    benchmarks_in,
    name_of_file,
    of_file,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def load_plugins(
    builtin: Iterable[tuple[str, Any]],
    *,
    entries: Iterable[EntryPoint] | None = None,
    contract: Contract | None = None,
) -> Plugins:
    """Load ``builtin``, whose last plugin is the default, and all other plugins.

    The others are of distributions and of LLMB_PLUGINS, or ``entries`` in their place. They are
    loaded for ``contract``, by default that of this llmb. Raises UsageError for an
    LLMB_PLUGIN_TIMEOUT that is no number.
    """
    allowed_seconds()
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    builtin_plugins = list(builtin)
    for name, plugin in builtin_plugins:
        manager.register(plugin, name)
    plugins = Plugins(
        calls=Calls(manager=manager),
        default=builtin_plugins[-1][0],
        own_contract=contract or Contract(),
    )
    sources, unusable = all_sources(entries)
    plugins.problems += unusable
    for source in sources:
        _register(plugins, source)
    return plugins


def add_benchmarks(plugins: Plugins, install: Path) -> None:
    """Add the benchmarks in the folder ``benchmarks`` of an install directory."""
    for source in benchmarks_in(install / BENCHMARKS):
        _register(plugins, source)
        plugins.forget_workloads()


def add_file(plugins: Plugins, path: Path, folder: Path | None = None) -> None:
    """Add the plugin of one file, ``__init__.py`` of a package, which need not be installed.

    Its name is relative to ``folder``, by default to its own.
    """
    path = path.absolute()
    _register(plugins, of_file(path, name_of_file(path, folder and folder.absolute())))
    plugins.forget_workloads()


def _register(plugins: Plugins, source: PluginSource) -> None:
    if source.name in plugins.calls.sources:
        reason = "it has another entry point of the same name"
        plugins.problems.append(Problem(source=source.name, code="name-duplicate", reason=reason))
        return
    plugins.calls.sources[source.name] = source
    try:
        with guarded(source.name, "import", owner=source.owner):
            plugin = as_plugin(source.load())
            refusal = None
            if not isinstance(plugin, YamlBenchmarks):
                plugin, refusal = _for_contract(plugin, source, plugins.own_contract)
            if (loaded_as := plugins.manager.get_name(plugin)) is not None:
                refusal = "name-duplicate", f"it is loaded already, as {loaded_as}"
            if refusal is None:
                plugins.manager.register(plugin, source.name)
    except LlmbError as error:
        problem = problem_of_error(source.name, error)
        if plugins.manager.has_plugin(source.name):
            plugins.manager.unregister(name=source.name)
        code, reason = _newer(source, plugins.own_contract) or (problem.code, problem.reason)
        plugins.problems.append(
            Problem(source=source.name, code=code, reason=reason, faults=problem.faults)
        )
        return
    if refusal is not None:
        plugins.problems.append(Problem(source=source.name, code=refusal[0], reason=refusal[1]))


def _for_contract(
    plugin: object, source: PluginSource, contract: Contract
) -> tuple[object, Reason | None]:
    """Return the plugin with the hooks of ``contract``, or why llmb cannot use it."""
    stated = getattr(plugin, STATEMENT, FIRST_CONTRACT)
    refusal = contract_problem(stated, source.distribution, contract)
    if refusal is not None:
        code, reason = refusal
        file = source.find_file()
        statement = statement_in(file) if file is not None else None
        place = file if statement is None else statement[1]
        return plugin, (code, reason if place is None else f"{place}: {reason}")
    plugin = contract.adapted(plugin, major_for(stated, contract))
    return plugin, hook_problem(plugin)


def _newer(source: PluginSource, contract: Contract) -> Reason | None:
    """Return the reason if a plugin that cannot be imported is made for another contract."""
    file = source.find_file()
    statement = statement_in(file) if file is not None else None
    if statement is None:
        return None
    stated, place = statement
    refusal = contract_problem(stated, source.distribution, contract)
    return None if refusal is None else (refusal[0], f"{place}: {refusal[1]}")
