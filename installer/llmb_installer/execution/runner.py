# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of a step, here or on a node by srun or sbatch, and finds the fix for what a failed one prints."""

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
from llmb.system import files, permissions, shell
from llmb.text import yamlfile
from llmb.text.units import bytes_in_words

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
            return f"free space on the disk of {place}, which has {bytes_in_words(free)} left"
    return None


def fix_for(output: str) -> str:
    rows = yamlfile.load(Path(__file__).with_name("fixes.yaml")).data["fixes"]
    return next((row["fix"] for row in rows if any(text in output for text in row["printed"])), "fix what it reports")


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
        umask = permissions.umask_in(log.parent, permissions.own_umask())  # Slurm passes it on to the node
        with self._started(argv, log, env) as started:
            return shell.run_logged(started, log, env=env, cwd=cwd, stop=stop, umask=umask, tick=tick)

    def _started(
        self, argv: Sequence[str], log: Path, env: Mapping[str, str]
    ) -> contextlib.AbstractContextManager[Sequence[str]]:
        """The command that runs ``argv`` there, for as long as it runs."""
        return contextlib.nullcontext(argv)

    def read(self, argv: Sequence[str], *, env: Mapping[str, str], stop: threading.Event) -> shell.Completed:
        """Run a program that ends at once, and collect its output; it may have to wait for a node.

        Raises StoppedError, LlmbError when it cannot be started.
        """
        return shell.run(argv, env=env, timeout=120)


_Logs = tuple[Path, Path, Path]  # a program's output, its errors, and what srun or sbatch reports itself


def _collected(run: Callable[[_Logs], int], program: str, folder: Path) -> shell.Completed:
    """What ``run`` leaves in files below ``folder``; ``program`` is srun or sbatch. Raises NoNodeError."""
    name = uuid.uuid4().hex[:8]
    logs = (folder / f".{name}.out", folder / f".{name}.err", folder / f".{name}.log")
    try:
        code = run(logs)
        out, err, own = (path.read_text("utf-8", "replace") if path.exists() else "" for path in logs)
        if code != 0 and re.search(r"Unable to allocate resources|job submission failed", own):
            message = f"{program} allocated no node:\n{end_of(own)}"
            raise NoNodeError(message, hint=fix_for(own), code="no-node")
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
        return f"srun {' '.join(self.options)}".rstrip()

    def _argv(self, argv: Sequence[str], *more: str) -> list[str]:
        job = ("--job-name=llmb-install", f"--time={_MINUTES}", "--nodes=1", "--ntasks=1", "--quiet")
        return ["srun", *job, *more, *self.options, *argv]

    def _started(
        self, argv: Sequence[str], log: Path, env: Mapping[str, str]
    ) -> contextlib.AbstractContextManager[Sequence[str]]:
        return contextlib.nullcontext(self._argv(argv))

    def read(self, argv: Sequence[str], *, env: Mapping[str, str], stop: threading.Event) -> shell.Completed:
        def run(logs: _Logs) -> int:
            out, err, own = logs
            command = self._argv(argv, f"--output={out}", f"--error={err}")
            return shell.run_logged(command, own, env=env, stop=stop)

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
        return f"sbatch {' '.join(self.options)}".rstrip()

    def _started(
        self, argv: Sequence[str], log: Path, env: Mapping[str, str]
    ) -> contextlib.AbstractContextManager[Sequence[str]]:
        return self._job(argv, log, log, env)

    @contextlib.contextmanager
    def _job(self, argv: Sequence[str], out: Path, err: Path, env: Mapping[str, str]) -> Iterator[Sequence[str]]:
        """A batch job, which is cancelled when the program is to stop, and by ``cancel_jobs``."""
        name = f"llmb-install-{uuid.uuid4().hex[:8]}"
        _jobs[name] = env
        try:
            yield self._argv(argv, out, err, name)
        except shell.StoppedError:
            shell.run(["scancel", f"--name={name}"], env=env)
            raise
        finally:
            _jobs.pop(name, None)

    def read(self, argv: Sequence[str], *, env: Mapping[str, str], stop: threading.Event) -> shell.Completed:
        files.make_folder(self.folder)

        def run(logs: _Logs) -> int:
            out, err, own = logs
            with self._job(argv, out, err, env) as started:
                return shell.run_logged(started, own, env=env, stop=stop)

        return _collected(run, "sbatch", self.folder)

    def _argv(self, argv: Sequence[str], out: Path, err: Path, name: str) -> list[str]:
        script = self.folder / "run-argv.sh"
        if not script.exists():
            files.write_text(
                script, '#!/bin/bash\n# Runs the program that its arguments name.\nexec "$@"\n', mode=0o755
            )
            permissions.share_tree(self.folder)
        job = (f"--job-name={name}", f"--time={_MINUTES}", "--nodes=1", "--ntasks=1", "--open-mode=append")
        logs = (f"--output={out}", f"--error={err}")
        return ["sbatch", "--wait", "--quiet", *job, *logs, *self.options, str(script), *argv]
