# SPDX-License-Identifier: Apache-2.0
"""A launch: everything that a cluster needs to start one job. A site: what a plugin knows of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from llmb.contract.cluster_type import ClusterTraits
from llmb.core.checked import check_types
from llmb.errors import KeyFaultError

if TYPE_CHECKING:
    from llmb.contract.job import Job

T = TypeVar("T")
Start = Literal["ranks", "mpi", "once"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The program to run, by exactly one of four fields. The arguments of its launch follow."""

    #: A Python module, on the path of the staged programs.
    module: str | None = None
    #: A Python file.
    script: str | None = None
    #: Any command, found on the PATH of the environment or the image.
    argv: tuple[str, ...] = ()
    #: Lines of bash, whose arguments are ``$1``, ``$2``, ...
    shell: str | None = None

    def __post_init__(self) -> None:
        check_types(self)
        kinds = [name for name in ("module", "script", "argv", "shell") if getattr(self, name)]
        if len(kinds) != 1:
            words = " and ".join(kinds) or "none"
            message = f"Program has exactly one of module, script, argv and shell, not {words}"
            raise KeyFaultError(
                message, hint="as in Program(argv=('ls', '-l'))", code="program-kind", value=kinds
            )

    @property
    def is_python(self) -> bool:
        """Return True if the Python of the environment or the image runs it."""
        return self.module is not None or self.script is not None

    def words(self, python: str) -> tuple[str, ...]:
        """Return the command without the launch's arguments. ``python`` runs its modules."""
        if self.module is not None:
            return (python, "-m", self.module)
        if self.script is not None:
            return (python, self.script)
        return self.argv or ("bash", "-c", str(self.shell), "bash")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that runs beside the program of a launch, which is its client, on the same nodes.

    The variable LLMB_SERVER_PORT has a free port of the node for the server and its client. The
    client starts on rank 0 when the server is ready: it accepts connections on that port, or has
    written ``ready_text`` to its log, ``server-<rank>.out`` beside the run's log. A server that
    ends before its client, or is not ready after ``ready_seconds``, fails the run. When the client
    has ended, the server gets SIGTERM, and SIGKILL 10 s later.
    """

    program: Program
    args: tuple[str, ...] = ()
    ready_text: str | None = None
    ready_seconds: int = 600
    #: Each rank starts one, and the client waits for all of them. ``server-<rank>.address`` has
    #: ``HOST:PORT`` of each. Otherwise only rank 0 does.
    on_every_rank: bool = False

    def __post_init__(self) -> None:
        check_types(self)
        _check_count(self, "ready_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    """A command that wraps a rank's own, evaluated in the rank's environment (numactl, Nsight)."""

    name: str
    argv: tuple[str, ...]

    def __post_init__(self) -> None:
        check_types(self)


# Names in the run's folder that llmb and its scripts use themselves; those of a later attempt are
# in the same folder.
_OWN_FILE = re.compile(
    r"\..*|(log-|sbatch_|pod-|server-).*\.(out|address)"
    r"|telemetry-.*\.jsonl"
    r"|(scheduler_id|ended|restarted|attempt-\d+|nsys_profile)(/.*)?"
    r"|(llmb-run|state|parse|scheduler|cancel|summary)\.json"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A small text file, written into the run's working folder before the ranks start."""

    #: Its path below that folder.
    name: str
    text: str
    #: A program, such as a script with ``#!``.
    executable: bool = False

    def __post_init__(self) -> None:
        check_types(self)
        path = PurePosixPath(self.name)
        if path.is_absolute() or ".." in path.parts or not path.parts or self.name.endswith("/"):
            message, hint = (
                f"'{self.name}' is not a file below the run's folder",
                "name it without a folder",
            )
            raise KeyFaultError(message, "name", hint=hint, code="file-outside", value=self.name)
        if _OWN_FILE.fullmatch(str(path)):
            message, hint = (
                f"'{self.name}' is a name that llmb uses in the run's folder",
                "choose another name",
            )
            raise KeyFaultError(message, "name", hint=hint, code="file-reserved", value=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The part of a launch that a benchmark itself decides. All else follows from the job.

    It is also the key ``launch`` of workload.yaml. Ranks start in the run's working folder, so
    ``args`` name the staged ``files`` without a path.
    """

    program: Program
    args: tuple[str, ...] = ()
    #: ``ranks``: one process for each GPU with torchrun's variables. ``mpi``: the same by MPI (srun
    #: on Slurm, otherwise mpirun). ``once``: one process on the first node, which may start others
    #: itself.
    start: Start = "ranks"
    #: Runs while the program does.
    server: Server | None = None
    #: Runs on rank 0 when its program has ended without an error, in the same folder and log.
    after: Program | None = None
    mounts: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Names of variables, never values.
    secrets: tuple[str, ...] = ()
    wrappers: tuple[Wrapper, ...] = ()
    files: tuple[StagedFile, ...] = ()
    #: Checked before the submission: the environment must have them.
    packages: tuple[str, ...] = ()
    #: Checked before the submission: patterns that a file must match.
    inputs: tuple[str, ...] = ()
    #: Checked before the submission: the memory of each GPU.
    gpu_memory_gb: float | None = None
    #: Checked before the submission: what it writes.
    disk_gb: float = 0.0

    def __post_init__(self) -> None:
        check_types(self)
        if self.server is not None and self.server.on_every_rank and self.start == "once":
            message, hint = (
                f"{type(self).__name__}.server is for every rank, and start is 'once'",
                "start='ranks' or 'mpi'",
            )
            raise KeyFaultError(
                message, "server", hint=hint, code="value-invalid", value=self.start
            )

    @property
    def programs(self) -> tuple[Program, ...]:
        """Every program that it starts: its own, the server's, and the one that runs after it."""
        server = self.server.program if self.server is not None else None
        return tuple(
            program for program in (self.program, server, self.after) if program is not None
        )


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
        _check_count(self, "nodes", "ranks_per_node", "time_limit")
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
        venv = str(site.venv) if job.image is None and site.venv is not None else None
        return cls(
            **{**values, "environment": {**command.environment, **job.env}},
            name=job.experiment_name,
            nodes=job.nodes,
            ranks_per_node=job.gpus_per_node,
            time_limit=job.time_limit,
            image=job.image,
            venv=venv,
        )


def _check_count(value: object, *names: str) -> None:
    """Raise KeyFaultError unless the fields ``names`` are 1 or more."""
    for name in names:
        if (number := getattr(value, name)) < 1:
            message = f"{type(value).__name__}.{name} must be at least 1, not {number}"
            raise KeyFaultError(message, name, code="value-invalid", value=number)


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
