# SPDX-License-Identifier: Apache-2.0
"""What Slurm says of its cluster: partitions and their GPUs, the user's accounts, the nodes' architecture, pyxis."""

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from llmb.clusters.slurm.commands import Client
from llmb.clusters.slurm.partitions import Partition, partitions
from llmb.errors import LlmbError
from llmb_installer.detect.gpu_names import gpu_type_of, own_name

COMMANDS = ("sbatch", "srun", "squeue", "sinfo", "scontrol", "scancel", "sacct", "sacctmgr")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuKind:
    """GPUs of one GRES type in a partition: ``gpu_type`` is llmb's name for it, None where GRES names no type.

    ``per_node``: the GPUs of a node, of the fewest where they differ; ``nodes``: how many have them.
    """

    partition: str
    gres_type: str
    gpu_type: str | None
    per_node: int
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFound:
    """A node as scontrol shows it; ``architecture`` None while it is down."""

    name: str
    architecture: str | None
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmFound:
    """A cluster of Slurm's as its user sees it; ``fault`` says why it could not be asked, and its ``fix``.

    ``accounting``: whether accounts are kept; ``accounts``: the user's own, the default one first; ``commands``: those
    of COMMANDS that are here.
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

    @property
    def default_partition(self) -> str | None:
        """The partition of jobs that name none."""
        return next((name for name, partition in self.partitions.items() if partition.is_default), None)

    @property
    def has_gres(self) -> bool:
        """Whether any node has GPUs that Slurm counts."""
        return bool(self.gpu_kinds())

    def gpu_kinds(self, partition: str | None = None) -> list[GpuKind]:
        """The kinds of GPUs in a partition, or in several joined by commas; None for those of all."""
        names = [*self.partitions] if partition is None else self._named(partition)
        return [kind for name in names if name in self.partitions for kind in _kinds(self.partitions[name])]

    def gpu_types_of(self, partition: str) -> list[str]:
        """llmb's names of the GPU types in a partition, the default one where it is empty."""
        return list(dict.fromkeys(kind.gpu_type for kind in self.gpu_kinds(partition) if kind.gpu_type is not None))

    def architecture_of(self, partition: str) -> str | None:
        """The machine type (x86_64) of a partition's nodes, the default one's where it is empty; None if unclear."""
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


def find_slurm(environ: Mapping[str, str] | None = None, *, nodes_alone: bool = False) -> SlurmFound:
    """Ask the Slurm whose commands are on PATH: seven calls, for partitions and nodes alone two."""
    client = Client(environ=os.environ if environ is None else environ)
    commands = tuple(name for name in COMMANDS if shutil.which(name, path=client.environ.get("PATH")) is not None)
    try:
        found = partitions(client)
        nodes = read_nodes(client.ask(["scontrol", "--oneliner", "show", "node"]))
        if nodes_alone:
            return SlurmFound(commands=commands, partitions=found, nodes=tuple(nodes))
        about = client.ask(["scontrol", "show", "config"])
    except LlmbError as error:
        return SlurmFound(commands=commands, fault=error.message, fix=error.hint)
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
    """The nodes in the answer of ``scontrol --oneliner show node``."""
    for line in text.splitlines():
        fields = dict(re.findall(r"(?:^|\s)(NodeName|Arch|Partitions)=(\S*)", line))
        if "NodeName" in fields:
            names = tuple(name for name in fields.get("Partitions", "").split(",") if name)
            machine = fields.get("Arch") or None
            yield NodeFound(name=fields["NodeName"], architecture=machine, partitions=names)


def read_accounts(associations: str, default: str) -> tuple[str, ...]:
    """The accounts in sacctmgr's answers, ``default`` first; root's own is none for jobs where there are others."""
    names = dict.fromkeys(line.strip() for line in associations.splitlines() if line.strip())
    first = default.strip().partition("\n")[0]
    ordered = [name for name in (first, *names) if name in names]
    return tuple(name for name in dict.fromkeys(ordered) if name != "root" or len(names) == 1)


def mpi_kinds(text: str) -> tuple[str, ...]:
    """The plugins in the answer of ``srun --mpi=list``."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if re.fullmatch(r"[a-z][a-z0-9_]*", line) and line != "none")


def _accounts(client: Client) -> tuple[str, ...] | None:
    """The accounts of this user; None where accounting is not kept, or does not answer."""
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
