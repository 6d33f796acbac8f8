# SPDX-License-Identifier: Apache-2.0
"""A launch: everything that a cluster needs to start one job. A site: what a plugin knows of it."""

from collections.abc import Mapping
from dataclasses import field, fields
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Self, TypeVar

from llmb.contract.cluster_type import ClusterTraits
from llmb.contract.command import (
    Command,
    Program,
    Server,
    StagedFile,
    Start,
    Wrapper,
    check_count,
)
from llmb.core.values import dataclass
from llmb.errors import KeyFaultError

if TYPE_CHECKING:
    from llmb.contract.job import Job

__all__ = [
    "Command",
    "Launch",
    "Program",
    "Server",
    "Site",
    "StagedFile",
    "Stamp",
    "Start",
    "Wrapper",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch(Command):
    """One job, ready to start.

    llmb sets ``workload``, ``gpu_type``, ``vboost``, ``container_writable`` and the job's mounts.
    """

    name: str
    nodes: int
    ranks_per_node: int
    #: In seconds.
    time_limit: int
    image: str | None = None
    venv: str | None = None
    workload: str = ""
    #: The cluster's name of the job's.
    gpu_type: str = ""
    #: The fix for a missing secret, input or image, by its name, and at ENVIRONMENT for a missing
    #: Python environment.
    fixes: Mapping[str, str] = field(default_factory=dict)
    #: The options of the command line, kept for every attempt.
    slurm_args: Mapping[str, str | bool] = field(default_factory=dict)
    #: A Slurm cluster first raises the GPUs' vboost on each node.
    vboost: bool = False
    #: Ranks may write into the image's own folders; None if not set.
    container_writable: bool | None = None
    #: Nodes of 4 GPUs that one rack can hold are to be in one. A larger job has whole racks anyway.
    one_rack: bool = False
    #: The fields that plugins named in cluster_config.yaml changed, by plugin.
    changed_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Command.__post_init__(self)  # super() does not know a class with slots
        check_count(self, "nodes", "ranks_per_node", "time_limit")
        if self.name in ("", ".", "..") or "/" in self.name:
            message, hint = f"'{self.name}' is not a folder's name", "as a rule job.experiment_name"
            raise KeyFaultError(message, "name", hint=hint, code="name-invalid", value=self.name)
        _check_distinct(self.files, PurePosixPath(f"launch_{self.name}"))

    @classmethod
    def of(cls, command: Command, job: "Job", site: "Site") -> Self:
        """Return the launch of ``command`` with all that follows from its job.

        These are name, ranks, time limit, image and, without an image, the installed environment.
        The job's own variables come after those of the command.
        """
        values = {field.name: getattr(command, field.name) for field in fields(Command)}
        return cls(
            **{**values, "environment": {**command.environment, **job.env}},
            name=job.experiment_name,
            nodes=job.nodes,
            ranks_per_node=job.gpus_per_node,
            time_limit=job.time_limit,
            image=job.image,
            venv=str(site.venv) if job.image is None and site.venv is not None else None,
        )


def _check_distinct(staged: tuple[StagedFile, ...], script: PurePosixPath) -> None:
    """Raise KeyFaultError for two files of one name, or a file that is another one's folder.

    ``script``: the run's own, which is in the same folder from the second attempt on.
    """
    files: set[tuple[str, ...]] = {script.parts}
    folders: set[tuple[str, ...]] = {()}
    for parts in (PurePosixPath(file.name).parts for file in staged):
        above = {parts[:length] for length in range(len(parts))}
        if parts in files or parts in folders or not files.isdisjoint(above):
            path = str(PurePosixPath(*parts))
            message, hint = f"two files have the path '{path}'", "give each its own name"
            raise KeyFaultError(message, "files", hint=hint, code="file-duplicate", value=path)
        files.add(parts)
        folders |= above


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The facts that only a submission knows.

    A preview has placeholders instead, and is otherwise the text that is sent.
    """

    #: The attempt's own: the run's, from the second attempt on ``<run's id>-<attempt>``.
    id: str
    timestamp: str
    #: The run's, common to all attempts.
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
        """Return the working folder of the ranks of the launch ``name``, which has the logs."""
        return f"{self.directory}/{name}" if self.attempt == 1 else self.place


ENVIRONMENT = "environment"  # in the fixes of a launch
PREVIEW_ID = "<id>"
PREVIEW_TIMESTAMP = "<timestamp>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A cluster as a plugin's hooks see it."""

    cluster_type: str
    #: The type whose rows apply (of a type ``like`` another, that one).
    gpu_type: str
    gpus_per_node: int
    node_architecture: str = "x86_64"
    install: Path
    #: Ranks start inside an image.
    container: bool = False
    #: The installed environment of this workload, if any.
    venv: Path | None = None
    #: Its environments by name, if it has several.
    venvs: Mapping[str, Path] = field(default_factory=dict)
    #: The installed folders of a model hub's repositories, by the hub's names.
    assets: Mapping[str, Path] = field(default_factory=dict)
    #: The checkouts of git repositories, by URL.
    repos: Mapping[str, Path] = field(default_factory=dict)
    #: srun's MPI plugin, None without.
    mpi: str | None = None
    #: The cluster's and the workload's variables, merged.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Versions chosen at installation.
    settings: Mapping[str, str] = field(default_factory=dict)
    #: The way workloads run there, also by the name ``runs``.
    traits: ClusterTraits = field(default_factory=ClusterTraits)
    #: The sections of all plugins in cluster_config.yaml.
    plugins: Mapping[str, Any] = field(default_factory=dict)
    #: The section of the plugin that is asked, read into its dataclass, for ``own``.
    own_settings: object = None

    @property
    def runs(self) -> ClusterTraits:
        """The way workloads run there."""
        return self.traits

    def own(self, kind: type[T]) -> T:
        """The plugin's own settings, of the class that its ``llmb_settings`` returns."""
        if self.own_settings is None:
            raise TypeError(
                f"the plugin has no settings: add an llmb_settings that returns {kind.__name__}"
            )
        if not isinstance(self.own_settings, kind):
            raise TypeError(
                f"the plugin's settings are {self.own_settings!r}, not a {kind.__name__}"
            )
        return self.own_settings

    @property
    def has_pmix(self) -> bool:
        """Return True if PMIx starts the ranks, so that a library may set up MPI between them."""
        # srun also knows pmix_v4 and the like
        return self.mpi is not None and self.mpi.startswith("pmix")
