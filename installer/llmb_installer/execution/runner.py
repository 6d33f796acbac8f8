# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of a step: on this machine, or on a node of the cluster through srun or sbatch."""

import contextlib
import re
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmb.errors import LlmbError
from llmb.system import files, shell
from llmb.text import yamlfile
from llmb_installer.registry import size

_MINUTES = 120  # time limit of a job on a node


class NoNodeError(LlmbError):
    """Slurm allocated no node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Runs programs on this machine; its subclasses on a node, which sees the install directory under the same path."""

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
        """Run a program, its output appended to ``log``; its exit code. Raises StoppedError, LlmbError.

        ``tick`` is called now and then while it runs.
        """
        umask = files.umask_in(log.parent, files.own_umask())  # Slurm passes it on to the node
        return shell.run_logged(argv, log, env=env, cwd=cwd, stop=stop, umask=umask, tick=tick)

    def read(self, argv: Sequence[str], *, env: Mapping[str, str], stop: threading.Event) -> shell.Completed:
        """Run a program that ends at once, and collect its output; a node may let it wait.

        Raises StoppedError, LlmbError when it cannot be started.
        """
        return shell.run(argv, env=env, timeout=120)


_Logs = tuple[Path, Path, Path]


def _collected(run: Callable[[_Logs], int], program: str, folder: Path) -> shell.Completed:
    """What ``run`` leaves in three files below ``folder``: the program's output and errors, and what ``program`` (srun
    or sbatch) reports itself. Raises NoNodeError."""
    name = uuid.uuid4().hex[:8]
    logs = (folder / f".{name}.out", folder / f".{name}.err", folder / f".{name}.log")
    try:
        code = run(logs)
        out, err, own = (path.read_text("utf-8", "replace") if path.exists() else "" for path in logs)
        _answered(shell.Completed(argv=(program,), code=code, out="", err=own))
        return shell.Completed(argv=(program,), code=code, out=out, err=err + own)
    finally:
        for path in logs:
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Srun(Runner):
    """A node that srun allocates with ``options``, such as ``--partition=batch``."""

    options: tuple[str, ...]

    @property
    def where(self) -> str:
        """The command that allocates the node."""
        return f"srun {' '.join(self.options)}".rstrip()

    def _argv(self, argv: Sequence[str], *more: str) -> list[str]:
        job = ("--job-name=llmb-install", f"--time={_MINUTES}", "--nodes=1", "--ntasks=1", "--quiet")
        return ["srun", *job, *more, *self.options, *argv]

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
        """Run a program on a node."""
        return Runner.run(self, self._argv(argv), log, env=env, cwd=cwd, stop=stop, tick=tick)

    def read(self, argv: Sequence[str], *, env: Mapping[str, str], stop: threading.Event) -> shell.Completed:
        def run(logs: _Logs) -> int:
            out, err, own = logs
            return Runner.run(
                self, self._argv(argv, f"--output={out}", f"--error={err}"), own, env=env, cwd=None, stop=stop
            )

        with tempfile.TemporaryDirectory() as folder:
            return _collected(run, "srun", Path(folder))


_jobs: dict[str, Mapping[str, str]] = {}  # names of batch jobs that run now, with their environments


