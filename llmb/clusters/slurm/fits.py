# SPDX-License-Identifier: Apache-2.0
"""Whether a launch fits a partition: that it exists and is up, its limits, its nodes in service, their GPUs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from llmb.clusters.slurm import request
from llmb.clusters.slurm.partitions import Nodes, Partition
from llmb.config import ClusterConfig
from llmb.config.slurm import SlurmConfig, seconds
from llmb.errors import Fault
from llmb.runs.launch import Launch
from llmb.text.names import suggest
from llmb.text.times import clock

_WHERE = "in the slurm section of cluster_config.yaml"
_PARTITION = "'partition' in cluster_config.yaml, or --slurm-arg partition=NAME"
_WORDS = {"drain": "drained", "inact": "inactive"}
_ANYWAY = "--no-preflight submits it without this check, to wait for them"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What a launch asks of each node: GPUs (None: by no count) of a type (None: any); ``time`` in seconds.

    ``is_open``: a GPU job that asks for no GPUs at all, though nobody has configured that.
    """

    gpu_type: str | None
    gpus: int | None
    time: int | None
    is_open: bool


def faults_of(launch: Launch, config: ClusterConfig, found: Mapping[str, Partition]) -> Iterator[Fault]:
    """Why ``launch`` would not start; where it names several partitions, only if it fits none of them."""
    options = {"time": clock(launch.time_limit), **request.resources(launch, config)}
    asked = request.with_args(options, launch, config)
    gpu_type, gpus = request.gpus_asked(asked)
    is_gpu_job = request.kind_of(launch, config) == "gpu"
    if is_gpu_job and gpus is not None and launch.ranks_per_node > gpus:
        yield Fault(
            message=f"{launch.name} asks for {gpus} GPUs on each node and has {launch.ranks_per_node} ranks there",
            hint=f"set 'gres' {_WHERE}",
            code="too-few-gpus-asked",
        )
    named = asked.get("partition")
    names = named.split(",") if named is not None else [one.name for one in found.values() if one.is_default]
    if not names:
        message = "no partition is named, and this Slurm has no default"
        yield Fault(message=message, hint=f"set 'partition' {_WHERE}", code="partition-missing")
    counted = any("gres" in name or "gpus" in name for name in {**asked, **launch.slurm_args})
    wanted = _Asked(
        gpu_type=gpu_type,
        gpus=gpus,
        time=seconds(asked.get("time") or ""),
        is_open=is_gpu_job and not counted and (config.slurm or SlurmConfig()).leaves_gpus_open,
    )
    tried = [list(_partition_faults(name, launch, wanted, found)) for name in names]
    if all(tried):
        yield from (fault for faults in tried for fault in faults)


def _partition_faults(name: str, launch: Launch, asked: _Asked, found: Mapping[str, Partition]) -> Iterator[Fault]:
    partition = found.get(name)
    if partition is None:
        hint = f"{suggest(name, list(found))}  {_PARTITION}"
        yield Fault(message=f"this Slurm has no partition '{name}'", hint=hint, code="partition-unknown", value=name)
        return
    if partition.available != "up":
        yield Fault(
            message=f"partition {name} is {_WORDS.get(partition.available, partition.available)}",
            hint=f"name another: {_PARTITION}; sinfo lists them",
            code="partition-down",
            value=name,
        )
    limit = partition.time_limit
    if limit is not None and asked.time is not None and asked.time > limit:
        instead = " instead of --slurm-arg time" if "time" in launch.slurm_args else ""
        yield Fault(
            message=f"{launch.name} asks for {clock(asked.time)}, and partition {name} allows {clock(limit)}",
            hint=f"--time-limit {clock(limit)}{instead}, or another partition",
            code="time-limit-too-long",
            value=asked.time,
        )
    if partition.max_nodes is not None and launch.nodes > partition.max_nodes:
        yield Fault(
            message=f"{launch.name} needs {launch.nodes} nodes, and partition {name} gives a job {partition.max_nodes}",
            hint="choose a smaller scale or another partition",
            code="too-many-nodes",
            value=launch.nodes,
        )
    yield from _node_faults(launch, partition, asked)


def _node_faults(launch: Launch, partition: Partition, asked: _Asked) -> Iterator[Fault]:
    most = max((nodes.gpus_of(None) for nodes in partition.nodes), default=0)
    if most and asked.is_open:
        yield Fault(
            message=f"{launch.name} asks for no GPUs, and each node of partition {partition.name} has {most}",
            hint=f"set 'gres: {most}' {_WHERE}, under gpu; null if you mean none",
            code="no-gpus-asked",
        )
    kind = f"{asked.gpu_type} " if asked.gpu_type else ""
    with_gpus = f" with {asked.gpus} {kind}GPUs" if asked.gpus else ""
    fitting = [nodes for nodes in partition.nodes if nodes.gpus_of(asked.gpu_type) >= (asked.gpus or 0)]
    total = sum(nodes.count for nodes in fitting)
    needs = f"{launch.name} needs {_nodes(launch.nodes)}{with_gpus}, and partition {partition.name} has"
    if total < launch.nodes:
        hint = "choose a smaller scale, or set 'gres' and 'partition' to what sinfo -o '%P %D %G' lists"
        yield Fault(message=f"{needs} {total or 'none'}", hint=hint, code="too-few-nodes", value=launch.nodes)
        return
    out = [nodes for nodes in fitting if not nodes.in_service]
    left = total - sum(nodes.count for nodes in out)
    if left < launch.nodes:
        why = "; ".join(f"{nodes.names} {_why(nodes)}" for nodes in out)
        fix = f"choose a smaller scale, of at most {_nodes(left)}" if left else "name another partition"
        message = f"{needs} {total}, of which out of service: {why}"
        yield Fault(message=message, hint=f"{fix}; {_ANYWAY}", code="nodes-out-of-service", value=left)


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _why(nodes: Nodes) -> str:
    state = nodes.state.removesuffix("*") + (" and not answering" if nodes.state.endswith("*") else "")
    return state if nodes.reason in ("none", "") else f"{state} ({nodes.reason})"
