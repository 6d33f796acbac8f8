# SPDX-License-Identifier: Apache-2.0
"""Detects a Slurm cluster: partitions, GPUs, accounts, architecture of nodes, pyxis."""

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import TypeVar

from llmb.builtin.slurm.commands import DENIED, Client
from llmb.builtin.slurm.partitions import Partition, partitions
from llmb.contract.gpus import known_types
from llmb.core.values import dataclass
from llmb.errors import LlmbError
from llmb_installer.detect.machine import find_gpu_type, invent_gpu_name

T = TypeVar("T")
COMMANDS = ("sbatch", "srun", "squeue", "sinfo", "scontrol", "scancel", "sacct", "sacctmgr")
_UNCONFIGURED = "configuration source"  # what Slurm's own commands print without a slurm.conf


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuKind:
    """GPUs of one GRES type in a partition."""

    partition: str
    gres_type: str
    #: llmb's name for the type, None if GRES has none.
    gpu_type: str | None
    #: The GPUs of a node that jobs ask for.
    per_node: int
    #: The nodes with such GPUs.
    nodes: int
    #: The nodes by their number of such GPUs, the largest number first.
    counts: Mapping[int, int] = field(default_factory=dict)

    @property
    def unused(self) -> int:
        """The nodes that have too few GPUs for jobs."""
        return sum(nodes for count, nodes in self.counts.items() if count < self.per_node)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFound:
    """A node as scontrol shows it. ``architecture`` is None while it is down."""

    name: str
    architecture: str | None
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmFound:
    """A Slurm cluster as its user sees it.

    If it does not answer, ``fault`` is the reason and ``fix`` its fix. ``is_configured`` is False
    on a machine that has Slurm's packages and belongs to no cluster. ``accounts`` are the user's
    own, the default first. Without ``accounting`` Slurm keeps none. ``commands`` has each of
    COMMANDS on PATH.
    """

    cluster: str | None = None
    version: str | None = None
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    nodes: tuple[NodeFound, ...] = ()
    accounting: bool = False
    accounts: tuple[str, ...] = ()
    pyxis: bool = False
    mpi: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    fault: str = ""
    fix: str | None = None
    is_configured: bool = True
    #: Slurm does not show partitions or nodes to this user (PrivateData).
    is_hidden: bool = False

    @property
    def default_partition(self) -> str | None:
        """The partition of jobs that do not name one."""
        return next(
            (name for name, partition in self.partitions.items() if partition.is_default), None
        )

    def gpu_kinds(self, partition: str | None = None) -> list[GpuKind]:
        """The kinds of GPUs in one or more partitions, separated by commas.

        In all partitions for None.
        """
        names = [*self.partitions] if partition is None else self._named(partition)
        return [
            kind
            for name in names
            if name in self.partitions
            for kind in _kinds(self.partitions[name])
        ]

    def gpu_types_of(self, partition: str) -> list[str]:
        """llmb's names of the GPU types in ``partition``, by default Slurm's default partition."""
        return list(
            dict.fromkeys(
                kind.gpu_type for kind in self.gpu_kinds(partition) if kind.gpu_type is not None
            )
        )

    def architecture_of(self, partition: str) -> str | None:
        """The architecture (x86_64) of the nodes of ``partition``, by default Slurm's default.

        None if unclear.
        """
        names = self._named(partition)
        architectures = {
            node.architecture
            for node in self.nodes
            if {*names} & {*node.partitions} and node.architecture
        }
        return architectures.pop() if len(architectures) == 1 else None

    def _named(self, partition: str) -> list[str]:
        return partition.split(",") if partition else [self.default_partition or ""]


def _kinds(partition: Partition) -> list[GpuKind]:
    by_type: dict[str, Counter[int]] = {}
    for nodes in partition.nodes:
        for gres_type, per_node in nodes.gpus.items():
            by_type.setdefault(gres_type, Counter())[per_node] += nodes.count
    kinds = []
    for gres_type, counts in by_type.items():
        name = (find_gpu_type(gres_type) or invent_gpu_name(gres_type)) if gres_type else None
        kinds.append(
            GpuKind(
                partition=partition.name,
                gres_type=gres_type,
                gpu_type=name,
                per_node=_requested(name, counts),
                nodes=counts.total(),
                counts=dict(sorted(counts.items(), reverse=True)),
            )
        )
    return kinds


