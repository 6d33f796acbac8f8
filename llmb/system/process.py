# SPDX-License-Identifier: Apache-2.0
"""The identity of a process, which no later process shares, also after a reboot; and the end of marked processes."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psutil

# psutil is imported where it is needed: most commands do not, and its import is slow.
_PROC = Path("/proc")
_MOST = 2**31  # no process has a larger number
_SWEEP = 5.0  # seconds
_LOADING = 0.5  # seconds
_SAME_START = 2.0  # seconds: without /proc, a start time moves when the clock is set


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessId:
    """A process: host name, process id, start time and the boot it started under.

    ``start`` is only for comparison: seconds since the boot, which do not depend on the clock; since the epoch on
    systems without ``/proc``.
    """

    host: str
    pid: int
    start: float
    boot: str

    @classmethod
    def current(cls) -> ProcessId:
        """This process."""
        return _this_process(os.getpid())

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """The process ``pid`` of this host. Raises ProcessLookupError."""
        return cls(host=host_name(), pid=pid, start=_look(pid)[0], boot=boot_id())

    @classmethod
    def from_data(cls, data: Any) -> ProcessId:
        """The identity that was written with ``dataclasses.asdict``. Raises ValueError for anything else."""
        values = [data.get(name) for name in ("host", "pid", "start", "boot")] if isinstance(data, dict) else [None]
        match values:
            case [str(host), int(pid), int() | float() as start, str(boot)] if 0 < pid < _MOST:
                return cls(host=host, pid=pid, start=start, boot=boot)
        raise ValueError("this is not a process")

    @property
    def is_here(self) -> bool:
        """Whether it is a process of this host, so that ``is_alive`` can know."""
        return self.host == host_name()

    @property
    def is_of_this_boot(self) -> bool:
        """Whether it started after this host's last boot; only valid if ``is_here``."""
        return self.boot == boot_id()

    def is_alive(self) -> bool:
        """Whether this process runs (a zombie does not); only valid if ``is_here``.

        For another user's process that the system hides: whether any process has its number.
        """
        return self.is_of_this_boot and self._seen() is not False

    @property
    def is_hidden(self) -> bool:
        """Whether a process has this number, and the system hides which one (hidepid)."""
        return self.is_of_this_boot and self._seen() is None

    def _seen(self) -> bool | None:
        """Whether this process runs; None if the system hides that."""
        try:
            start, ended = _look(self.pid)
        except ProcessLookupError:
            return False
        except PermissionError:
            return None
        return not ended and abs(start - self.start) < _tolerance()

    def find(self) -> psutil.Process | None:
        """The process to signal; None if it has ended, also if another has its number by now."""
        import psutil

        try:
            process = psutil.Process(self.pid)
        except psutil.NoSuchProcess:
            return None
        return process if self.is_alive() else None


def is_at_work(program: str, endings: tuple[str, ...]) -> bool:
    """Whether ``program`` runs on this host with an argument that has one of these ``endings``."""
    import psutil

    lines = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
    return any(
        program in (Path(word).name for word in line) and any(word.endswith(endings) for word in line) for line in lines
    )


def kill_marked(name: str, value: str) -> int:
    """Kill every other process of this user in whose environment ``name`` is ``value``; the number killed."""
    import psutil

    deadline = time.monotonic() + _SWEEP
    killed: set[int] = set()
    while time.monotonic() < deadline:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):  # another user's, or one that has just ended
                if process.pid != os.getpid() and _environment_of(process).get(name) == value:
                    found.append(process)
                    process.kill()
        if not found:
            break
        killed.update(process.pid for process in found)
        psutil.wait_procs(found, timeout=0.1)
    return len(killed)


def _environment_of(process: psutil.Process) -> dict[str, str]:
    """The environment of a process; one that is being loaded shows neither that nor its arguments for a moment."""
    deadline = time.monotonic() + _LOADING
    while not (found := process.environ()):
        if process.cmdline() or not process.exe() or time.monotonic() > deadline:
            return process.environ()  # it may have been loaded in between
        time.sleep(0.001)
    return found


def _look(pid: int) -> tuple[float, bool]:
    """Start time of the process ``pid``, and whether it has ended (a zombie).

    Raises ProcessLookupError where there is none, PermissionError where /proc hides other users' processes.
    """
    if not _has_proc():
        return _look_without_proc(pid)
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, PermissionError, ProcessLookupError) as error:
        os.kill(pid, 0)  # whatever /proc hides, it raises ProcessLookupError or PermissionError
        raise PermissionError(pid) from error
    fields = text.rpartition(b")")[2].split()  # the name before it may contain anything
    return int(fields[19]) / os.sysconf("SC_CLK_TCK"), fields[0] in (b"Z", b"X")


def _look_without_proc(pid: int) -> tuple[float, bool]:
    import psutil

    try:
        process = psutil.Process(pid)
        return process.create_time(), process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess as error:
        raise ProcessLookupError(pid) from error


def _tolerance() -> float:
    return 1e-6 if _has_proc() else _SAME_START


@lru_cache(maxsize=1)
def _this_process(pid: int) -> ProcessId:
    return ProcessId.of(pid)  # cached by its number, which changes in a fork


@lru_cache(maxsize=1)
def _has_proc() -> bool:
    return (_PROC / "self" / "stat").exists()


@lru_cache(maxsize=1)
def host_name() -> str:
    """The short name of this host."""
    return socket.gethostname().split(".")[0]


@lru_cache(maxsize=1)
def boot_id() -> str:
    """A word that changes with each boot of this host."""
    source = _PROC / "sys/kernel/random/boot_id"
    if source.exists():
        return source.read_text().strip()
    import psutil

    return f"{psutil.boot_time():.0f}"
