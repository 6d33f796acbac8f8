# SPDX-License-Identifier: Apache-2.0
"""What cluster_config.yaml may say. Field names are the file's keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from llmb.gpus import GpuType, known_types
from llmb.names import squash_workload, suggest
from llmb.typed import KeyFaultError
from llmb.variables import Environment, check_passed

SLURM_OPTIONS = (
    "account", "partition", "qos", "gres", "reservation", "nodelist", "exclude", "constraint", "nice", "segment",
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


def _count(gres: bool | str | int | None) -> int | None:
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

    ``args``: further options of sbatch by their long names, over all others; true for one without a value, false and
    null to leave one away that llmb gives.
    """

    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    gres: str | int | None = None
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

    @property
    def gpus_per_node(self) -> int | None:
        """What ``args`` ask for by sbatch's option of that name, which comes over any gres; None where they do not."""
        named = (value for key, value in self.args.items() if key.strip("-").replace("_", "-") == "gpus-per-node")
        return _count(next(named, None))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunaiPvc:
    """A persistent volume claim: its name in Run:ai, where pods see it, and the Kubernetes claim.

    ``local``: where this machine sees it, the same as ``path`` where None.
    """

    name: str
    path: str
    claim: str
    local: Path | None = None

    def __post_init__(self) -> None:
        if not self.path.startswith("/"):
            raise KeyFaultError(f"'{self.path}' is not a full path", "path", hint="begin it with /")
        if self.local is not None and not self.local.is_absolute():
            raise KeyFaultError(f"'{self.local}' is not a full path", "local", hint="begin it with /")

    @property
    def here(self) -> Path:
        """Where this machine sees the volume."""
        return self.local or Path(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunaiSecret:
    """A secret of Kubernetes in the project's namespace, and its key that holds the value."""

    name: str
    key: str


# What llmb sets itself in each workload of Run:ai: with others a benchmark would be lost, or another one.
FIXED_RUNAI_SPEC = frozenset(
    {"args", "autoDeletionTimeAfterCompletionSeconds", "backoffLimit", "cleanPodPolicy", "command", "completions",
     "distributedFramework", "environmentVariables", "image", "maxReplicas", "minReplicas", "numWorkers",
     "parallelism", "restartPolicy", "storage", "terminateAfterPreemption", "workingDir"}
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RunaiConfig:
    """Run:ai: the control plane's API, the project, and the volume for files and logs.

    ``cluster``: its name or uuid, where several have a project of that name. ``secrets``: where a pod gets each
    variable whose value is a secret. ``extended_resources``: of each pod, such as network devices, and how many.
    ``keep_days``: after how many days Run:ai forgets a workload that has ended. ``spec``: further fields of the
    workload's spec, by the API's names; ``compute`` in it beside llmb's own.
    """

    base_url: str
    project: str
    pvc: RunaiPvc
    app_id: str | None = None
    cluster: str | None = None
    secrets: dict[str, RunaiSecret] = field(default_factory=dict)
    node_pools: tuple[str, ...] = ()
    extended_resources: dict[str, int | str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    keep_days: int = 7
    spec: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.match(r"https://[^/]|http://(127\.0\.0\.1|localhost)[:/]", self.base_url):
            hint = "https://HOST/api/v1: secrets travel there"
            raise KeyFaultError(f"'{self.base_url}' is not the address of an API", "base_url", hint=hint)
        if self.keep_days < 1:
            raise KeyFaultError("must be at least 1", "keep_days")
        if fixed := next((name for name in self.spec if name in FIXED_RUNAI_SPEC), None):
            raise KeyFaultError(f"{fixed} is for llmb alone to set", "spec", fixed, hint="leave it out")
        if not isinstance(self.spec.get("compute", {}), dict):
            raise KeyFaultError("must be a mapping", "spec", "compute")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallConfig:
    """How the installer built this directory."""

    venv_type: Literal["uv", "venv", "conda"] = "venv"
    method: Literal["local", "slurm"] = "local"
    node_architecture: str = "x86_64"
    image_folder: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTypeConfig:
    """A GPU type of this cluster: ``like`` names the type whose rows and peaks apply; the rest overrides."""

    like: str | None = None
    partition: str | None = None
    gres: str | int | None = None
    gpus_per_node: int | None = None
    peak_tflops: dict[str, float] | None = None
    memory_gb: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadConfig:
    """One installed workload: its environment of Python, and its variables.

    ``venvs``: its environments by their names, where it has several (``nemo``, and ``torch`` of the tiny sizes);
    ``assets``: folders with the files of a model hub's repository, by the hub's name of it.
    """

    venv_path: Path | None = None
    venv_type: str | None = None
    venvs: dict[str, Path] = field(default_factory=dict)
    assets: dict[str, Path] = field(default_factory=dict)
    environment: Environment = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadsConfig:
    """What is installed; ``installed`` None (not said) leaves every known workload to choose from."""

    installed: tuple[str, ...] | None = None
    config: dict[str, WorkloadConfig] = field(default_factory=dict)

    def has(self, key: str) -> bool:
        """Whether the workload ``key``, in any spelling, is installed."""
        return self.installed is None or squash_workload(key) in map(squash_workload, self.installed)

    def of(self, key: str) -> WorkloadConfig:
        """What is said of the workload ``key``, in any spelling."""
        said = (own for name, own in self.config.items() if squash_workload(name) == squash_workload(key))
        return next(said, WorkloadConfig())


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """cluster_config.yaml as a whole. ``llmb_install`` is set to the folder it was read from where it says nothing."""

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

    def __post_init__(self) -> None:
        known = [*known_types(), *self.gpu_types]
        if self.gpu_type not in known:
            raise KeyFaultError(f"'{self.gpu_type}' is not known", "gpu_type", hint=suggest(self.gpu_type, known))
        for name, own in self.gpu_types.items():
            if own.like is not None and own.like not in known_types():
                hint = suggest(own.like, list(known_types()))
                raise KeyFaultError(f"'{own.like}' is not known", "gpu_types", name, "like", hint=hint)
            if own.like is None and name not in known_types():
                hint = "the known type whose configurations it takes"
                raise KeyFaultError("needs the key 'like'", "gpu_types", name, hint=hint)

    def rows_for(self, gpu_type: str) -> str:
        """The known GPU type whose rows ``gpu_type`` takes: itself, or what it is ``like``."""
        own = self.gpu_types.get(gpu_type)
        return own.like if own is not None and own.like is not None else gpu_type

    def gpu(self, gpu_type: str) -> GpuType:
        """Peaks, memory and GPUs per node of ``gpu_type`` on this cluster: its own over those it is ``like``."""
        base = known_types()[self.rows_for(gpu_type)]
        own = self.gpu_types.get(gpu_type, GpuTypeConfig())
        slurm = self.slurm or SlurmConfig()
        asked = slurm.gpus_per_node or _count(own.gres) or _count(slurm.option("gres"))
        per_node = own.gpus_per_node or asked or base.gpus_per_node
        return GpuType(
            gpus_per_node=per_node,
            peak_tflops=base.peak_tflops if own.peak_tflops is None else own.peak_tflops,
            memory_gb=base.memory_gb if own.memory_gb is None else own.memory_gb,
        )

    def requested_gpus(self, gpu_type: str) -> int | None:
        """How many GPUs of a node the ``gres`` of this file asks Slurm for; None where it says no number.

        None also where ``slurm.args`` says so in its own way.
        """
        if self.slurm is None or any("gres" in name or "gpus" in name for name in self.slurm.args):
            return None
        own = self.gpu_types.get(gpu_type, GpuTypeConfig()).gres
        return _count(own if own is not None else self.slurm.option("gres"))

    def experiments(self, workload: str) -> Path:
        """Where the runs of ``workload`` lie."""
        root = self.experiments_root or self.llmb_install / "workloads"
        return root / workload / "experiments"
