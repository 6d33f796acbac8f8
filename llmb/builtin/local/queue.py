# SPDX-License-Identifier: Apache-2.0
"""The queue of one user on one machine: a folder of entries, outside every install, and the
supervisor's start.

The name of an entry begins with its position. An entry contains values of the submitting
environment, secrets among them, so only its user can read it, and it is removed as soon as its job
has started.
"""

import contextlib
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from llmb.core import files, locks, shell, typed
from llmb.core.process import host_name
from llmb.core.values import dataclass
from llmb.errors import LlmbError, os_errors

# What a program needs to run and to find its libraries.
BASE_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")
LOCK = "supervisor"
LOG = "supervisor.log"
_LOG_LIMIT = 256 * 1024  # bytes
_START_TIMEOUT = 10.0  # seconds


_ENTRIES, _BROKEN, _RUNNING = "queue", "broken", "running.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRun:
    """One waiting run: its folder, the command that starts its runner, and the submitter's
    environment and umask.
    """

    schema_version: int = 1
    id: str
    directory: Path
    argv: tuple[str, ...]
    environment: dict[str, str]
    umask: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The run that the supervisor took out of the queue. It may have ended."""

    id: str
    directory: Path


def state_folder(environ: Mapping[str, str]) -> Path:
    """The folder of this user's queue on this machine: LLMB_STATE_DIR, else the XDG state
    folder.
    """
    if folder := environ.get("LLMB_STATE_DIR"):
        return files.expand(folder).absolute()
    root = files.at_home(environ.get("XDG_STATE_HOME") or "~/.local/state")
    return root / "llmb" / host_name()


def base_environment(environ: Mapping[str, str], names: tuple[str, ...] = ()) -> dict[str, str]:
    """The part of ``environ`` that every program needs, and the variables ``names``."""
    return {name: environ[name] for name in (*BASE_VARIABLES, *names) if name in environ}


def make_folder(folder: Path) -> None:
    """Make the state folder, for its user alone. Raises LlmbError."""
    hint = "set LLMB_STATE_DIR to another folder"
    with os_errors(
        f"{folder} cannot be written", hint=hint, code="folder-not-writable", value=str(folder)
    ):
        (folder / _ENTRIES).mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)


def add(folder: Path, entry: WaitingRun) -> None:
    """Append an entry to the queue. One that waits already keeps its position. Raises LlmbError."""
    waiting = entries(folder)
    if entry.id in {run_id(path) for path in waiting}:
        return
    last = _position(waiting[-1]) if waiting else 0
    position = max(time.time_ns(), last + 1)  # also after the clock was set back
    files.write_json(
        folder / _ENTRIES / f"{position:020d}-{entry.id}.json", typed.to_data(entry), mode=0o600
    )


def entries(folder: Path) -> list[Path]:
    """The entries, the next one first."""
    return sorted((folder / _ENTRIES).glob("*.json"))


def run_id(path: Path) -> str:
    """The id of the run that an entry is for."""
    return path.stem.partition("-")[2]


def read(path: Path) -> WaitingRun | None:
    """An entry, or None when it was removed. Raises LlmbError for an invalid one, whose content the
    message omits.
    """
    try:
        return typed.read_json(WaitingRun, path)
    except LlmbError:
        message = f"{path} is not a valid entry of the queue"
        raise LlmbError(message, code="entry-invalid", value=str(path)) from None


def remove(folder: Path, wanted_id: str) -> None:
    """Remove the run of this id from the queue, if it is there."""
    for path in entries(folder):
        if run_id(path) == wanted_id:
            path.unlink(missing_ok=True)


def set_aside(path: Path) -> Path:
    """Move an entry that cannot be read out of the queue. Return its new path."""
    broken = path.parent.parent / _BROKEN
    broken.mkdir(exist_ok=True)
    return path.replace(broken / path.name)


def clean_up(folder: Path) -> None:
    """Remove half-written entries of submissions that were killed over an hour ago: they may
    contain secrets.
    """
    for part in (folder / _ENTRIES).glob(".*.part"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - part.stat().st_mtime > 3600:
                part.unlink()


def set_running(folder: Path, running: Running | None) -> None:
    """Record which run is active, None when none is. Raises LlmbError."""
    if running is None:
        with contextlib.suppress(FileNotFoundError):
            (folder / _RUNNING).unlink()
    else:
        files.write_json(folder / _RUNNING, typed.to_data(running))


def running(folder: Path) -> Running | None:
    """Return the active run, None also if the file is not readable: the run's folder has
    everything.
    """
    try:
        return typed.read_json(Running, folder / _RUNNING)
    except LlmbError:
        return None


def has_work(folder: Path) -> bool:
    """Return True if a run waits, or was active when a supervisor ended."""
    return (folder / _RUNNING).exists() or bool(entries(folder))


def ahead(folder: Path) -> dict[str, int]:
    """The number of jobs before each waiting one, by its id."""
    active = running(folder)
    waiting = [run_id(path) for path in entries(folder)]
    first = 1 if active is not None and active.id not in waiting else 0
    return {id_: number for number, id_ in enumerate(waiting, first)}


def _position(path: Path) -> int:
    digits = path.stem.partition("-")[0]
    return int(digits) if digits.isdigit() else 0


def ensure_supervisor(folder: Path, environ: Mapping[str, str], *, idle: float) -> None:
    """Start a supervisor for the queue in ``folder`` unless one holds its lock. It ends after
    ``idle`` idle seconds.

    Raises LlmbError when it does not start, DiskFullError on a full disk.

    Call it after the entry was written: a supervisor looks at the queue once more after releasing
    the lock, so either it sees the entry, or this function finds the lock free.
    """
    if locks.holder(folder, LOCK) is not None:
        return
    files.check_space(folder)  # else its lock could not be written
    log = folder / LOG
    files.rotate(log, limit=_LOG_LIMIT)
    argv = [sys.executable, "-P", "-m", "llmb.builtin.local.supervisor", str(folder), str(idle)]
    process = shell.spawn(argv, env=base_environment(environ), cwd=Path("/"), log=log, session=True)
    # Without waiting, each of many consecutive submissions would start one.
    deadline = time.monotonic() + _START_TIMEOUT
    while (
        process.poll() is None
        and locks.holder(folder, LOCK) is None
        and time.monotonic() < deadline
    ):
        time.sleep(0.01)
    if process.returncode:
        message = "the supervisor of this machine's jobs does not start"
        raise LlmbError(message, hint=f"{log} shows why", code="supervisor-failed", value=str(log))
    shell.let_go(process)
