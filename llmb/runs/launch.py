# SPDX-License-Identifier: Apache-2.0
"""A launch: everything that a cluster needs to start one job; and the site, what a plugin may know of the cluster."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeVar

from llmb.config.cluster_type import ClusterTraits
from llmb.config.own_types import own_types
from llmb.errors import KeyFaultError
from llmb.text.checked import check_types

T = TypeVar("T")
Start = Literal["ranks", "mpi", "once"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What runs, exactly one of four; the arguments of its launch follow.

    ``module``: a Python module, on the path of the staged programs; ``script``: a Python file; ``argv``: any command,
    found on the PATH of the environment or the image; ``shell``: lines of bash, whose arguments are ``$1``, ``$2``, ...
    """

    module: str | None = None
    script: str | None = None
    argv: tuple[str, ...] = ()
    shell: str | None = None

    def __post_init__(self) -> None:
        check_types(self)
        given = [name for name in ("module", "script", "argv", "shell") if getattr(self, name)]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            message = f"Program has exactly one of module, script, argv and shell, not {found}"
            raise KeyFaultError(message, hint="as in Program(argv=('ls', '-l'))", code="program-kind", value=given)

    @property
    def is_python(self) -> bool:
        """Whether the Python of the environment or the image runs it."""
        return self.module is not None or self.script is not None

    def words(self, python: str) -> tuple[str, ...]:
        """Its command without the arguments of the launch; ``python``: the interpreter of modules and scripts."""
        if self.module is not None:
            return (python, "-m", self.module)
        if self.script is not None:
            return (python, self.script)
        return self.argv or ("bash", "-c", str(self.shell), "bash")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that runs beside the program of a launch, which is its client, on the same nodes.

    The variable LLMB_SERVER_PORT has a free port of the node for the server and its client. The client starts on rank 0
    when the server is ready: it accepts connections on that port, or has written ``ready_text`` to its log,
    ``server-<rank>.out`` beside the run's log. A server that ends before its client, or is not ready after
    ``ready_seconds``, fails the run. When the client has ended, the server gets SIGTERM, and SIGKILL 10 s later.
    ``on_every_rank``: each rank starts one, and the client waits for all of them; ``server-<rank>.address`` has
    ``HOST:PORT`` of each. Otherwise only rank 0 does.
    """

    program: Program
    args: tuple[str, ...] = ()
    ready_text: str | None = None
    ready_seconds: int = 600
    on_every_rank: bool = False

    def __post_init__(self) -> None:
        check_types(self)
        _check_count(self, "ready_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    """A command that wraps a rank's own, evaluated in the rank's environment (NUMA binding, Nsight)."""

    name: str
    argv: tuple[str, ...]

    def __post_init__(self) -> None:
        check_types(self)


# Names in the run's folder that llmb and its scripts use themselves; those of a later attempt are in the same folder.
_OWN_FILE = re.compile(
    r"\..*|(log-|sbatch_|pod-|server-).*\.(out|address)|(scheduler_id|ended|restarted|attempt-\d+|nsys_profile)(/.*)?"
    r"|(llmb-run|state|parse|scheduler|cancel|summary)\.json"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A small text file, written into the run's working folder before the ranks start.

    ``name`` may have folders below that one; ``executable``: a program, such as a script with ``#!``.
    """

    name: str
    text: str
    executable: bool = False

    def __post_init__(self) -> None:
        check_types(self)
        path = PurePosixPath(self.name)
        if path.is_absolute() or ".." in path.parts or not path.parts or self.name.endswith("/"):
            message, hint = f"'{self.name}' is not a file below the run's folder", "name it without a folder"
            raise KeyFaultError(message, "name", hint=hint, code="file-outside", value=self.name)
        if _OWN_FILE.fullmatch(str(path)):
            message, hint = f"'{self.name}' is a name that llmb uses in the run's folder", "choose another name"
            raise KeyFaultError(message, "name", hint=hint, code="file-reserved", value=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One job, ready to start; ``time_limit`` in seconds, ``secrets`` are names of variables and never values.

    ``start``: ``ranks``: one process for each GPU with torchrun's variables; ``mpi``: the same by MPI (srun on Slurm,
    otherwise mpirun); ``once``: one process on the first node, which may start others itself. ``server``: runs while
    the program does; ``after``: runs on rank 0 when its program has ended without an error, in the same folder and log.

    Ranks start in the run's working folder, so ``args`` name the staged ``files`` without a path. ``workload`` is the
    job's, ``gpu_type`` the cluster's name of the job's; llmb sets both. The pre-submission checks use ``packages`` that
    ``venv`` must have; ``inputs``, patterns that a file must match; ``gpu_memory_gb`` of each GPU; ``disk_gb`` that it
    writes; ``fixes``, the fix for a missing secret, input or image, by its name, and at ENVIRONMENT for a missing
    Python environment. ``slurm_args`` are those of the command line, kept for every attempt. ``vboost``: a Slurm
    cluster first raises the GPUs' vboost on each node; ``container_writable``: whether ranks may write into the image's
    own folders, None where not set; llmb sets both, and the job's mounts. ``changed_by``: the fields that plugins named
    in cluster_config.yaml changed, by plugin.
    """

    name: str
    nodes: int
    ranks_per_node: int
    time_limit: int
    program: Program
    args: tuple[str, ...] = ()
    start: Start = "ranks"
    server: Server | None = None
    after: Program | None = None
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
    changed_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_types(self)
        _check_count(self, "nodes", "ranks_per_node", "time_limit")
        if self.name in ("", ".", "..") or "/" in self.name:
            message, hint = f"'{self.name}' is not a folder's name", "as a rule job.experiment_name"
            raise KeyFaultError(message, "name", hint=hint, code="name-invalid", value=self.name)
        if self.server is not None and self.server.on_every_rank and self.start == "once":
            message, hint = "Launch.server is for every rank, and start is 'once'", "start='ranks' or 'mpi'"
            raise KeyFaultError(message, "server", hint=hint, code="value-invalid", value=self.start)
        _check_distinct(self.files, PurePosixPath(f"launch_{self.name}"))

    @property
    def programs(self) -> tuple[Program, ...]:
        """Every program that it starts: its own, the server's, and the one that runs after it."""
        server = self.server.program if self.server is not None else None
        return tuple(one for one in (self.program, server, self.after) if one is not None)


