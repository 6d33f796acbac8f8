# SPDX-License-Identifier: Apache-2.0
"""Tries the plugins for a whole cluster as `plugins check` does: each one changes a launch of every workload."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from llmb import api
from llmb.errors import Fault, LlmbError, PluginError, author_fault
from llmb.plugins.contract import is_site_wide
from llmb.plugins.loaded import Plugins
from llmb.plugins.settings import Sections, key_of

IMPURE = "it may depend on its arguments alone: no time, random number or environment"


def settings_for(sections: Sections, source: str) -> Mapping[str, Any]:
    """The section of the plugin ``source`` alone, with its key; empty without one."""
    key = key_of(sections, source)
    return {} if key is None else {key: sections[key]}


def site_wide(plugins: Plugins) -> list[str]:
    """The plugins that can change the launches of all workloads."""
    return [source for source in plugins.sources if is_site_wide(plugins.manager.get_plugin(source))]


def faults_of_wrappers(
    workload: api.Workload, jobs: Iterable[tuple[api.Job, api.Site]], plugins: Plugins, sections: Sections
) -> Iterator[Fault]:
    """The faults of plugins for a whole cluster that change the launches of ``jobs``, each one tried alone.

    A plugin without a section has its default settings. The faults of the launches themselves are not given.
    """
    wrappers = site_wide(plugins)
    for job, site in jobs if wrappers else ():
        for source in wrappers:
            own = replace(site, plugins=settings_for(sections, source) or {source: None})
            try:
                if plugins.launch(workload, job, own) != plugins.launch(workload, job, own):
                    message = "llmb_launch changes equal launches differently"
                    yield Fault(place=source, message=message, hint=IMPURE, code="hook-impure", key="llmb_launch")
            except PluginError as error:
                if error.value == source:
                    yield author_fault(error)
            except LlmbError:  # of the launch, or settings without a default
                continue
