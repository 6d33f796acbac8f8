# SPDX-License-Identifier: Apache-2.0
"""Partitions with their nodes and GPUs, from one call of sinfo. Finds launches that fit, waits for
unknown nodes.
"""

import re
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from llmb.builtin.slurm import sbatch_options
from llmb.builtin.slurm.commands import Client
from llmb.contract.launch import Launch
from llmb.contract.sbatch import SlurmConfig, seconds
from llmb.contract.schema import ClusterConfig
from llmb.core.names import suggest
from llmb.core.node_lists import expand
from llmb.core.scan import plain
from llmb.core.times import clock
from llmb.errors import Fault, LlmbError

_FORMAT = "%P|%a|%l|%s|%D|%T|%G|%N|%E"
# In service, or soon by itself.
_IN_SERVICE = frozenset(
    {
        "allocated",
        "blocked",
        "completing",
        "idle",
        "maint",
        "mixed",
        "planned",
        "powered_down",
        "powering_down",
        "powering_up",
        "reserved",
        "reboot_issued",
        "reboot_requested",
    }
)
_GPUS = re.compile(r"(?:^|,)gpu(?::([^:,()]+))?:(\d+)(?=[,(]|$)")
_WHERE = "in the slurm section of cluster_config.yaml"
_PARTITION = "'partition' in cluster_config.yaml, or --partition NAME"
_WORDS = {"drain": "drained", "inact": "inactive"}
_ANYWAY = "with --force the job waits for the nodes"
_LIKENESS = 0.75  # of partitions: cpu is not meant for gpu
_WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Nodes of one kind and state: how many, their names, GPUs of each by type, and why they are
    out of service.
    """

    count: int
    names: str
    state: str
    gpus: dict[str, int]
    reason: str

    @property
    def in_service(self) -> bool:
        """Return True if jobs can start on them: now, when other jobs end, or when they have
        registered.
        """
        # *: not answering
        return self.is_unknown or (self._base in _IN_SERVICE and not self.state.endswith("*"))

    @property
    def is_unknown(self) -> bool:
        """Return True if the controller does not know their state: they have not registered since
        it started.
        """
        return self._base == "unknown"

    @property
    def _base(self) -> str:
        return self.state.rstrip("*~#!%$@^+-")

    def gpus_of(self, wanted: str | None) -> int:
        """The GPUs of the type ``wanted`` on each node, of all types where None."""
        return sum(self.gpus.values()) if wanted is None else self.gpus.get(wanted, 0)


@dataclass(slots=True, kw_only=True)
class Partition:
    """A partition. ``time_limit`` in seconds and ``max_nodes`` of one job, None without a limit."""

    name: str
    is_default: bool
    available: str
    time_limit: int | None
    max_nodes: int | None
    nodes: list[Nodes]


def partitions(client: Client) -> dict[str, Partition]:
    """Every partition by its name. Raises LlmbError, SilentError."""
    return read(client.ask(["sinfo", "--noheader", "--all", f"--format={_FORMAT}"]))


def read(text: str) -> dict[str, Partition]:
    """The partitions in sinfo's answer. Raises LlmbError."""
    by_name: dict[str, Partition] = {}
    for line in text.splitlines():
        fields = line.split("|", 8)
        if len(fields) != 9:
            continue
        shown, available, limit, size, count, state, gres, names, reason = fields
        name, most = shown.rstrip("*"), size.rpartition("-")[2]
        partition = by_name.setdefault(
            name,
            Partition(
                name=name,
                is_default=shown.endswith("*"),
                available=available,
                time_limit=seconds(limit),
                max_nodes=int(most) if most.isdecimal() else None,
                nodes=[],
            ),
        )
        gpus: dict[str, int] = {}
        try:
            for kind, number in _GPUS.findall(gres):
                gpus[kind] = gpus.get(kind, 0) + int(number)
            nodes = Nodes(count=int(count), names=names, state=state, gpus=gpus, reason=reason)
        except ValueError as error:
            message = f"sinfo printed a line that llmb cannot read: {plain(line)}"
            hint = "compare with sinfo --all; a wrapper of the site may have changed it"
            raise LlmbError(message, hint=hint, code="sinfo-unreadable", value=line) from error
        partition.nodes.append(nodes)
    return by_name


def memory_limits(client: Client) -> dict[str, int]:
    """Return the megabytes that a job gets of a node, by partition, if a node has more.

    Slurm takes a job that asks for all memory of such a node, and never starts it, unless it
    enforces the limits of partitions at submission. Raises LlmbError.
    """
    default = _limit(client.ask_once(["scontrol", "show", "config"]))
    limits = {
        match[1]: limit
        for line in client.ask(["scontrol", "--oneliner", "show", "partition"]).splitlines()
        if (match := re.match(r"PartitionName=(\S+)", line)) is not None
        and (limit := _limit(line) or default) is not None
    }
    if not limits:
        return {}
    memory: dict[str, int] = {}
    for line in client.ask(["sinfo", "--noheader", "--all", "--format=%R|%m"]).splitlines():
        name, _, size = line.partition("|")
        if match := re.match(r"\d+", size):
            memory[name] = max(memory.get(name, 0), int(match[0]))
    return {name: limit for name, limit in limits.items() if limit < memory.get(name, 0)}