def _requested(gpu_type: str | None, counts: Counter[int]) -> int:
    """Return the GPUs of a node to ask for, with ``counts`` nodes by their number of GPUs.

    That is the type's usual number, with which the published figures were measured, if at least
    half of the nodes have it. Otherwise it is the smallest, which every node has.
    """
    known = known_types().get(gpu_type or "")
    if known is not None and 2 * counts[known.gpus_per_node] >= counts.total():
        return known.gpus_per_node
    return min(counts)


def find_slurm(
    environ: Mapping[str, str] | None = None,
    *,
    nodes_only: bool = False,
    cluster: str | None = None,
) -> SlurmFound:
    """Ask the Slurm whose commands are on PATH, by seven calls. By two for ``nodes_only``.

    ``cluster`` names another one than that of this machine.
    """
    client = Client(environ=os.environ if environ is None else environ, cluster=cluster)
    commands = tuple(
        name for name in COMMANDS if shutil.which(name, path=client.environ.get("PATH")) is not None
    )
    hidden: list[str] = []
    try:
        by_name = _unless_hidden(lambda: partitions(client), hidden) or {}
        show = ["scontrol", "--oneliner", "show", "node"]
        nodes = tuple(_unless_hidden(lambda: [*read_nodes(client.ask(show))], hidden) or ())
        if nodes_only:
            return SlurmFound(
                commands=commands, partitions=by_name, nodes=nodes, is_hidden=bool(hidden)
            )
        about = client.ask(["scontrol", "show", "config"])
    except LlmbError as error:
        is_configured = _UNCONFIGURED not in error.message
        return SlurmFound(
            commands=commands, fault=error.message, fix=error.hint, is_configured=is_configured
        )
    accounts = _accounts(client)
    return SlurmFound(
        cluster=_setting(about, "ClusterName"),
        version=_setting(about, "SLURM_VERSION"),
        partitions=by_name,
        nodes=nodes,
        is_hidden=bool(hidden),
        commands=commands,
        accounting=accounts is not None,
        accounts=accounts or (),
        pyxis="--container-image" in _printed(client, "srun", "--help"),
        mpi=read_mpi_kinds(_printed(client, "srun", "--mpi=list")),
    )


def _unless_hidden(ask: Callable[[], T], hidden: list[str]) -> T | None:
    """Return an answer of Slurm's, or None if it hides it from this user: ``hidden`` gets why."""
    try:
        return ask()
    except LlmbError as error:
        if error.code != DENIED:
            raise
        hidden.append(error.message)
        return None


def read_nodes(text: str) -> Iterable[NodeFound]:
    """The nodes in the output of ``scontrol --oneliner show node``."""
    for line in text.splitlines():
        fields = dict(re.findall(r"(?:^|\s)(NodeName|Arch|Partitions)=(\S*)", line))
        if "NodeName" in fields:
            names = tuple(name for name in fields.get("Partitions", "").split(",") if name)
            machine = fields.get("Arch") or None
            yield NodeFound(name=fields["NodeName"], architecture=machine, partitions=names)


def read_accounts(associations: str, default: str) -> tuple[str, ...]:
    """Return the accounts in sacctmgr's output, ``default`` first, root's only if alone."""
    names = dict.fromkeys(line.strip() for line in associations.splitlines() if line.strip())
    first = default.strip().partition("\n")[0]
    ordered = [name for name in (first, *names) if name in names]
    return tuple(name for name in dict.fromkeys(ordered) if name != "root" or len(names) == 1)


def read_mpi_kinds(text: str) -> tuple[str, ...]:
    """The plugins in the output of ``srun --mpi=list``."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(
        line for line in lines if re.fullmatch(r"[a-z][a-z0-9_]*", line) and line != "none"
    )


def _accounts(client: Client) -> tuple[str, ...] | None:
    """Return this user's accounts. None without accounting, or if it does not answer."""
    user = client.environment().get("USER", "")
    ask = ["sacctmgr", "--noheader", "--parsable2", "show"]
    of_cluster = [f"cluster={client.cluster}"] if client.cluster is not None else []
    try:
        associations = client.ask(
            [*ask, "associations", f"user={user}", *of_cluster, "format=account"]
        )
        default = client.ask([*ask, "user", user, "format=defaultaccount"])
    except LlmbError:
        return None
    return read_accounts(associations, default)


def _setting(config: str, name: str) -> str | None:
    match = re.search(rf"^{name}\s*=\s*(\S+)", config, re.MULTILINE)
    return match[1] if match else None


def _printed(client: Client, *argv: str) -> str:
    try:
        completed = client.run(argv, timeout=client.ask_seconds)
    except LlmbError:
        return ""
    return completed.out + completed.err
