# SPDX-License-Identifier: Apache-2.0
"""The schema of cluster_config.yaml. Names of fields are its keys."""

import math
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from llmb.contract.cluster_type import ClusterTraits, ClusterType, undetermined
from llmb.contract.gpus import (
    GpuType,
    GpuTypes,
    check_memory,
    check_peaks,
    known_types,
    nearest_type,
)
from llmb.contract.model import require_positive
from llmb.contract.rows import check_word
from llmb.contract.sbatch import SECTION, SlurmConfig, gpu_count
from llmb.contract.variables import Environment, check_passed
from llmb.core import typed
from llmb.core.names import squash_workload, suggest
from llmb.core.values import dataclass
from llmb.errors import KeyFaultError

# each one a mapping or None; checked with its plugin, so that a fault costs that alone
PluginSections = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallConfig:
    """The way the installer built this directory."""

    venv_type: Literal["uv", "venv", "conda"] = "venv"
    method: Literal["local", "slurm"] = "local"
    node_architecture: str = "x86_64"
    image_folder: Path | None = None
    #: Whose images or environments it has: a framework's name or ``both``. None if that was not
    #: recorded.
    framework: Annotated[str, check_word] | None = None
    #: The image release of Megatron-Bridge.
    bridge_release: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTypeConfig:
    """A GPU type of this cluster.

    A type that is not known and not ``like`` another has at least ``gpus_per_node``.
    """

    #: The known type whose rows and peaks apply. Other fields override it.
    like: str | None = None
    partition: str | None = None
    gres: str | int | None = None
    gpus_per_node: int | None = None
    #: Dense, of one GPU by dtype.
    peak_tflops: dict[str, float] | None = None
    memory_gb: float | None = None

    def __post_init__(self) -> None:
        require_positive(self)
        check_peaks(self.peak_tflops or {}, "peak_tflops")
        if self.memory_gb is not None:
            check_memory(self.memory_gb, "memory_gb")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadConfig:
    """One installed workload: its Python environment and its variables."""

    venv_path: Path | None = None
    venv_type: str | None = None
    #: Its environments by name if it has several (``nemo``, and ``torch`` for the tiny sizes).
    venvs: dict[str, Path] = field(default_factory=dict)
    #: Folders with files of a model hub, by repository.
    assets: dict[str, Path] = field(default_factory=dict)
    #: Checkouts of git repositories, by URL.
    repos: dict[str, Path] = field(default_factory=dict)
    environment: Environment = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadsConfig:
    """The installed workloads. Without the key ``installed``, every known workload can be used."""

    installed: tuple[str, ...] | None = None
    config: dict[str, WorkloadConfig] = field(default_factory=dict)

    def has(self, key: str) -> bool:
        """Return True if the workload ``key`` is installed, in any spelling."""
        return self.installed is None or squash_workload(key) in map(
            squash_workload, self.installed
        )

    def of(self, key: str) -> WorkloadConfig:
        """The settings of the workload ``key``, under that name or another spelling of it."""
        if key in self.config:
            return self.config[key]
        matches = (
            config
            for name, config in self.config.items()
            if squash_workload(name) == squash_workload(key)
        )
        return next(matches, WorkloadConfig())


def check_price(value: float, *path: str) -> None:
    """Raise KeyFaultError for a price that is no number above 0."""
    if not 0 < value < math.inf:
        raise KeyFaultError(
            f"must be a price above 0, not {value:g}",
            *path,
            hint="omit it if it is unknown",
            code="value-not-allowed",
            value=value,
        )


