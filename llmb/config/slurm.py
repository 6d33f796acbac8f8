# SPDX-License-Identifier: Apache-2.0
"""What cluster_config.yaml may say of Slurm."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from llmb.names import suggest
from llmb.typed import KeyFaultError

SLURM_OPTIONS = (
    "account", "partition", "qos", "gres", "gpus_per_node", "reservation", "nodelist", "exclude", "constraint", "nice",
    "segment",
)  # fmt: skip

# What every script of ours says itself, or what would break the following of its job.
FIXED_SLURM_OPTIONS = frozenset(
    {"array", "chdir", "clusters", "error", "export", "het-group", "input", "job-name", "no-requeue", "nodes", "ntasks",
     "ntasks-per-node", "open-mode", "output", "parsable", "requeue", "test-only", "uid", "wait", "wrap"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """Options of sbatch for one kind of job; one given as null unsets the common one."""

    given: dict[str, str | int | None] = field(default_factory=dict)

    @classmethod
    def parse(cls, value: Any) -> SlurmOptions:
        """Read a mapping of option names to values. Raises ValueError."""
        if not isinstance(value, dict):
            raise ValueError(f"must be a mapping of {', '.join(SLURM_OPTIONS)}")
        for key, item in value.items():
            if key not in SLURM_OPTIONS:
                raise KeyFaultError(f"'{key}' is not a key here", key, hint=suggest(str(key), SLURM_OPTIONS))
            if not (item is None or type(item) in (str, int)):
                raise KeyFaultError(f"must be text, a number or null, not {item!r}", key)
        return cls(dict(value))

    def unparse(self) -> dict[str, str | int | None]:
        """The mapping that ``parse`` reads."""
        return self.given


def gpu_count(gres: bool | str | int | None) -> int | None:
    """The number of GPUs in ``8``, ``h100:8`` or ``gpu:h100:8``; None where it has none."""
    match = re.fullmatch(r"(?:.*:)?(\d+)", str(gres))
    return int(match[1]) if match is not None else None


def check_slurm_args(args: Mapping[str, object], *path: str) -> None:
    """Refuse options that llmb sets itself. Raises KeyFaultError at ``path`` and the option's name."""
    for key in args:
        name = key.strip("-").replace("_", "-")
        if not re.fullmatch(r"[a-z][a-z0-9-]+", name):
            raise KeyFaultError(f"'{key}' is not the name of an option", *path, key, hint="its long name, as in 'qos'")
        if name in FIXED_SLURM_OPTIONS:
            raise KeyFaultError(f"--{name} is for llmb alone to set", *path, key, hint="leave it out")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmConfig:
    """Slurm: the options common to all jobs, those of GPU and CPU jobs, and how containers and MPI are used.

    ``gpus_per_node`` asks for GPUs in the place of ``gres``. ``args``: further options of sbatch by their long names,
    over all others; true for one without a value, false and null to leave one away that llmb gives.
    """

    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    gres: str | int | None = None
    gpus_per_node: str | int | None = None
    reservation: str | None = None
    nodelist: str | None = None
    exclude: str | None = None
    constraint: str | None = None
    nice: int | None = None
    segment: int | None = None
    container: Literal["pyxis", "none"] = "pyxis"
    mpi: str | None = None
    gpu: SlurmOptions = field(default_factory=SlurmOptions)
    cpu: SlurmOptions = field(default_factory=SlurmOptions)
    args: dict[str, bool | int | str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_slurm_args(self.args, "args")

    def option(self, name: str, kind: Literal["gpu", "cpu"] = "gpu") -> str | int | None:
        """The value of one of SLURM_OPTIONS for GPU or CPU jobs."""
        given = (self.gpu if kind == "gpu" else self.cpu).given
        value: str | int | None = given[name] if name in given else getattr(self, name)
        return value

    def gpus(self, own: str | int | None = None) -> str | int | None:
        """The GPUs of a node of a GPU job, as configured: ``own`` (its type's), else gpus_per_node, else gres."""
        per_node = self.option("gpus_per_node")
        return own if own is not None else per_node if per_node is not None else self.option("gres")

    @property
    def gpus_by_args(self) -> int | None:
        """What ``args`` ask for by sbatch's gpus-per-node, which comes over all others; None where they do not."""
        named = (value for key, value in self.args.items() if key.strip("-").replace("_", "-") == "gpus-per-node")
        return gpu_count(next(named, None))
