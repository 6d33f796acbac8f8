# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of a step: on this machine, or on a node of the cluster through srun or sbatch."""

import contextlib
import re
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from llmb.errors import LlmbError
from llmb.system import files, shell
from llmb.system.shell import Completed
from llmb_installer.execution.fixes import end_of, fix_for, full_disk

_MINUTES = 120  # that a job on a node may take


class NoNodeError(LlmbError):
    """Slurm gives no node to run on."""


class Runner(Protocol):
    """Runs programs to their ends somewhere; folders of the install directory are the same there."""

    @property
    def where(self) -> str:
        """The place in words: ``here`` is this machine."""

    def run(
        self, argv: Sequence[str], log: Path, *, env: Mapping[str, str], cwd: Path | None, stop: threading.Event
    ) -> int:
        """Run a program with its output appended to ``log``; its exit code. Raises StoppedError, LlmbError."""

    def read(self, argv: Sequence[str], *, env: Mapping[str, str]) -> Completed:
        """Run a program that answers at once. Raises LlmbError when it cannot be started."""


@dataclass(frozen=True, slots=True)
class Here:
    """This machine."""

    where: str = "here"

    def run(
        self, argv: Sequence[str], log: Path, *, env: Mapping[str, str], cwd: Path | None, stop: threading.Event
    ) -> int:
        """Run a program of this machine."""
        return shell.run_logged(argv, log, env=env, cwd=cwd, stop=stop, umask=_umask(log))

    def read(self, argv: Sequence[str], *, env: Mapping[str, str]) -> Completed:
        """Run a program of this machine that answers at once."""
        return shell.run(argv, env=env, timeout=120)


@dataclass(frozen=True, slots=True, kw_only=True)
class Srun:
    """A node of a Slurm cluster; ``options`` choose it, as sbatch has them: ``--partition=batch``."""

    options: tuple[str, ...]

    @property
    def where(self) -> str:
        """How the node is reached."""
        return f"srun {' '.join(self.options)}".rstrip()

    def _argv(self, argv: Sequence[str]) -> list[str]:
        job = ("--job-name=llmb-install", f"--time={_MINUTES}", "--nodes=1", "--ntasks=1", "--quiet")
        return ["srun", *job, *self.options, *argv]

    def run(
        self, argv: Sequence[str], log: Path, *, env: Mapping[str, str], cwd: Path | None, stop: threading.Event
    ) -> int:
        """Wait for a node and run a program there."""
        return shell.run_logged(self._argv(argv), log, env=env, cwd=cwd, stop=stop, umask=_umask(log))

    def read(self, argv: Sequence[str], *, env: Mapping[str, str]) -> Completed:
        """Wait for a node and run a program there."""
        return _answered(shell.run(self._argv(argv), env=env))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sbatch:
    """A node of a Slurm cluster that takes batch jobs alone; ``folder`` is shared with it, for what jobs print."""

    options: tuple[str, ...]
    folder: Path

    @property
    def where(self) -> str:
        """How the node is reached."""
        return f"sbatch {' '.join(self.options)}".rstrip()

    def run(
        self, argv: Sequence[str], log: Path, *, env: Mapping[str, str], cwd: Path | None, stop: threading.Event
    ) -> int:
        """Submit a program as a job and wait for its end."""
        name = f"llmb-install-{uuid.uuid4().hex[:8]}"
        try:
            return shell.run_logged(
                self._argv(argv, log, log, name), log, env=env, cwd=cwd, stop=stop, umask=_umask(log)
            )
        except shell.StoppedError:
            shell.run(["scancel", f"--name={name}"], env=env)
            raise

    def read(self, argv: Sequence[str], *, env: Mapping[str, str]) -> Completed:
        """Submit a program as a job, wait for its end, and read what it printed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name = uuid.uuid4().hex[:8]
        out, err = self.folder / f".{name}.out", self.folder / f".{name}.err"
        try:
            done = shell.run(self._argv(argv, out, err), env=env)
            told = [path.read_text("utf-8", "replace") if path.exists() else "" for path in (out, err)]
            _answered(done)
            return Completed(argv=tuple(argv), code=done.code, out=told[0], err=told[1] + done.err)
        finally:
            for path in (out, err):
                path.unlink(missing_ok=True)

    def _argv(self, argv: Sequence[str], out: Path, err: Path, name: str = "llmb-install") -> list[str]:
        script = self.folder / "run-argv.sh"
        if not script.exists():
            files.write_text(script, '#!/bin/bash\n# Runs the program that its arguments are.\nexec "$@"\n', mode=0o755)
        job = (f"--job-name={name}", f"--time={_MINUTES}", "--nodes=1", "--ntasks=1", "--open-mode=append")
        return [
            "sbatch",
            "--wait",
            "--quiet",
            *job,
            f"--output={out}",
            f"--error={err}",
            *self.options,
            str(script),
            *argv,
        ]


def _umask(log: Path) -> int:
    """The umask of programs whose log is in an install directory; Slurm passes it on to the node."""
    return files.umask_in(log.parent, files.own_umask())


def _answered(done: Completed) -> Completed:
    """What srun or sbatch came to. Raises NoNodeError where they have not run the program at all."""
    if done.code != 0 and re.search(r"Unable to allocate resources|job submission failed", done.err):
        raise NoNodeError(f"{done.argv[0]} gets no node:\n{end_of(done.err)}", hint=fix_for(done.err))
    return done


class Place(Protocol):
    """The part of a step's Context that its programs need."""

    @property
    def log(self) -> Path:
        """Where their output goes."""

    @property
    def runner(self) -> Runner:
        """Where they run."""

    @property
    def stop(self) -> threading.Event:
        """Set when the user has interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """The programs of one step, with the environment that they all have."""

    context: Place
    environ: Mapping[str, str] = field(repr=False)

    def run(self, what: str, argv: Sequence[str], *, cwd: Path | None = None) -> None:
        """Run one program. Raises LlmbError with ``what`` it was, the end of its output, and a fix."""
        log = self.context.log
        files.create_text(log, "")  # with the mode of the install directory
        before = log.stat().st_size
        code = self.context.runner.run(argv, log, env=self.environ, cwd=cwd, stop=self.context.stop)
        if code == 0:
            return
        told = ""
        with contextlib.suppress(FileNotFoundError), log.open("rb") as stream:
            stream.seek(before)
            told = end_of(stream.read().decode("utf-8", "replace"))
        ended = f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
        fix = full_disk(log.parent, self.environ) or fix_for(told)
        raise LlmbError(f"{what} {ended}:\n{told}", hint=f"{fix}; all of its output: {log}")

    def read(self, argv: Sequence[str]) -> Completed:
        """Run one program that answers at once, whatever its exit code."""
        return self.context.runner.read(argv, env=self.environ)
