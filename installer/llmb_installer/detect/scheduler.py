# SPDX-License-Identifier: Apache-2.0
"""Detects a Slurm cluster: partitions and their GPUs, the user's accounts, the nodes' architecture, pyxis."""

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from llmb.clusters.slurm.commands import Client
from llmb.clusters.slurm.partitions import Partition, partitions
from llmb.errors import LlmbError
from llmb_installer.detect.machine import gpu_type_of, own_name

COMMANDS = ("sbatch", "srun", "squeue", "sinfo", "scontrol", "scancel", "sacct", "sacctmgr")
_UNCONFIGURED = "configuration source"  # what Slurm's own commands print without a slurm.conf


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuKind:
    """GPUs of one GRES type in a partition; ``gpu_type`` is llmb's name for it, None where GRES has no type.

    ``per_node`` is the smallest number of GPUs on a node, ``nodes`` the number of nodes with such GPUs.
    """

    partition: str
    gres_type: str
    gpu_type: str | None
    per_node: int
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFound:
    """A node as scontrol shows it; ``architecture`` is None while it is down."""

    name: str
    architecture: str | None
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmFound:
    """A Slurm cluster as its user sees it; where it does not answer, ``fault`` is the reason and ``fix`` its fix.

    ``is_configured`` is False on a machine that has Slurm's packages and belongs to no cluster. ``accounts`` are the
    user's own, the default first; without ``accounting`` Slurm keeps none. ``commands`` are those of COMMANDS on PATH.
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

    @property
    def default_partition(self) -> str | None:
        """The partition of jobs that do not name one."""
        return next((name for name, partition in self.partitions.items() if partition.is_default), None)

    def gpu_kinds(self, partition: str | None = None) -> list[GpuKind]:
        """The kinds of GPUs in one or more partitions, separated by commas; in all partitions for None."""
        names = [*self.partitions] if partition is None else self._named(partition)
        return [kind for name in names if name in self.partitions for kind in _kinds(self.partitions[name])]

    def gpu_types_of(self, partition: str) -> list[str]:
        """llmb's names of the GPU types in ``partition``, by default Slurm's default partition."""
        return list(dict.fromkeys(kind.gpu_type for kind in self.gpu_kinds(partition) if kind.gpu_type is not None))

    def architecture_of(self, partition: str) -> str | None:
        """The architecture (x86_64) of the nodes of ``partition``, by default Slurm's default; None where unclear."""
        names = self._named(partition)
        found = {node.architecture for node in self.nodes if {*names} & {*node.partitions} and node.architecture}
        return found.pop() if len(found) == 1 else None

    def _named(self, partition: str) -> list[str]:
        return partition.split(",") if partition else [self.default_partition or ""]


def _kinds(partition: Partition) -> list[GpuKind]:
    counts: dict[str, list[tuple[int, int]]] = {}
    for nodes in partition.nodes:
        for gres_type, per_node in nodes.gpus.items():
            counts.setdefault(gres_type, []).append((per_node, nodes.count))
    return [
        GpuKind(
            partition=partition.name,
            gres_type=gres_type,
            gpu_type=(gpu_type_of(gres_type) or own_name(gres_type)) if gres_type else None,
            per_node=min(per_node for per_node, _ in found),
            nodes=sum(count for _, count in found),
        )
        for gres_type, found in counts.items()
    ]


def find_slurm(environ: Mapping[str, str] | None = None, *, nodes_only: bool = False) -> SlurmFound:
    """Ask the Slurm whose commands are on PATH, by seven calls; by two for ``nodes_only``."""
    client = Client(environ=os.environ if environ is None else environ)
    commands = tuple(name for name in COMMANDS if shutil.which(name, path=client.environ.get("PATH")) is not None)
    try:
        found = partitions(client)
        nodes = read_nodes(client.ask(["scontrol", "--oneliner", "show", "node"]))
        if nodes_only:
            return SlurmFound(commands=commands, partitions=found, nodes=tuple(nodes))
        about = client.ask(["scontrol", "show", "config"])
    except LlmbError as error:
        is_configured = _UNCONFIGURED not in error.message
        return SlurmFound(commands=commands, fault=error.message, fix=error.hint, is_configured=is_configured)
    accounts = _accounts(client)
    return SlurmFound(
        cluster=_setting(about, "ClusterName"),
        version=_setting(about, "SLURM_VERSION"),
        partitions=found,
        nodes=tuple(nodes),
        commands=commands,
        accounting=accounts is not None,
        accounts=accounts or (),
        pyxis="--container-image" in _printed(client, "srun", "--help"),
        mpi=mpi_kinds(_printed(client, "srun", "--mpi=list")),
    )


def read_nodes(text: str) -> Iterable[NodeFound]:
    """The nodes in the output of ``scontrol --oneliner show node``."""
    for line in text.splitlines():
        fields = dict(re.findall(r"(?:^|\s)(NodeName|Arch|Partitions)=(\S*)", line))
        if "NodeName" in fields:
            names = tuple(name for name in fields.get("Partitions", "").split(",") if name)
            machine = fields.get("Arch") or None
            yield NodeFound(name=fields["NodeName"], architecture=machine, partitions=names)


def read_accounts(associations: str, default: str) -> tuple[str, ...]:
    """The accounts in the output of sacctmgr, ``default`` first; without root's where there are others."""
    names = dict.fromkeys(line.strip() for line in associations.splitlines() if line.strip())
    first = default.strip().partition("\n")[0]
    ordered = [name for name in (first, *names) if name in names]
    return tuple(name for name in dict.fromkeys(ordered) if name != "root" or len(names) == 1)


def mpi_kinds(text: str) -> tuple[str, ...]:
    """The plugins in the output of ``srun --mpi=list``."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if re.fullmatch(r"[a-z][a-z0-9_]*", line) and line != "none")


def _accounts(client: Client) -> tuple[str, ...] | None:
    """The accounts of this user; None without accounting, or where it does not answer."""
    user = client.environment().get("USER", "")
    ask = ["sacctmgr", "--noheader", "--parsable2", "show"]
    try:
        own = client.ask([*ask, "associations", f"user={user}", "format=account"])
        default = client.ask([*ask, "user", user, "format=defaultaccount"])
    except LlmbError:
        return None
    return read_accounts(own, default)


def _setting(config: str, name: str) -> str | None:
    match = re.search(rf"^{name}\s*=\s*(\S+)", config, re.MULTILINE)
    return match[1] if match else None


def _printed(client: Client, *argv: str) -> str:
    try:
        done = client.run(argv, timeout=client.ask_seconds)
    except LlmbError:
        return ""
    return done.out + done.err
