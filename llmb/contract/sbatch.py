# SPDX-License-Identifier: Apache-2.0
"""The options of sbatch: the section ``slurm``, which cluster types that take them share."""

import re
from collections.abc import Collection, Mapping
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Self

from llmb.core import node_lists
from llmb.core.names import suggest
from llmb.core.values import dataclass
from llmb.errors import KeyFaultError

SECTION = "slurm"  # its key in cluster_config.yaml and in answers
SLURM_OPTIONS = (
    *("account", "partition", "qos", "gres", "gpus_per_node", "reservation"),
    *("nodelist", "exclude", "constraint", "nice", "segment"),
)
NODE_OPTIONS = ("nodelist", "exclude")  # lists of nodes by name
# Those that commands and job lists have as options and keys of their own.
OWN_OPTIONS = (
    "partition",
    "account",
    "qos",
    "reservation",
    "nodelist",
    "exclude",
    "nice",
    "segment",
)

NO_MPI = "none"  # for srun --mpi: newer releases accept it but do not list it
PMIX = "pmix"  # the value that NVIDIA's launchers give srun --mpi
_LIMIT = "write 'HH:MM:SS', or minutes; without it each job has the limit of its workload"

# keys of slurm itself, not of slurm.gpu and slurm.cpu
_TOP_LEVEL = ("args", "clusters", "container", "container-writable", "mpi")


_KEYS = ("clusters", "container", "container_writable", "mpi", "gpu", "cpu", "args")
# Variables that select a cluster for Slurm's own commands, that of sbatch alone first.
CLUSTER_VARIABLES = ("SBATCH_CLUSTERS", "SLURM_CLUSTERS")


def is_one_cluster(name: str) -> bool:
    """Return True if ``name`` may name one cluster: not several, and not ``all``."""
    return name.lower() != "all" and re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, re.ASCII) is not None


def long_name(key: str) -> str:
    """The name of an sbatch option as Slurm spells it: ``--gpus_per_node`` is ``gpus-per-node``."""
    return key.strip("-").replace("_", "-")


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    """The table of sbatch's options, read only where an option is checked."""
    from llmb.core import yamlfile

    table: dict[str, Any] = yamlfile.load_packaged(
        Path(__file__).with_name("sbatch_options.yaml")
    ).data
    return table


def hint_for_key(key: str, keys: Collection[str]) -> str:
    """The hint for ``key``, which is not one of ``keys``: where it belongs, or the nearest key."""
    name, table = long_name(key), _table()
    key_name = name.replace("-", "_")
    if key_name in keys:
        return f"write {key_name}"
    if name in _TOP_LEVEL:
        return f"set it for all jobs: slurm: {{{name}: ...}}"
    if name in table["further"]:
        return f"pass it to sbatch: slurm: {{args: {{{name}: ...}}}}"
    known: str | None = {**table["fixed"], **table["elsewhere"]}.get(name)
    return known or suggest(key, keys)


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """The sbatch options for one kind of job. Null unsets the common option."""

    given: dict[str, str | int | None] = field(default_factory=dict)

    @classmethod
    def parse(cls, value: Any) -> Self:
        """Read a mapping of option names to values. Raises ValueError."""
        if not isinstance(value, dict):
            raise ValueError(f"must be a mapping of {', '.join(SLURM_OPTIONS)}")
        for key, item in value.items():
            if key not in SLURM_OPTIONS:
                hint = hint_for_key(str(key), SLURM_OPTIONS)
                raise KeyFaultError(
                    f"'{key}' is not a key here", key, hint=hint, code="key-unknown", value=key
                )
            if not (item is None or type(item) in (str, int)):
                raise KeyFaultError(
                    f"must be text, a number or null, not {item!r}", key, code="value-type"
                )
        check_node_lists(value)
        return cls(dict(value))

    def unparse(self) -> dict[str, str | int | None]:
        """The mapping that ``parse`` reads."""
        return self.given


def gpu_count(gres: bool | str | int | None) -> int | None:
    """Return the number of GPUs in ``8``, ``h100:8`` or ``gpu:h100:8``, None without a number."""
    match = re.fullmatch(r"(?:.*:)?(\d+)", str(gres))
    return int(match[1]) if match is not None else None


def check_slurm_args(args: Mapping[str, object], *path: str) -> None:
    """Raise KeyFaultError, at ``path`` and the option's name, for an option that llmb sets
    itself.
    """
    for key in args:
        name = long_name(key)
        if not re.fullmatch(r"[a-z][a-z0-9-]+", name):
            raise KeyFaultError(
                f"'{key}' is not the name of an option",
                *path,
                key,
                hint="write its long name, as in 'qos'",
                code="key-invalid",
                value=key,
            )
        # With an option of pyxis, sbatch would start the batch script itself in a container.
        if name in _table()["fixed"] or name.removeprefix("no-").startswith("container-"):
            message, hint = f"--{name} is set by llmb", hint_for_key(name, _TOP_LEVEL)
            raise KeyFaultError(message, *path, key, hint=hint, code="key-reserved", value=name)


