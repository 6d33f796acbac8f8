# SPDX-License-Identifier: Apache-2.0
"""Whether a launch fits a partition: that it is there and up, its limits, its nodes in service, their GPUs."""

from collections.abc import Iterator, Mapping

from llmb.clusters.slurm.partitions import Nodes, Partition
from llmb.clusters.slurm.request import gpus_asked, kind_of, resources, with_args
from llmb.config import ClusterConfig
from llmb.config.slurm import SlurmConfig, seconds
from llmb.errors import Fault
from llmb.runs.launch import Launch
from llmb.text.names import suggest
from llmb.text.times import clock

_WHERE = "in the slurm section of cluster_config.yaml"
_PARTITION = "'partition' in cluster_config.yaml, or --slurm-arg partition=NAME"
_WORDS = {"drain": "drained", "inact": "inactive"}
_ANYWAY = "--no-preflight submits it all the same, to wait for them"


def faults_of(launch: Launch, config: ClusterConfig, found: Mapping[str, Partition]) -> Iterator[Fault]:
    """Why ``launch`` would not start; where it names several partitions, only if it fits none of them."""
    asked = with_args({"time": clock(launch.time_limit), **resources(launch, config)}, launch, config)
    named = asked.get("partition")
    wanted, per_node = gpus_asked(asked)
    if kind_of(launch, config) == "gpu" and per_node is not None and launch.ranks_per_node > per_node:
        message = f"{launch.name} asks for {per_node} GPUs on each node and has {launch.ranks_per_node} ranks there"
        yield Fault(message=message, hint=f"set 'gres' {_WHERE}")
    if named is None:
        names = [partition.name for partition in found.values() if partition.is_default]
        if not names:
            yield Fault(
                message="no partition is named, and this Slurm has no default", hint=f"set 'partition' {_WHERE}"
            )
    else:
        names = named.split(",")
    time = seconds(asked.get("time") or "")
    gpus, is_open = (wanted, per_node), _leaves_gpus_open(launch, config, asked)
    tried = [list(_faults_in(name, launch, time, gpus, found, open_gpus=is_open)) for name in names]
    if all(tried):
        yield from (fault for faults in tried for fault in faults)


def _leaves_gpus_open(launch: Launch, config: ClusterConfig, asked: Mapping[str, object]) -> bool:
    """Whether a GPU job asks for no GPUs in any way, and nobody has said that this is meant."""
    counted = any("gres" in name or "gpus" in name for name in {**asked, **launch.slurm_args})
    slurm = config.slurm or SlurmConfig()
    return kind_of(launch, config) == "gpu" and not counted and slurm.leaves_gpus_open


def _faults_in(
    name: str,
    launch: Launch,
    time: int | None,
    gpus: tuple[str | None, int | None],
    found: Mapping[str, Partition],
    *,
    open_gpus: bool,
) -> Iterator[Fault]:
    partition = found.get(name)
    if partition is None:
        yield Fault(message=f"this Slurm has no partition '{name}'", hint=f"{suggest(name, list(found))}  {_PARTITION}")
        return
    if partition.available != "up":
        hint = f"name another: {_PARTITION}; sinfo lists them"
        yield Fault(message=f"partition {name} is {_WORDS.get(partition.available, partition.available)}", hint=hint)
    if partition.time_limit is not None and time is not None and time > partition.time_limit:
        message = f"{launch.name} asks for {clock(time)}, and partition {name} allows {clock(partition.time_limit)}"
        instead = " in the place of --slurm-arg time" if "time" in launch.slurm_args else ""
        hint = f"--time-limit {clock(partition.time_limit)}{instead}, or another partition"
        yield Fault(message=message, hint=hint)
    if partition.max_nodes is not None and launch.nodes > partition.max_nodes:
        message = f"{launch.name} needs {launch.nodes} nodes, and partition {name} gives a job {partition.max_nodes}"
        yield Fault(message=message, hint="take a smaller scale or another partition")
    yield from _node_faults(launch, partition, *gpus, open_gpus=open_gpus)


def _node_faults(
    launch: Launch, partition: Partition, kind: str | None, per_node: int | None, *, open_gpus: bool
) -> Iterator[Fault]:
    most = max((nodes.gpus_of(None) for nodes in partition.nodes), default=0)
    if most and open_gpus:
        message = f"{launch.name} asks for no GPUs and would see none: nodes of partition {partition.name} have {most}"
        yield Fault(message=message, hint=f"set 'gres: {most}' {_WHERE}, under gpu; null where that is meant")
    with_gpus = f" with {per_node} {kind + ' ' if kind else ''}GPUs" if per_node else ""
    fitting = [nodes for nodes in partition.nodes if nodes.gpus_of(kind) >= (per_node or 0)]
    total = sum(nodes.count for nodes in fitting)
    label = (
        f"{launch.name} needs {_nodes(launch.nodes)}{with_gpus}, and partition {partition.name} has {total or 'none'}"
    )
    if total < launch.nodes:
        yield Fault(
            message=label, hint="take a smaller scale, or set 'gres' and 'partition' as sinfo -o '%P %D %G' says"
        )
        return
    out = [nodes for nodes in fitting if not nodes.in_service]
    left = total - sum(nodes.count for nodes in out)
    if left < launch.nodes:
        said = "; ".join(f"{nodes.names} {_why(nodes)}" for nodes in out)
        fix = f"take a smaller scale, of at most {_nodes(left)}" if left else "name another partition"
        yield Fault(message=f"{label}, of which out of service: {said}", hint=f"{fix}; {_ANYWAY}")


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _why(nodes: Nodes) -> str:
    state = nodes.state.removesuffix("*") + (" and not answering" if nodes.state.endswith("*") else "")
    return state if nodes.reason in ("none", "") else f"{state} ({nodes.reason})"
