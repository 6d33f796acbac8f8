# SPDX-License-Identifier: Apache-2.0
"""A lock on a folder, also on NFS or Lustre, made of exclusive creation alone.

The lock ``name`` is the file ``name.lock.<generation>`` with the highest generation. A process
acquires it by exclusively creating the next generation, once the current one is marked released or
its holder is dead. If two processes find a dead holder, only one of them can create the file.
"""

import contextlib
import dataclasses
import functools
import json
import os
import re
import shlex
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from llmb.core import files, process
from llmb.errors import LlmbError

STALE_AFTER = 300.0  # seconds without a heartbeat from another host
HEARTBEAT = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0  # seconds between two looks of a process that waits
_RELEASED = "released"
_UNKNOWN = process.ProcessId(host="another host", pid=0, start=0.0, boot="")
_NUMBER = re.compile(r"[0-9]{1,15}")


class LockHeldError(LlmbError):
    """Another process holds the lock."""


def _generations(folder: Path, name: str) -> list[tuple[int, Path]]:
    prefix = f"{name}.lock."
    try:
        numbers = [
            path.name.removeprefix(prefix)
            for path in folder.iterdir()
            if path.name.startswith(prefix)
        ]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise LlmbError(
            f"{folder} cannot be read: {error.strerror}", hint="ask its owner for access"
        ) from error
    return sorted(
        (int(number), folder / f"{prefix}{number}")
        for number in numbers
        if _NUMBER.fullmatch(number)
    )


def holder(folder: Path, name: str) -> process.ProcessId | None:
    """Return the process that holds the lock, None if it is free."""
    return _holder(folder, name, _clock_of(folder))


def _holder(folder: Path, name: str, now: Callable[[], float]) -> process.ProcessId | None:
    generations = _generations(folder, name)
    return _holder_of(generations[-1][1], now) if generations else None


def _holder_of(path: Path, now: Callable[[], float]) -> process.ProcessId | None:
    try:
        heartbeat = path.stat().st_mtime
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError:  # another user's, not readable: only its heartbeat is known
        return _UNKNOWN if now() - heartbeat < STALE_AFTER else None
    try:
        owner = process.ProcessId.from_data(json.loads(text))
    except (ValueError, RecursionError):  # released, or, without hard links, not yet written
        is_free = text.startswith(_RELEASED.encode()) or now() - heartbeat > HEARTBEAT
        return None if is_free else _UNKNOWN
    if owner.is_here and not owner.is_hidden:
        return owner if owner.is_alive() else None
    return owner if now() - heartbeat < STALE_AFTER else None


def _clock_of(folder: Path) -> Callable[[], float]:
    """Return a function that gives the time of ``_now_at``, which it calls once."""
    offset = functools.cache(lambda: _now_at(folder) - time.monotonic())
    return lambda: offset() + time.monotonic()


def _now_at(folder: Path) -> float:
    """Return the time by the clock that sets file times in ``folder``.

    A file server's clock may differ from ours.
    """
    part = folder / f".clock.{uuid.uuid4().hex[:8]}.part"
    try:
        part.touch(exist_ok=False)
        return part.stat().st_mtime
    except OSError:  # a read-only folder
        return time.time()
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def _try_acquire(
    folder: Path, name: str, now: Callable[[], float], *, is_new: bool = False
) -> Path | None:
    # In a new folder the first generation is free, as the look after its creation confirms.
    generations = [] if is_new else _generations(folder, name)
    last = generations[-1] if generations else (0, None)
    if last[1] is not None and _holder_of(last[1], now) is not None:
        return None
    created = folder / f"{name}.lock.{last[0] + 1}"
    # Not durable: after a crash of the machine the lock is free anyway.
    if not files.create_text(
        created, json.dumps(dataclasses.asdict(process.ProcessId.current())), durable=False
    ):
        return None
    # this generation had existed before
    if [path for _, path in _generations(folder, name)][-1:] != [created]:
        created.unlink(missing_ok=True)
        return None
    for _, older in generations:
        with contextlib.suppress(OSError):  # another user's, in a folder with the sticky bit
            older.unlink(missing_ok=True)
    return created


def _held(folder: Path, name: str, owner: process.ProcessId | None) -> LockHeldError:
    """The error with the lock's file, its holder, and the fix."""
    generations = _generations(folder, name)
    file = generations[-1][1] if generations else folder / f"{name}.lock"
    code, hint = "lock-held", "wait until it has finished"
    if owner is None or not owner.pid:
        message = f"{folder / name} is in use by another process (lock file {file})"
        return LockHeldError(message, hint=hint, code=code, value=file)
    message = f"{folder / name} is in use by process {owner.pid} on {owner.host} (lock file {file})"
    if owner.is_here:
        hint += f"; to see what it is: ps -fp {owner.pid}"
    else:
        hint += (
            f"; if it has died, the lock expires after {STALE_AFTER / 60:.0f} minutes, or remove"
            f" it: rm {shlex.quote(str(file))}"
        )
    return LockHeldError(message, hint=hint, code=code, value=file)


@contextlib.contextmanager
def hold(
    folder: Path,
    name: str,
    *,
    wait: float = 0.0,
    on_wait: Callable[[process.ProcessId], None] | None = None,
    is_new: bool = False,
) -> Iterator[None]:
    """Hold the lock ``name`` in ``folder``, waiting up to ``wait`` seconds. Raises LockHeldError.

    ``is_new``: this process has just created the folder, so that nobody is expected to hold it.

    ``on_wait`` is called once with the holder before waiting. While the lock is held, a heartbeat
    shows it to other hosts.
    """
    deadline, pause, now = time.monotonic() + wait, _FIRST_PAUSE, _clock_of(folder)
    announced = False
    while (lock := _try_acquire(folder, name, now, is_new=is_new)) is None:
        is_new = False
        owner = _holder(folder, name, now)
        if time.monotonic() >= deadline:
            raise _held(folder, name, owner)
        if owner is not None and on_wait is not None and not announced:
            announced = True
            on_wait(owner)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    _heart.add(lock)
    try:
        yield
    finally:
        _heart.discard(lock)
        # Without effect if the folder was removed or another host replaced a stale lock.
        files.overwrite(lock, _RELEASED)


class _Heart:
    """A thread, started with the first lock, that updates the heartbeats of all locks here."""

    def __init__(self) -> None:
        self.held: set[Path] = set()
        self.changing = threading.Lock()
        self.thread: threading.Thread | None = None
        self.stopping = threading.Event()

    def add(self, path: Path) -> None:
        with self.changing:
            self.held.add(path)
            if self.thread is None:
                self.thread = threading.Thread(target=self.beat, daemon=True)
                self.thread.start()

    def discard(self, path: Path) -> None:
        with self.changing:
            self.held.discard(path)

    def rest(self) -> None:
        with self.changing:
            thread = None if self.held else self.thread
            if thread is not None:
                self.stopping.set()
                self.thread = None
        if thread is not None:
            thread.join()
            self.stopping.clear()

    def beat(self) -> None:
        while not self.stopping.wait(HEARTBEAT):
            with self.changing:
                held = [*self.held]
            for path in held:
                with contextlib.suppress(OSError):  # the folder was removed, or the lock replaced
                    os.utime(path)


_heart = _Heart()


def rest() -> None:
    """End the thread of heartbeats if this process holds no lock. The next lock starts it again.

    For a fork, which would copy a lock of Python's that another thread holds.
    """
    _heart.rest()