def cancel_jobs() -> None:
    """Cancel the batch jobs that run now: sbatch, when it is killed, leaves its job."""
    for name, env in [*_jobs.items()]:
        with contextlib.suppress(LlmbError):
            shell.run(["scancel", f"--name={name}"], env=env, timeout=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sbatch(Runner):
    """A node that sbatch allocates with ``options``; ``folder`` is shared with it, for the output of jobs."""

    options: tuple[str, ...]
    folder: Path

    @property
    def where(self) -> str:
        """The command that allocates the node."""
        return f"sbatch {' '.join(self.options)}".rstrip()

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
        """Run a program as a batch job."""
        return self._run(argv, (log, log, log), env=env, cwd=cwd, stop=stop, tick=tick)

    def _run(
        self,
        argv: Sequence[str],
        logs: _Logs,
        *,
        env: Mapping[str, str],
        cwd: Path | None,
        stop: threading.Event,
        tick: Callable[[], None] | None = None,
    ) -> int:
        """Run a program as a batch job, which is cancelled where ``stop`` is set, or by ``cancel_jobs``."""
        out, err, own = logs
        name = f"llmb-install-{uuid.uuid4().hex[:8]}"
        _jobs[name] = env
        try:
            return Runner.run(self, self._argv(argv, out, err, name), own, env=env, cwd=cwd, stop=stop, tick=tick)
        except shell.StoppedError:
            shell.run(["scancel", f"--name={name}"], env=env)
            raise
        finally:
            _jobs.pop(name, None)

    def read(self, argv: Sequence[str], *, env: Mapping[str, str], stop: threading.Event) -> shell.Completed:
        files.make_folder(self.folder)
        return _collected(lambda logs: self._run(argv, logs, env=env, cwd=None, stop=stop), "sbatch", self.folder)

    def _argv(self, argv: Sequence[str], out: Path, err: Path, name: str) -> list[str]:
        script = self.folder / "run-argv.sh"
        if not script.exists():
            files.write_text(
                script, '#!/bin/bash\n# Runs the program that its arguments name.\nexec "$@"\n', mode=0o755
            )
            files.share_tree(self.folder)
        job = (f"--job-name={name}", f"--time={_MINUTES}", "--nodes=1", "--ntasks=1", "--open-mode=append")
        logs = (f"--output={out}", f"--error={err}")
        return ["sbatch", "--wait", "--quiet", *job, *logs, *self.options, str(script), *argv]


def _answered(done: shell.Completed) -> shell.Completed:
    """``done``, of srun or sbatch. Raises NoNodeError where they did not run the program at all."""
    if done.code != 0 and re.search(r"Unable to allocate resources|job submission failed", done.err):
        message = f"{done.argv[0]} allocated no node:\n{end_of(done.err)}"
        raise NoNodeError(message, hint=fix_for(done.err), code="no-node")
    return done


TAIL, WIDTH = 8, 300  # lines of the log that an error shows, and characters of each
FULL = 20_000_000  # free bytes below which a disk is taken for full

# How uv and pip name the package that they cannot build; and omitted lines: pip's progress, and a warning of Python's
# with the call that it quotes below.
_BUILT = re.compile(
    r"(?:Failed to build |Failed building wheel for |Building wheel for )[`']?([\w.\-]+(?:==[\w.+!]+)?)"
)
_WARNING = re.compile(r"^Progress \d+ of \d+$|:\d+: \w*Warning: |^\s+(?:(?:dist|self)\._finalize_\w+|warnings\.warn)\(")


def full_disk(folder: Path, environ: Mapping[str, str]) -> str | None:
    """The fix where a disk is full: not every program reports that as its reason to fail."""
    for place in (folder, Path(environ.get("TMPDIR") or "/tmp")):
        free = shutil.disk_usage(place).free if place.is_dir() else FULL
        if free < FULL:
            return f"free space on the disk of {place}, which has {size(free)} left"
    return None


def fix_for(output: str) -> str:
    """The fix for the output of a failed program."""
    rows = yamlfile.load(Path(__file__).with_name("fixes.yaml")).data["fixes"]
    return next(
        (row["fix"] for row in rows if any(text in output for text in row["printed"])), "correct what it reports"
    )


def end_of(output: str) -> str:
    """The last relevant lines of ``output``, below the name of the package that failed to build.

    Of pip's attempts to connect only the last is shown, and no warning of setuptools.
    """
    lines = [line for line in _without_notices(output) if line.strip()]
    trials = [line for line in lines if line.startswith("WARNING: Retrying")]
    shown = [line for line in lines if line not in trials[:-1]][-TAIL:]
    named = [match[1] for match in _BUILT.finditer(output)]
    if named and not any(named[-1] in line for line in shown):
        shown = [f"building {named[-1]}:", *shown]
    return "\n".join(f"  {line[:WIDTH]}" for line in shown)


def _without_notices(output: str) -> Iterator[str]:
    """The lines without Python's warnings; setuptools frames the text of its own with ``!!``."""
    is_framed = False
    for line in output.splitlines():
        if line.strip() == "!!":
            is_framed = not is_framed
        elif not is_framed and _WARNING.search(line) is None:
            yield line
