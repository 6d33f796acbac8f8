# SPDX-License-Identifier: Apache-2.0
"""A launch: everything that a cluster needs to start one job; and the site, what a plugin may know of the cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The program of each rank: a Python ``module`` (on the path of the staged programs) or a ``script`` file."""

    module: str | None = None
    script: str | None = None

    def __post_init__(self) -> None:
        if (self.module is None) == (self.script is None):
            raise ValueError("a program is either a module or a script")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    """A command that wraps a rank's own, evaluated in the rank's environment (NUMA binding, Nsight)."""

    name: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A small text file, written into the run's working folder before the ranks start."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One job, ready to start; ``time_limit`` in seconds, ``secrets`` are names of variables and never values.

    Ranks start in the run's working folder, so ``args`` name the staged ``files`` without a path. ``workload`` is the
    job's, ``gpu_type`` the cluster's name of the job's; llmb sets both. The pre-submission checks use ``packages`` that
    ``venv`` must have; ``inputs``, patterns that a file must match; ``gpu_memory_gb`` of each GPU; ``disk_gb`` that it
    writes; ``fixes``, the fix for a missing secret or input, by its name. ``slurm_args`` are those of the command line,
    kept for every attempt. ``vboost``: a Slurm cluster first raises the GPUs' vboost on each node;
    ``container_writable``: whether ranks may write into the image's own folders, None where not set; llmb sets both,
    and the job's mounts.
    """

    name: str
    nodes: int
    ranks_per_node: int
    time_limit: int
    program: Program
    args: tuple[str, ...] = ()
    image: str | None = None
    venv: str | None = None
    mounts: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    wrappers: tuple[Wrapper, ...] = ()
    files: tuple[StagedFile, ...] = ()
    workload: str = ""
    gpu_type: str = ""
    packages: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    gpu_memory_gb: float | None = None
    disk_gb: float = 0.0
    fixes: Mapping[str, str] = field(default_factory=dict)
    slurm_args: Mapping[str, str | bool] = field(default_factory=dict)
    vboost: bool = False
    container_writable: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What only a submission knows. A preview has placeholders instead, and is otherwise the text that is sent.

    ``id`` is the attempt's own: the run's, from the second attempt on ``<run's id>-<attempt>``. ``directory`` is the
    run's, common to all attempts.
    """

    id: str
    timestamp: str
    directory: str
    attempt: int = 1

    @property
    def path(self) -> Path:
        """The run's directory."""
        return Path(self.directory)

    @property
    def place(self) -> str:
        """The folder of this attempt's own files: script, state, the scheduler's id."""
        return self.directory if self.attempt == 1 else f"{self.directory}/attempt-{self.attempt}"

    def work(self, name: str) -> str:
        """The working folder of the ranks of the launch ``name``, where the logs are."""
        return f"{self.directory}/{name}" if self.attempt == 1 else self.place


PREVIEW_ID = "<id>"
PREVIEW_TIMESTAMP = "<timestamp>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A cluster as a plugin's hooks see it.

    ``gpu_type``: the type whose rows apply (of a type ``like`` another, that one); ``container``: ranks start inside an
    image; ``venv``: the installed environment of this workload, if any; ``venvs``: by name, where it has several;
    ``assets``: the installed folders of a model hub's repositories, by the hub's names; ``mpi``: srun's MPI plugin,
    None without; ``environment``: the cluster's and the workload's variables, merged; ``settings``: versions chosen at
    installation.
    """

    cluster_type: str
    gpu_type: str
    gpus_per_node: int
    node_architecture: str = "x86_64"
    install: Path
    container: bool = False
    venv: Path | None = None
    venvs: Mapping[str, Path] = field(default_factory=dict)
    assets: Mapping[str, Path] = field(default_factory=dict)
    mpi: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_pmix(self) -> bool:
        """Whether PMIx starts the ranks, so that a library may set up MPI between them."""
        return self.mpi is not None and self.mpi.startswith("pmix")  # srun also knows pmix_v4 and the like