def _limit(text: str) -> int | None:
    """The MaxMemPerNode in an answer of scontrol's, in megabytes. None without one."""
    match = re.search(r"\bMaxMemPerNode\s*=\s*(\d+)", text)
    return int(match[1]) if match is not None else None


@dataclass(slots=True, kw_only=True)
class NodeWait:
    """Waits for nodes to register, as after a restart of Slurm's controller."""

    #: Seconds that one command may still wait.
    left: float = _WAIT_SECONDS
    #: Seconds between two questions to Slurm.
    pause: float = 1.0
    #: Prints that it waits.
    announce: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True)

    def wait(
        self, client: Client, by_name: Mapping[str, Partition], names: Collection[str]
    ) -> Mapping[str, Partition]:
        """The partitions once Slurm knows all nodes of ``names``, or when no time is left. Raises
        LlmbError.
        """
        missing = unknown_nodes(by_name, names)
        if missing and self.left > 0:
            self.announce(
                f"note: waiting up to {self.left:.0f} s until Slurm knows the state of nodes"
                f" {missing}"
            )
        while missing and self.left > 0:
            start = time.monotonic()
            time.sleep(min(self.pause, self.left))
            by_name = partitions(client)
            missing = unknown_nodes(by_name, names)
            self.left -= time.monotonic() - start
        return by_name


def unknown_nodes(by_name: Mapping[str, Partition], names: Collection[str]) -> str:
    """The nodes of unknown state in the partitions ``names``, as Slurm writes them, empty where
    there are none.
    """
    shown = [
        nodes.names
        for name in names
        if name in by_name
        for nodes in by_name[name].nodes
        if nodes.is_unknown
    ]
    return ",".join(dict.fromkeys(shown))


def out_of_service(by_name: Mapping[str, Partition]) -> dict[str, str]:
    """Return each node that takes no jobs, with its state in words."""
    return {
        name: _state_in_words(nodes)
        for partition in by_name.values()
        for nodes in partition.nodes
        if not nodes.in_service
        for name in expand(nodes.names)
    }


