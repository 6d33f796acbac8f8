# SPDX-License-Identifier: Apache-2.0
"""Tries the cluster types of plugins as `plugins check` does: makes a cluster and renders a script, submits nothing."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from llmb.clusters.checks import preview_stamp
from llmb.clusters.guarded import create
from llmb.config import ClusterConfig
from llmb.config.cluster_type import ClusterType, required_fields
from llmb.errors import Fault, LlmbError, author_fault
from llmb.runs.launch import Launch, Program
from llmb.workload.gpus import CPU

_LAUNCH = Launch(
    name="check", nodes=1, ranks_per_node=1, time_limit=60, program=Program(argv=("true",)), gpu_type=CPU, start="once"
)


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
            cluster, stamp = create(kind, config), preview_stamp(_LAUNCH, config)
            if cluster.render(_LAUNCH, stamp) != cluster.render(_LAUNCH, stamp):
                message = f"render of cluster type {kind.name} gives different scripts for one launch"
                hint = "it may depend on its arguments alone: no time, random number or environment"
                yield Fault(place=kind.source, message=message, hint=hint, code="hook-impure", key="render")
        except LlmbError as error:
            yield author_fault(error, kind.source)