def check_node_lists(options: Mapping[str, object], *path: str) -> None:
    """Raise KeyFaultError, at ``path`` and the option's name, for nodes with an open bracket.

    Slurm would read ``n[1-`` in its own way, or refuse it when llmb has recorded the runs.
    """
    for key, value in options.items():
        is_of_nodes = long_name(str(key)) in NODE_OPTIONS and isinstance(value, str)
        if is_of_nodes and not node_lists.has_brackets_closed(str(value)):
            raise KeyFaultError(
                f"'{value}' is not a list of nodes", *path, key, hint=node_lists.HINT, value=value
            )


def seconds(limit: str) -> int | None:
    """A time limit in seconds, in any form of Slurm: ``30``, ``30:00``, ``2:00:00``, ``1-12``,
    ``1-12:30:00``.

    None for an unlimited time and for other forms.
    """
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", limit, re.ASCII)
    if match is None:
        return None
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None or len(numbers) == 3:  # hours come first
        hours, minutes, last = [*numbers, 0, 0][:3]
    else:
        hours, minutes, last = 0, *[*numbers, 0][:2]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + last


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmConfig:
    """The options common to all jobs, those of GPU and of CPU jobs, and containers and MPI."""

    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    gres: str | int | None = None
    #: Requests GPUs instead of ``gres``.
    gpus_per_node: str | int | None = None
    reservation: str | None = None
    nodelist: str | None = None
    exclude: str | None = None
    constraint: str | None = None
    nice: int | None = None
    segment: int | None = None
    container: Literal["pyxis", "none"] = "pyxis"
    #: Ranks may write into the image's folders. None keeps the image's setting.
    container_writable: bool | None = None
    mpi: str | None = None
    #: The cluster that each command of Slurm asks, of several that one accounting has.
    clusters: str | None = None
    gpu: SlurmOptions = field(default_factory=SlurmOptions)
    cpu: SlurmOptions = field(default_factory=SlurmOptions)
    #: Further sbatch options by long name, which override all others. True is an option without a
    #: value, and false or null removes one that llmb sets. ``time`` is the limit of jobs that have
    #: none from the command line or the list.
    args: dict[str, bool | int | str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.clusters is not None and not is_one_cluster(self.clusters):
            raise KeyFaultError(
                f"'{self.clusters}' is not the name of one cluster",
                "clusters",
                hint="name one that `sacctmgr show clusters` lists",
                code="value-not-allowed",
                value=self.clusters,
            )
        check_slurm_args(self.args, "args")
        check_node_lists({"nodelist": self.nodelist, "exclude": self.exclude})
        check_node_lists(self.args, "args")
        for key, value in self.args.items():
            if long_name(key) == "time" and not (type(value) in (str, int) and seconds(str(value))):
                shown = "null" if value is None else value
                raise KeyFaultError(f"'{shown}' is not a time limit", "args", key, hint=_LIMIT)

    @staticmethod
    def hint_for(key: str) -> str:
        """The hint for an unknown key of this section."""
        return hint_for_key(key, [*SLURM_OPTIONS, *_KEYS])

    def mpi_kind(self, *, has_pmix: bool = True) -> str | None:
        """Return the value of srun's ``--mpi``, None to omit it. ``has_pmix`` is of this Slurm."""
        return self.mpi or (PMIX if self.container == "pyxis" and has_pmix else None)

    @property
    def time_limit(self) -> int | None:
        """Return the time limit in ``args`` in seconds, or None without one."""
        return next(
            (seconds(str(value)) for key, value in self.args.items() if long_name(key) == "time"),
            None,
        )

    def option(self, name: str, kind: Literal["gpu", "cpu"] = "gpu") -> str | int | None:
        """The value of one of SLURM_OPTIONS for GPU or CPU jobs."""
        options = (self.gpu if kind == "gpu" else self.cpu).given
        value: str | int | None = options[name] if name in options else getattr(self, name)
        return value

    def gpus(self, of_type: str | int | None = None) -> str | int | None:
        """The configured GPUs of a node of a GPU job: ``of_type`` (its GPU type), else
        gpus_per_node, else gres.
        """
        per_node = self.option("gpus_per_node")
        return (
            of_type
            if of_type is not None
            else per_node
            if per_node is not None
            else self.option("gres")
        )

    @property
    def leaves_gpus_open(self) -> bool:
        """Return True if no key sets the number of GPUs of a node. Null sets it, to none."""
        in_args = any("gres" in name or "gpus" in name for name in map(long_name, self.args))
        for_gpu_jobs = {"gres", "gpus_per_node"} & {*self.gpu.given}
        return not in_args and not for_gpu_jobs and self.gres is None and self.gpus_per_node is None

    @property
    def gpus_by_args(self) -> int | None:
        """Return the gpus-per-node in ``args``, which overrides all other keys, None without it."""
        named = (value for key, value in self.args.items() if long_name(key) == "gpus-per-node")
        return gpu_count(next(named, None))