def _check_count(value: object, *names: str) -> None:
    """Raise KeyFaultError unless the fields ``names`` are 1 or more."""
    for name in names:
        if (number := getattr(value, name)) < 1:
            message = f"{type(value).__name__}.{name} must be at least 1, not {number}"
            raise KeyFaultError(message, name, code="value-invalid", value=number)


def _check_distinct(staged: tuple[StagedFile, ...], script: PurePosixPath) -> None:
    """Raise KeyFaultError for two files with one name, or a file in whose place another needs a folder.

    ``script``: the run's own, which is in the same folder from the second attempt on.
    """
    seen: set[tuple[str, ...]] = {script.parts}
    folders: set[tuple[str, ...]] = {()}
    for parts in (PurePosixPath(one.name).parts for one in staged):
        above = {parts[:length] for length in range(len(parts))}
        if parts in seen or parts in folders or not seen.isdisjoint(above):
            path = str(PurePosixPath(*parts))
            message, hint = f"two files have the path '{path}'", "give each its own name"
            raise KeyFaultError(message, "files", hint=hint, code="file-duplicate", value=path)
        seen.add(parts)
        folders |= above


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


ENVIRONMENT = "environment"  # in the fixes of a launch
PREVIEW_ID = "<id>"
PREVIEW_TIMESTAMP = "<timestamp>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A cluster as a plugin's hooks see it.

    ``traits``: how workloads run there, None for those of ``cluster_type`` if it is llmb's own; ``runs`` is either.
    ``gpu_type``: the type whose rows apply (of a type ``like`` another, that one); ``container``: ranks start inside an
    image; ``venv``: the installed environment of this workload, if any; ``venvs``: by name, where it has several;
    ``assets``: the installed folders of a model hub's repositories, by the hub's names; ``repos``: the checkouts of git
    repositories, by URL; ``mpi``: srun's MPI plugin, None without; ``environment``: the cluster's and the workload's
    variables, merged; ``settings``: versions chosen at installation; ``plugins``: the sections of all plugins in
    cluster_config.yaml; ``own_settings``: that of the plugin that is asked, read into its dataclass, for ``own``.
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
    repos: Mapping[str, Path] = field(default_factory=dict)
    mpi: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    traits: ClusterTraits | None = None
    plugins: Mapping[str, Any] = field(default_factory=dict)
    own_settings: object = None

    @property
    def runs(self) -> ClusterTraits:
        """How workloads run there."""
        if self.traits is not None:
            return self.traits
        kind = own_types().get(self.cluster_type)
        return kind.traits_of(None) if kind is not None else ClusterTraits()

    def own(self, kind: type[T]) -> T:
        """The plugin's own settings, of the class that its ``llmb_settings`` returns."""
        if self.own_settings is None:
            raise TypeError(f"the plugin has no settings: add an llmb_settings that returns {kind.__name__}")
        if not isinstance(self.own_settings, kind):
            raise TypeError(f"the plugin's settings are {self.own_settings!r}, not a {kind.__name__}")
        return self.own_settings

    @property
    def has_pmix(self) -> bool:
        """Whether PMIx starts the ranks, so that a library may set up MPI between them."""
        return self.mpi is not None and self.mpi.startswith("pmix")  # srun also knows pmix_v4 and the like
