# SPDX-License-Identifier: Apache-2.0
"""Identities of processes that outlast reboots, and killing by a marker."""

from __future__ import annotations

import contextlib
import os
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmb.core.values import dataclass

if TYPE_CHECKING:
    import psutil

# psutil is imported where it is used: its import takes longer than everything that most commands do
# here.
_PROC = Path("/proc")
_MOST = 2**31  # no process has a larger number
_SWEEP = 5.0  # seconds that kill_marked takes at most
_LOADING = 0.5  # seconds that the system may take to load a new process
_SAME_START = 2.0  # seconds: without /proc, a start time moves when the clock is set


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessId:
    """A process: host name, process id, start time and the boot it started under.

    ``start`` is only for comparison: seconds since the boot, which do not change when the clock is
    set. Without ``/proc`` it is seconds since the epoch.
    """

    host: str
    pid: int
    start: float
    boot: str

    @classmethod
    def current(cls) -> ProcessId:
        return _this_process(os.getpid())

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """The process ``pid`` of this host. Raises ProcessLookupError."""
        return cls(host=host_name(), pid=pid, start=_look(pid)[0], boot=boot_id())

    @classmethod
    def from_data(cls, data: Any) -> ProcessId:
        """Return the identity from the data of ``dataclasses.asdict``. Raises ValueError."""
        values = (
            [data.get(name) for name in ("host", "pid", "start", "boot")]
            if isinstance(data, dict)
            else [None]
        )
        match values:
            case [str(host), int(pid), int() | float() as start, str(boot)] if 0 < pid < _MOST:
                return cls(host=host, pid=pid, start=start, boot=boot)
        raise ValueError("not the identity of a process")

    @property
    def is_here(self) -> bool:
        """Return True for a process of this host, which ``is_alive`` needs."""
        return self.host == host_name()

    @property
    def is_of_this_boot(self) -> bool:
        """Return True if it started after this host's last boot. Valid only if ``is_here``."""
        return self.boot == boot_id()

    def is_alive(self) -> bool:
        """Return True if this process runs and is no zombie. Valid only if ``is_here``.

        Also true for another user's process that the system hides, while some process has its
        number.
        """
        return self.is_of_this_boot and self._is_running() is not False

    @property
    def is_hidden(self) -> bool:
        """Return True if a process has this number, but the system hides which one (hidepid)."""
        return self.is_of_this_boot and self._is_running() is None

    def _is_running(self) -> bool | None:
        """Return True if this process still runs, None if that is hidden."""
        try:
            start, ended = _look(self.pid)
        except ProcessLookupError:
            return False
        except PermissionError:
            return None
        return not ended and abs(start - self.start) < (1e-6 if _has_proc() else _SAME_START)


def is_at_work(program: str, endings: tuple[str, ...]) -> bool:
    """Return True if ``program`` runs here with an argument that ends with one of ``endings``."""
    import psutil

    lines = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
    return any(
        program in (Path(word).name for word in line)
        and any(word.endswith(endings) for word in line)
        for line in lines
    )


def _look(pid: int) -> tuple[float, bool]:
    """The start time of the process ``pid``, and whether it is a zombie.

    Raises ProcessLookupError if there is none, PermissionError if /proc hides other users'
    processes.
    """
    if not _has_proc():
        return _look_without_proc(pid)
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, PermissionError, ProcessLookupError) as error:
        os.kill(pid, 0)  # raises ProcessLookupError or PermissionError even for hidden processes
        raise PermissionError(pid) from error
    fields = text.rpartition(b")")[2].split()  # the name before them may contain anything
    return int(fields[19]) / os.sysconf("SC_CLK_TCK"), fields[0] in (b"Z", b"X")


def _look_without_proc(pid: int) -> tuple[float, bool]:
    import psutil

    try:
        process = psutil.Process(pid)
        return process.create_time(), process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess as error:
        raise ProcessLookupError(pid) from error


@lru_cache(maxsize=1)
def _this_process(pid: int) -> ProcessId:
    return ProcessId.of(pid)  # cached by number, because a fork has another number


@lru_cache(maxsize=1)
def _has_proc() -> bool:
    return (_PROC / "self" / "stat").exists()


@lru_cache(maxsize=1)
def host_name() -> str:
    return os.uname().nodename.split(".")[0]


def user_name() -> str | None:
    """Return the name of the user of this process, None without one, as in some containers."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # of Python before 3.13, and of later ones
        return None


@lru_cache(maxsize=1)
def boot_id() -> str:
    """An identifier that changes with each boot of this host."""
    source = _PROC / "sys/kernel/random/boot_id"
    if source.exists():
        return source.read_text().strip()
    import psutil

    return f"{psutil.boot_time():.0f}"


def kill_marked(name: str, value: str) -> int:
    """Kill this user's other processes with ``name=value`` in their environment. Return how many.

    So it finds everything that a program started, in any session or process group.
    """
    import psutil

    deadline = time.monotonic() + _SWEEP
    killed: set[int] = set()
    while True:
        marked = []
        for process in psutil.process_iter():
            # another user's, or one that has just ended
            with contextlib.suppress(psutil.Error, OSError):
                if process.pid != os.getpid() and _environment_of(process).get(name) == value:
                    marked.append(process)
                    process.kill()
        killed |= {process.pid for process in marked}
        if not marked or time.monotonic() > deadline:
            return len(killed)
        psutil.wait_procs(marked, timeout=0.1)


def _environment_of(process: psutil.Process) -> dict[str, str]:
    """Return the environment of a process.

    A process that is still being loaded has none for a moment, and no arguments.
    """
    deadline = time.monotonic() + _LOADING
    while not (environment := process.environ()):
        if process.cmdline() or not process.exe() or time.monotonic() > deadline:
            return process.environ()  # it may have been loaded in between
        time.sleep(0.001)
    return environment
