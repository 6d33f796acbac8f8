# SPDX-License-Identifier: Apache-2.0
"""Tries plugins for a whole cluster as `plugins check` does: their cluster types, their changes; submits nothing."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmb import api
from llmb.clusters import checks, guarded
from llmb.config import ClusterConfig
from llmb.config.cluster_type import ClusterType, required_fields
from llmb.errors import Fault, LlmbError, PluginError, author_fault
from llmb.plugins.contract import is_site_wide
from llmb.plugins.loaded import Plugins
from llmb.plugins.settings import Sections, key_of
from llmb.runs.launch import Launch, Program
from llmb.workload.gpus import CPU

IMPURE = "it may depend on its arguments alone: no time, random number or environment"
_LAUNCH = Launch(
    name="check", nodes=1, ranks_per_node=1, time_limit=60, program=Program(argv=("true",)), gpu_type=CPU, start="once"
)
IMPURE = "it may depend on its arguments alone: no time, random number or environment"


def cluster_faults(kinds: Iterable[ClusterType]) -> Iterator[Fault]:
    """A fault for each type of a plugin whose cluster cannot be made, or whose script differs from one to the next.

    A type whose section has a required key is not tried: nobody knows its value here.
    """
    for kind in kinds:
        if not kind.source or required_fields(kind.schema):
            continue
        try:
            section = None if kind.schema is None else kind.schema()
            config = ClusterConfig(
                cluster_type=kind.name, gpu_type=CPU, llmb_install=Path("/install"), kind=kind, own_section=section
            )
            cluster, stamp = guarded.create(kind, config), checks.preview_stamp(_LAUNCH, config)
            if cluster.render(_LAUNCH, stamp) != cluster.render(_LAUNCH, stamp):
                message = f"render of cluster type {kind.name} gives different scripts for one launch"
                yield Fault(place=kind.source, message=message, hint=IMPURE, code="hook-impure", key="render")
        except LlmbError as error:
            yield author_fault(error, kind.source)


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