def unknown_fault(nodes: str) -> Fault:
    """Return what to report when the nodes did not register in time."""
    return Fault(
        message=f"Slurm does not know the state of nodes {nodes} yet",
        hint=(
            "its controller may have just started: try again later; --force submits without"
            " this check"
        ),
        code="nodes-unknown",
        value=nodes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The request of a launch on each node: GPUs (None: by no count) of a type (None: any).

    ``time`` in seconds.
    """

    gpu_type: str | None
    gpus: int | None
    time: int | None
    #: A GPU job that asks for no GPUs at all, though nobody has configured that.
    is_open: bool
    #: A CPU job.
    on_cpus: bool


def faults_of(
    launch: Launch,
    config: ClusterConfig,
    by_name: Mapping[str, Partition],
    limits: Mapping[str, int] = MappingProxyType({}),
) -> Iterator[Fault]:
    """Return why ``launch`` would not start. Where it names several partitions, only if it fits
    none of them.

    ``limits`` are the ``memory_limits`` of the partitions.
    """
    options = {
        "mem": 0,
        "time": clock(launch.time_limit),
        **sbatch_options.resources(launch, config),
    }
    requested = sbatch_options.with_args(options, launch, config)
    gpu_type, gpus = sbatch_options.gpus_asked(requested)
    is_gpu_job = sbatch_options.kind_of(launch, config) == "gpu"
    if is_gpu_job and gpus is not None and launch.ranks_per_node > gpus:
        yield Fault(
            message=(
                f"{launch.name} asks for {gpus} GPUs on each node and has {launch.ranks_per_node}"
                " ranks there"
            ),
            hint=f"set 'gres' {_WHERE}",
            code="too-few-gpus-asked",
        )
    named = requested.get("partition")
    names = (
        named.split(",")
        if named is not None
        else [partition.name for partition in by_name.values() if partition.is_default]
    )
    if not names:
        message = "no partition is named, and this Slurm has no default"
        yield Fault(message=message, hint=f"set 'partition' {_WHERE}", code="partition-missing")
    counted = any("gres" in name or "gpus" in name for name in {**requested, **launch.slurm_args})
    node_request = _Asked(
        gpu_type=gpu_type,
        gpus=gpus,
        time=seconds(requested.get("time") or ""),
        is_open=is_gpu_job and not counted and (config.slurm or SlurmConfig()).leaves_gpus_open,
        on_cpus=not is_gpu_job,
    )
    has_limits = limits if requested.get("mem") == "0" else {}
    tried = [
        [
            *_partition_faults(name, launch, node_request, by_name),
            *_memory_faults(name, launch, has_limits),
        ]
        for name in names
    ]
    if all(tried):
        yield from (fault for faults in tried for fault in faults)


def _partition_faults(
    name: str, launch: Launch, requested: _Asked, partitions: Mapping[str, Partition]
) -> Iterator[Fault]:
    partition = partitions.get(name)
    if partition is None:
        yield Fault(
            message=f"this Slurm has no partition '{name}'",
            hint=f"{suggest(name, list(partitions), likeness=_LIKENESS)}  {_PARTITION}",
            code="partition-unknown",
            value=name,
        )
        return
    if partition.available != "up":
        yield Fault(
            message=f"partition {name} is {_WORDS.get(partition.available, partition.available)}",
            hint=f"choose another: {_PARTITION}; sinfo lists them",
            code="partition-down",
            value=name,
        )
    limit = partition.time_limit
    if limit is not None and requested.time is not None and requested.time > limit:
        instead = " instead of --slurm-arg time" if "time" in launch.slurm_args else ""
        yield Fault(
            message=(
                f"{launch.name} asks for {clock(requested.time)}, and partition {name} allows"
                f" {clock(limit)}"
            ),
            hint=f"--time-limit {clock(limit)}{instead}, or another partition",
            code="time-limit-too-long",
            value=requested.time,
        )
    if partition.max_nodes is not None and launch.nodes > partition.max_nodes:
        yield Fault(
            message=(
                f"{launch.name} needs {launch.nodes} nodes, and partition {name} gives a job"
                f" {partition.max_nodes}"
            ),
            hint="choose a smaller scale or another partition",
            code="too-many-nodes",
            value=launch.nodes,
        )
    yield from _node_faults(launch, partition, requested)


def _memory_faults(name: str, launch: Launch, limits: Mapping[str, int]) -> Iterator[Fault]:
    if (limit := limits.get(name)) is not None:
        yield Fault(
            message=(
                f"{launch.name} asks for all memory of a node, and partition {name} gives a job"
                f" {limit:,} MB (MaxMemPerNode): it would never start"
            ),
            hint=(
                f"set slurm.args: {{mem: {limit}M}} in cluster_config.yaml, or --slurm-arg"
                f" mem={limit}M"
            ),
            code="memory-limit",
            value=limit,
        )


def _node_faults(launch: Launch, partition: Partition, requested: _Asked) -> Iterator[Fault]:
    most_gpus = max((nodes.gpus_of(None) for nodes in partition.nodes), default=0)
    if most_gpus and requested.is_open:
        yield Fault(
            message=(
                f"{launch.name} asks for no GPUs, and each node of partition {partition.name} has"
                f" {most_gpus}"
            ),
            hint=f"set 'gres: {most_gpus}' {_WHERE}, under gpu; null if you mean none",
            code="no-gpus-asked",
        )
    kind = f"{requested.gpu_type} " if requested.gpu_type else ""
    with_gpus = f" with {requested.gpus} {kind}GPUs" if requested.gpus else ""
    fitting = [
        nodes
        for nodes in partition.nodes
        if nodes.gpus_of(requested.gpu_type) >= (requested.gpus or 0)
    ]
    total = sum(nodes.count for nodes in fitting)
    needs = (
        f"{launch.name} needs {_nodes(launch.nodes)}{with_gpus}, and partition {partition.name} has"
    )
    if total < launch.nodes:
        hint = (
            "choose a smaller scale, or set 'gres' and 'partition' to what sinfo -o '%P %D %G'"
            " lists"
        )
        if requested.on_cpus and total:
            ranks = launch.nodes * launch.ranks_per_node
            hint = (
                f"choose a smaller scale, or --gpus-per-node {ranks} to run all of its ranks on one"
                " node"
            )
        if "nodelist" in launch.slurm_args and total:
            hint = f"name at most {_nodes(total)} in --nodelist"
        yield Fault(
            message=f"{needs} {total or 'none'}",
            hint=hint,
            code="too-few-nodes",
            value=launch.nodes,
        )
        return
    out = [nodes for nodes in fitting if not nodes.in_service]
    in_service = total - sum(nodes.count for nodes in out)
    if in_service < launch.nodes:
        reasons = "; ".join(f"{nodes.names} {_state_in_words(nodes)}" for nodes in out)
        fix = (
            f"choose a smaller scale, of at most {_nodes(in_service)}"
            if in_service
            else "choose another partition"
        )
        message = f"{needs} {total}, of which out of service: {reasons}"
        yield Fault(
            message=message, hint=f"{fix}; {_ANYWAY}", code="nodes-out-of-service", value=in_service
        )


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _state_in_words(nodes: Nodes) -> str:
    state = nodes.state.removesuffix("*") + (
        " and not answering" if nodes.state.endswith("*") else ""
    )
    return state if nodes.reason in ("none", "") else f"{state} ({nodes.reason})"