class OfClusterType:
    """A value of a cluster type: ``kind``, or if no plugin offers it, its name alone."""

    __slots__ = ()
    cluster_type: str
    kind: ClusterType | None
    #: The sections of cluster types by their keys, each of its type's schema.
    sections: Mapping[str, Any]

    @property
    def of_type(self) -> ClusterType:
        """The cluster type. Only its name is known if no plugin offers it."""
        return self.kind or undetermined(self.cluster_type)

    @property
    def section(self) -> Any:
        """Return the section of its cluster type, or None without one."""
        return self.sections.get(self.of_type.key or "")

    @property
    def slurm(self) -> SlurmConfig | None:
        """Return the section with the options of sbatch, or None without one."""
        section = self.sections.get(SECTION)
        return section if isinstance(section, SlurmConfig) else None

    @property
    def traits(self) -> ClusterTraits:
        """The way workloads run on the cluster."""
        return self.of_type.traits_of(self.section)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig(OfClusterType):
    """cluster_config.yaml. ``load_config`` sets ``llmb_install`` to the folder of the file."""

    schema_version: Literal[2] = 2
    cluster_type: str
    cluster_name: str = "cluster"
    llmb_install: Path = Path()
    experiments_root: Path | None = None
    #: The most runs of one user that wait or run at a time, None without a limit.
    max_in_queue: int | None = None
    #: Of one GPU, in any currency, None if unknown.
    price_per_gpu_hour: float | None = None
    gpu_type: str
    gpu_types: dict[str, GpuTypeConfig] = field(default_factory=dict)
    environment: Environment = field(default_factory=dict)
    pass_environment: tuple[Annotated[str, check_passed], ...] = ()
    #: Sample the GPUs of each node while a job runs.
    telemetry: bool = True
    install: InstallConfig = field(default_factory=InstallConfig)
    workloads: WorkloadsConfig = field(default_factory=WorkloadsConfig)
    #: The settings of plugins by distribution; each plugin's dataclass describes them.
    plugins: PluginSections = field(default_factory=dict)
    #: Every known GPU type, those of plugins included. No key.
    types: GpuTypes = field(
        default_factory=known_types, compare=False, repr=False, metadata=typed.INTERNAL
    )
    #: The cluster type, None if no plugin offers it. No key.
    kind: ClusterType | None = field(
        default=None, compare=False, repr=False, metadata=typed.INTERNAL
    )
    #: The sections of cluster types by their keys. No key.
    sections: Mapping[str, Any] = field(default_factory=dict, metadata=typed.INTERNAL)

    def __post_init__(self) -> None:
        if self.max_in_queue is not None and self.max_in_queue < 1:
            raise KeyFaultError(
                f"must be at least 1, not {self.max_in_queue}",
                "max_in_queue",
                hint="omit it for no limit",
                code="value-not-allowed",
                value=self.max_in_queue,
            )
        if self.price_per_gpu_hour is not None:
            check_price(self.price_per_gpu_hour, "price_per_gpu_hour")
        type_names = [*self.types, *self.gpu_types]
        if self.gpu_type not in type_names:
            nearest, line = (
                nearest_type(self.gpu_type, type_names),
                f"gpu_types: {{{self.gpu_type}: {{like: h100}}}}",
            )
            choices = (
                f"one of {', '.join(type_names)}; or add it with the rows of a known type: {line}"
            )
            raise KeyFaultError(
                f"'{self.gpu_type}' is not known",
                "gpu_type",
                hint=f"did you mean '{nearest}'?" if nearest is not None else choices,
                code="gpu-type-unknown",
            )
        for name, gpu_type in self.gpu_types.items():
            if gpu_type.like is not None and gpu_type.like not in self.types:
                hint = suggest(gpu_type.like, list(self.types))
                message, code = f"'{gpu_type.like}' is not known", "gpu-type-unknown"
                raise KeyFaultError(message, "gpu_types", name, "like", hint=hint, code=code)
            if gpu_type.like is None and gpu_type.gpus_per_node is None and name not in self.types:
                hint = (
                    "like: TYPE uses the configurations of a known type; any other type needs"
                    " gpus_per_node"
                )
                message = "needs the key 'like' or 'gpus_per_node'"
                raise KeyFaultError(message, "gpu_types", name, hint=hint, code="key-missing")

    def rows_for(self, gpu_type: str) -> str:
        """Return the known GPU type whose rows ``gpu_type`` uses, itself or the one it is like."""
        config = self.gpu_types.get(gpu_type)
        return config.like if config is not None and config.like is not None else gpu_type

    def gpu(self, gpu_type: str) -> GpuType:
        """Return peaks, memory and GPUs per node: the cluster's, the type's, or of ``like``."""
        config = self.gpu_types.get(gpu_type, GpuTypeConfig())
        base = self.types.get(gpu_type) or self.types.get(self.rows_for(gpu_type))
        if base is None:  # a type of its own
            base = GpuType(gpus_per_node=config.gpus_per_node or 1)
        slurm = self.slurm or SlurmConfig()
        requested = slurm.gpus_by_args or gpu_count(slurm.gpus(config.gres))
        return GpuType(
            gpus_per_node=config.gpus_per_node or requested or base.gpus_per_node,
            peak_tflops=base.peak_tflops if config.peak_tflops is None else config.peak_tflops,
            memory_gb=base.memory_gb if config.memory_gb is None else config.memory_gb,
        )

    def requested_gpus(self, gpu_type: str) -> int | None:
        """Return the GPUs of a node that this file requests, None if it leaves the number open.

        ``slurm.args`` may set it.
        """
        if self.slurm is None or any("gres" in name or "gpus" in name for name in self.slurm.args):
            return None
        return gpu_count(self.slurm.gpus(self.gpu_types.get(gpu_type, GpuTypeConfig()).gres))

    def with_slurm(self, slurm: SlurmConfig) -> Self:
        """Return this configuration with other options of sbatch."""
        return replace(self, sections={**self.sections, SECTION: slurm})

    @property
    def runs_root(self) -> Path:
        """The folder of the runs of this install, and of the locks between their submitters."""
        return self.experiments_root or self.llmb_install / "workloads"

    def experiments(self, workload: str) -> Path:
        return self.runs_root.joinpath(workload, "experiments")
