# SPDX-License-Identifier: Apache-2.0
"""Tries cluster types and changes of site-wide plugins for `plugins check`. Submits nothing."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmb import api
from llmb.contract.cluster_type import ClusterType, required_fields
from llmb.contract.gpus import CPU
from llmb.contract.launch import Launch, Program
from llmb.contract.schema import ClusterConfig
from llmb.errors import Fault, LlmbError, PluginError, author_fault
from llmb.kit import checks
from llmb.plugins import guarded_cluster
from llmb.plugins.contract import is_site_wide
from llmb.plugins.loaded import Plugins
from llmb.plugins.settings import Sections, key_of

IMPURE = "it may depend on its arguments alone: no time, random number or environment"
_LAUNCH = Launch(
    name="check",
    nodes=1,
    ranks_per_node=1,
    time_limit=60,
    program=Program(argv=("true",)),
    gpu_type=CPU,
    start="once",
)


def cluster_faults(kinds: Iterable[ClusterType]) -> Iterator[Fault]:
    """Yield a fault for each type whose cluster cannot be made or whose script varies.

    A type whose section has a required key is not tried: nobody knows its value here.
    """
    for kind in kinds:
        if not kind.source or required_fields(kind.schema):
            continue
        try:
            section = None if kind.schema is None else kind.schema()
            config = ClusterConfig(
                cluster_type=kind.name,
                gpu_type=CPU,
                llmb_install=Path("/install"),
                kind=kind,
                sections={} if kind.key is None else {kind.key: section},
            )
            cluster, stamp = (
                guarded_cluster.create(kind, config),
                checks.preview_stamp(_LAUNCH, config),
            )
            if cluster.render(_LAUNCH, stamp) != cluster.render(_LAUNCH, stamp):
                message = (
                    f"render of cluster type {kind.name} gives different scripts for one launch"
                )
                yield Fault(
                    place=kind.source,
                    message=message,
                    hint=IMPURE,
                    code="hook-impure",
                    key="render",
                )
        except LlmbError as error:
            yield author_fault(error, kind.source)


def settings_for(sections: Sections, source: str) -> Mapping[str, Any]:
    """Return the section of the plugin ``source`` alone, with its key. Without one it is empty."""
    key = key_of(sections, source)
    return {} if key is None else {key: sections[key]}


def site_wide(plugins: Plugins) -> list[str]:
    """The plugins that can change the launches of all workloads."""
    return [
        source for source in plugins.sources if is_site_wide(plugins.manager.get_plugin(source))
    ]


def faults_of_wrappers(
    workload: api.Workload,
    jobs: Iterable[tuple[api.Job, api.Site]],
    plugins: Plugins,
    sections: Sections,
) -> Iterator[Fault]:
    """Yield the faults of site-wide plugins that change ``jobs``, each one tried alone.

    A plugin without a section has its default settings. Faults of the launches themselves are
    omitted.
    """
    wrappers = site_wide(plugins)
    for job, site in jobs if wrappers else ():
        for source in wrappers:
            site_of_source = replace(site, plugins=settings_for(sections, source) or {source: None})
            try:
                if plugins.launch(workload, job, site_of_source) != plugins.launch(
                    workload, job, site_of_source
                ):
                    yield Fault(
                        place=source,
                        message="llmb_launch changes equal launches differently",
                        hint=IMPURE,
                        code="hook-impure",
                        key="llmb_launch",
                    )
            except PluginError as error:
                if error.value == source:
                    yield author_fault(error)
            except LlmbError:  # of the launch, or settings without a default
                continue
