# SPDX-License-Identifier: Apache-2.0
"""Runs programs of a step, here or on a node, and finds the fix for what a failed one prints."""

import contextlib
import re
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from llmb.core import files, permissions, shell, yamlfile
from llmb.core.units import bytes_in_words
from llmb.core.values import dataclass
from llmb.errors import LlmbError

TAIL, WIDTH = 8, 300  # lines of the log that an error shows, and characters of each
FULL = 20_000_000  # free bytes below which a disk is taken for full
# How uv and pip name the package that they cannot build; and omitted lines: pip's progress, and a
# warning of Python's with the call that it quotes below.
_BUILT = re.compile(
    r"(?:Failed to build |Failed building wheel for |Building wheel for"
    r" )[`']?([\w.\-]+(?:==[\w.+!]+)?)"
)
_WARNING = re.compile(
    r"^Progress \d+ of \d+$|:\d+: \w*Warning:"
    r" |^\s+(?:(?:dist|self)\._finalize_\w+|warnings\.warn)\("
)


def full_disk(folder: Path, environ: Mapping[str, str]) -> str | None:
    """Return the fix if a disk is full: not every program reports that as its reason to fail."""
    for disk in (folder, Path(environ.get("TMPDIR") or "/tmp")):
        free = shutil.disk_usage(disk).free if disk.is_dir() else FULL
        if free < FULL:
            return f"free space on the disk of {disk}, which has {bytes_in_words(free)} left"
    return None


def fix_for(output: str) -> str:
    rows = yamlfile.load_packaged(Path(__file__).with_name("fixes.yaml")).data["fixes"]
    return next(
        (row["fix"] for row in rows if any(text in output for text in row["printed"])),
        "fix what it reports",
    )


def end_of(output: str) -> str:
    """Return the last relevant lines of ``output``, below the package that failed to build.

    Of pip's attempts to connect only the last is shown, and no warning of setuptools.
    """
    lines = [line for line in _without_notices(output) if line.strip()]
    retries = [line for line in lines if line.startswith("WARNING: Retrying")]
    shown = [line for line in lines if line not in retries[:-1]][-TAIL:]
    package_names = [match[1] for match in _BUILT.finditer(output)]
    if package_names and not any(package_names[-1] in line for line in shown):
        shown = [f"building {package_names[-1]}:", *shown]
    return "\n".join(f"  {line[:WIDTH]}" for line in shown)


def _without_notices(output: str) -> Iterator[str]:
    """Yield the lines without Python's warnings. setuptools frames its text with ``!!``."""
    is_framed = False
    for line in output.splitlines():
        if line.strip() == "!!":
            is_framed = not is_framed
        elif not is_framed and _WARNING.search(line) is None:
            yield line


_MINUTES = 120  # time limit of a job on a node


class NoNodeError(LlmbError):
    """Slurm allocated no node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Runs programs on this machine. Subclasses run them on a node.

    A node sees the install directory under the same path.
    """

    @property
    def where(self) -> str:
        """The machine, for messages."""
        return "here"

    def run(
        self,
        argv: Sequence[str],
        log: Path,
        *,
        env: Mapping[str, str],
        cwd: Path | None,
        stop: threading.Event,
        tick: Callable[[], None] | None = None,
    ) -> int:
        """Run a program, append its output to ``log``, and return its exit code.

        ``tick`` is called now and then while it runs. Raises StoppedError, LlmbError.
        """
        # Slurm passes it on to the node
        umask = permissions.umask_in(log.parent, permissions.own_umask())
        with self._started(argv, log, env) as started:
            return shell.run_logged(
                started, log, env=env, cwd=cwd, stop=stop, umask=umask, tick=tick
            )

    def _started(
        self, argv: Sequence[str], log: Path, env: Mapping[str, str]
    ) -> contextlib.AbstractContextManager[Sequence[str]]:
        """Yield the command that runs ``argv`` there, for as long as it runs."""
        return contextlib.nullcontext(argv)

    def read(
        self, argv: Sequence[str], *, env: Mapping[str, str], stop: threading.Event
    ) -> shell.Completed:
        """Run a program that ends at once, and collect its output. It may have to wait for a node.

        Raises StoppedError, LlmbError if it cannot be started.
        """
        return shell.run(argv, env=env, timeout=120)


# a program's output, its errors, and what srun or sbatch reports itself
_Logs = tuple[Path, Path, Path]


