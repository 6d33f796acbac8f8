# SPDX-License-Identifier: Apache-2.0
"""A command: the part of a launch that a benchmark decides, also the key `launch` of its YAML."""

import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import PurePosixPath
from typing import Literal

from llmb.core.checked import check_types
from llmb.core.values import dataclass
from llmb.errors import KeyFaultError

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
        check_count(self, "ready_seconds")


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
    r"|(llmb-run|state|scheduler|cancel|summary|reader)\.json"
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
            raise KeyFaultError(
                f"'{self.name}' is not a file below the run's folder",
                "name",
                hint="name it without a folder",
                code="file-outside",
                value=self.name,
            )
        if _OWN_FILE.fullmatch(str(path)):
            raise KeyFaultError(
                f"'{self.name}' is a name that llmb uses in the run's folder",
                "name",
                hint="choose another name",
                code="file-reserved",
                value=self.name,
            )


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
            raise KeyFaultError(
                f"{type(self).__name__}.server is for every rank, and start is 'once'",
                "server",
                hint="start='ranks' or 'mpi'",
                code="value-invalid",
                value=self.start,
            )

    @property
    def programs(self) -> tuple[Program, ...]:
        """Every program that it starts: its own, the server's, and the one that runs after it."""
        server = self.server.program if self.server is not None else None
        return tuple(
            program for program in (self.program, server, self.after) if program is not None
        )


def check_count(value: object, *names: str) -> None:
    """Raise KeyFaultError unless the fields ``names`` are 1 or more."""
    for name in names:
        if (number := getattr(value, name)) < 1:
            message = f"{type(value).__name__}.{name} must be at least 1, not {number}"
            raise KeyFaultError(message, name, code="value-invalid", value=number)
