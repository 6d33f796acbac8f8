# SPDX-License-Identifier: Apache-2.0
"""The schema of cluster_config.yaml; field names are its keys."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from llmb.config.cluster_type import ClusterTraits, ClusterType
from llmb.config.own_types import own_types, undetermined
from llmb.config.runai import RunaiConfig
from llmb.config.slurm import SlurmConfig, gpu_count
from llmb.errors import KeyFaultError
from llmb.text import typed
from llmb.text.names import squash_workload, suggest
from llmb.workload.gpus import GpuType, GpuTypes, check_memory, check_peaks, known_types, nearest_type
from llmb.workload.model import require_positive
from llmb.workload.variables import Environment, check_passed

PluginSections = dict[str, Any]  # each one a mapping or None; checked with its plugin, so that a fault costs that alone


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallConfig:
    """How the installer built this directory.

    ``framework``: whose images or environments it has, None where an earlier release did not record it;
    ``bridge_release``: the image release of Megatron-Bridge.
    """

    venv_type: Literal["uv", "venv", "conda"] = "venv"
    method: Literal["local", "slurm"] = "local"
    node_architecture: str = "x86_64"
    image_folder: Path | None = None
    framework: Literal["nemo", "bridge", "both"] | None = None
    bridge_release: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTypeConfig:
    """A GPU type of this cluster: ``like`` is the known type whose rows and peaks apply; other fields override it.

    A type of its own, which is not known and not ``like`` another, has at least ``gpus_per_node``. ``peak_tflops``:
    dense, of one GPU by dtype.
    """

    like: str | None = None
    partition: str | None = None
    gres: str | int | None = None
    gpus_per_node: int | None = None
    peak_tflops: dict[str, float] | None = None
    memory_gb: float | None = None

    def __post_init__(self) -> None:
        require_positive(self)
        check_peaks(self.peak_tflops or {}, "peak_tflops")
        if self.memory_gb is not None:
            check_memory(self.memory_gb, "memory_gb")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadConfig:
    """One installed workload: its Python environment and its variables.

    ``venvs``: its environments by name if it has several (``nemo``, and ``torch`` for the tiny sizes); ``assets``:
    folders with files of a model hub, by repository; ``repos``: checkouts of git repositories, by URL.
    """

    venv_path: Path | None = None
    venv_type: str | None = None
    venvs: dict[str, Path] = field(default_factory=dict)
    assets: dict[str, Path] = field(default_factory=dict)
    repos: dict[str, Path] = field(default_factory=dict)
    environment: Environment = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadsConfig:
    """The installed workloads; without the key ``installed``, every known workload can be used."""

    installed: tuple[str, ...] | None = None
    config: dict[str, WorkloadConfig] = field(default_factory=dict)

    def has(self, key: str) -> bool:
        """Whether the workload ``key`` is installed, in any spelling."""
        return self.installed is None or squash_workload(key) in map(squash_workload, self.installed)

    def of(self, key: str) -> WorkloadConfig:
        """The settings of the workload ``key``, under that name or another spelling of it."""
        if key in self.config:
            return self.config[key]
        found = (own for name, own in self.config.items() if squash_workload(name) == squash_workload(key))
        return next(found, WorkloadConfig())


class OfClusterType:
    """A value with a ``cluster_type``, which ``kind`` is where a plugin offers it, and sections of cluster types."""

    __slots__ = ()
    cluster_type: str
    kind: ClusterType | None
    own_section: Any

    @property
    def of_type(self) -> ClusterType:
        """The cluster type; of one that no plugin offers, the name alone is known."""
        return self.kind or own_types().get(self.cluster_type) or undetermined(self.cluster_type)

    @property
    def section(self) -> Any:
        """The section of its cluster type; None without one."""
        key = self.of_type.key
        return getattr(self, key) if key is not None and hasattr(self, key) else self.own_section

    @property
    def traits(self) -> ClusterTraits:
        """How workloads run on the cluster."""
        return self.of_type.traits_of(self.section)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig(OfClusterType):
    """cluster_config.yaml. ``load_config`` sets ``llmb_install`` to the folder that the file was read from.

    ``plugins``: the settings of plugins by distribution; each plugin's dataclass describes them. These are no keys:
    ``types``, every known GPU type, those of plugins included; ``kind``, the cluster type, None for llmb's own;
    ``own_section``, the section of a plugin's type.
    """

    schema_version: Literal[2] = 2
    cluster_type: str
    cluster_name: str = "cluster"
    llmb_install: Path = Path()
    experiments_root: Path | None = None
    gpu_type: str
    gpu_types: dict[str, GpuTypeConfig] = field(default_factory=dict)
    environment: Environment = field(default_factory=dict)
    pass_environment: tuple[Annotated[str, check_passed], ...] = ()
    slurm: SlurmConfig | None = None
    runai: RunaiConfig | None = None
    install: InstallConfig = field(default_factory=InstallConfig)
    workloads: WorkloadsConfig = field(default_factory=WorkloadsConfig)
    plugins: PluginSections = field(default_factory=dict)
    types: GpuTypes = field(default_factory=known_types, compare=False, repr=False, metadata=typed.INTERNAL)
    kind: ClusterType | None = field(default=None, compare=False, repr=False, metadata=typed.INTERNAL)
    own_section: Any = field(default=None, metadata=typed.INTERNAL)

    def __post_init__(self) -> None:
        known = [*self.types, *self.gpu_types]
        if self.gpu_type not in known:
            meant, line = nearest_type(self.gpu_type, known), f"gpu_types: {{{self.gpu_type}: {{like: h100}}}}"
            others = f"one of {', '.join(known)}; or add it with the rows of a known type: {line}"
            hint, code = f"did you mean '{meant}'?" if meant is not None else others, "gpu-type-unknown"
            raise KeyFaultError(f"'{self.gpu_type}' is not known", "gpu_type", hint=hint, code=code)
        for name, own in self.gpu_types.items():
            if own.like is not None and own.like not in self.types:
                hint = suggest(own.like, list(self.types))
                message, code = f"'{own.like}' is not known", "gpu-type-unknown"
                raise KeyFaultError(message, "gpu_types", name, "like", hint=hint, code=code)
            if own.like is None and own.gpus_per_node is None and name not in self.types:
                hint = "like: TYPE uses the configurations of a known type; any other type needs gpus_per_node"
                message = "needs the key 'like' or 'gpus_per_node'"
                raise KeyFaultError(message, "gpu_types", name, hint=hint, code="key-missing")

    def rows_for(self, gpu_type: str) -> str:
        """The known GPU type whose rows ``gpu_type`` uses: itself, or the type that it is ``like``."""
        own = self.gpu_types.get(gpu_type)
        return own.like if own is not None and own.like is not None else gpu_type

    def gpu(self, gpu_type: str) -> GpuType:
        """Peaks, memory and GPUs per node of ``gpu_type``: this cluster's, else its own, else those of ``like``."""
        own = self.gpu_types.get(gpu_type, GpuTypeConfig())
        base = self.types.get(gpu_type) or self.types.get(self.rows_for(gpu_type))
        if base is None:  # a type of its own
            base = GpuType(gpus_per_node=own.gpus_per_node or 1)
        slurm = self.slurm or SlurmConfig()
        asked = slurm.gpus_by_args or gpu_count(slurm.gpus(own.gres))
        per_node = own.gpus_per_node or asked or base.gpus_per_node
        return GpuType(
            gpus_per_node=per_node,
            peak_tflops=base.peak_tflops if own.peak_tflops is None else own.peak_tflops,
            memory_gb=base.memory_gb if own.memory_gb is None else own.memory_gb,
        )

    def requested_gpus(self, gpu_type: str) -> int | None:
        """The number of GPUs of a node that this file requests; None without a number, or if ``slurm.args`` sets it."""
        if self.slurm is None or any("gres" in name or "gpus" in name for name in self.slurm.args):
            return None
        own = self.gpu_types.get(gpu_type, GpuTypeConfig()).gres
        return gpu_count(self.slurm.gpus(own))

    def experiments(self, workload: str) -> Path:
        root = self.experiments_root or self.llmb_install / "workloads"
        return root / workload / "experiments"