def _collected(run: Callable[[_Logs], int], program: str, folder: Path) -> shell.Completed:
    """Return what ``run`` leaves in files below ``folder``; ``program`` is srun or sbatch.

    Raises NoNodeError.
    """
    name = uuid.uuid4().hex[:8]
    logs = (folder / f".{name}.out", folder / f".{name}.err", folder / f".{name}.log")
    try:
        code = run(logs)
        out, err, slurm_output = (
            path.read_text("utf-8", "replace") if path.exists() else "" for path in logs
        )
        if code != 0 and re.search(
            r"Unable to allocate resources|job submission failed", slurm_output
        ):
            message = f"{program} allocated no node:\n{end_of(slurm_output)}"
            raise NoNodeError(message, hint=fix_for(slurm_output), code="no-node")
        return shell.Completed(argv=(program,), code=code, out=out, err=err + slurm_output)
    finally:
        for path in logs:
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Srun(Runner):
    """A node that srun allocates with ``options``, such as ``--partition=batch``."""

    options: tuple[str, ...]

    @property
    def where(self) -> str:
        return f"srun {' '.join(self.options)}".rstrip()

    def _argv(self, argv: Sequence[str], *output_options: str) -> list[str]:
        job = (
            "--job-name=llmb-install",
            f"--time={_MINUTES}",
            "--nodes=1",
            "--ntasks=1",
            "--quiet",
        )
        return ["srun", *job, *output_options, *self.options, *argv]

    def _started(
        self, argv: Sequence[str], log: Path, env: Mapping[str, str]
    ) -> contextlib.AbstractContextManager[Sequence[str]]:
        return contextlib.nullcontext(self._argv(argv))

    def read(
        self, argv: Sequence[str], *, env: Mapping[str, str], stop: threading.Event
    ) -> shell.Completed:
        def run(logs: _Logs) -> int:
            out, err, own_log = logs
            command = self._argv(argv, f"--output={out}", f"--error={err}")
            return shell.run_logged(command, own_log, env=env, stop=stop)

        with tempfile.TemporaryDirectory() as folder:
            return _collected(run, "srun", Path(folder))


# names of batch jobs that run now, with the option for their cluster and their environments
_jobs: dict[str, tuple[tuple[str, ...], Mapping[str, str]]] = {}


def cancel_jobs() -> None:
    """Cancel the batch jobs that run now: sbatch, when it is killed, leaves its job."""
    for name, (cluster, env) in [*_jobs.items()]:
        _cancel(name, cluster, env)


_PATIENCE = 5.0  # seconds that scancel may take


def _cancel(name: str, cluster: tuple[str, ...], env: Mapping[str, str]) -> None:
    with contextlib.suppress(LlmbError):  # the program ends in any case
        shell.run(["scancel", *cluster, f"--name={name}"], env=env, timeout=_PATIENCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sbatch(Runner):
    """A node that sbatch allocates with ``options``. ``folder`` is shared for jobs' output."""

    options: tuple[str, ...]
    folder: Path

    @property
    def where(self) -> str:
        return f"sbatch {' '.join(self.options)}".rstrip()

    def _started(
        self, argv: Sequence[str], log: Path, env: Mapping[str, str]
    ) -> contextlib.AbstractContextManager[Sequence[str]]:
        return self._job(argv, log, log, env)

    @contextlib.contextmanager
    def _job(
        self, argv: Sequence[str], out: Path, err: Path, env: Mapping[str, str]
    ) -> Iterator[Sequence[str]]:
        """Yield a batch job's command. It is cancelled by ``stop`` and by ``cancel_jobs``."""
        name = f"llmb-install-{uuid.uuid4().hex[:8]}"
        cluster = tuple(option for option in self.options if option.startswith("--clusters="))
        _jobs[name] = cluster, env
        try:
            yield self._argv(argv, out, err, name)
        except shell.StoppedError:
            _cancel(name, cluster, env)
            raise
        finally:
            _jobs.pop(name, None)

    def read(
        self, argv: Sequence[str], *, env: Mapping[str, str], stop: threading.Event
    ) -> shell.Completed:
        files.make_folder(self.folder)

        def run(logs: _Logs) -> int:
            out, err, own_log = logs
            with self._job(argv, out, err, env) as started:
                return shell.run_logged(started, own_log, env=env, stop=stop)

        return _collected(run, "sbatch", self.folder)

    def _argv(self, argv: Sequence[str], out: Path, err: Path, name: str) -> list[str]:
        script = self.folder / "run-argv.sh"
        if not script.exists():
            files.write_text(
                script,
                '#!/bin/bash\n# Runs the program that its arguments name.\nexec "$@"\n',
                mode=0o755,
            )
            permissions.share_tree(self.folder)
        job = (
            f"--job-name={name}",
            f"--time={_MINUTES}",
            "--nodes=1",
            "--ntasks=1",
            "--open-mode=append",
        )
        logs = (f"--output={out}", f"--error={err}")
        return ["sbatch", "--wait", "--quiet", *job, *logs, *self.options, str(script), *argv]
