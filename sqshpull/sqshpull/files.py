# SPDX-License-Identifier: Apache-2.0
"""Files: atomic JSON, a lock between builders of one image, and sizes in words."""

import contextlib
import fcntl
import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sqshpull.errors import PullError, os_errors

_LOCK_PAUSE = 0.2  # seconds between two attempts to get a lock


def expand(path: Path) -> Path:
    """Return ``path`` with ``~`` replaced by the home folder, unchanged if that is unknown."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def nearest_folder(folder: Path) -> Path:
    """Return ``folder``, or the nearest folder above it that exists."""
    absolute = expand(folder).absolute()
    return next(path for path in (absolute, *absolute.parents) if path.is_dir())


def read_json(path: Path) -> Any | None:
    """Return the data of a JSON file, None if it does not exist. Raises PullError."""
    try:
        return json.loads(path.read_bytes().decode("utf-8-sig", "surrogateescape"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        message = f"{path} cannot be read: {error.strerror}"
        hint = "ask its owner for read permission"
        raise PullError(message, hint=hint, code="file-unreadable", value=str(path)) from error
    except (OSError, ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        message, hint = f"{path} cannot be read: {reason}", "it is damaged; move it away"
        raise PullError(message, hint=hint, code="file-damaged", value=str(path)) from error


def write_json(path: Path, data: Any) -> None:
    """Write plain data as indented JSON; a reader sees the old content or the new. Raises OSError.

    The text is on the disk before the name is: a crash leaves no empty file.
    """
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with part.open("w", encoding="utf-8", errors="surrogateescape") as stream:
            stream.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
        sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` survive a crash, if the file system supports it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sha256(path: Path) -> str:
    """Return the sha256 of a file in hexadecimal digits. Raises PullError."""
    with (
        os_errors(f"{path} cannot be read", code="file-unreadable", key=str(path)),
        path.open("rb") as stream,
    ):
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def locked(
    path: Path, on_wait: Callable[[str], None], check_stop: Callable[[], None]
) -> Iterator[None]:
    """Hold the lock file ``path``, which the kernel releases when its process ends.

    ``on_wait`` gets its holder once. ``check_stop`` is called while waiting and may raise.
    A file system without locks does not stop the build: then nobody is excluded.
    """
    is_reported = False
    while (descriptor := _try_lock(path)) is None:
        if not is_reported:
            with contextlib.suppress(OSError):
                on_wait(path.read_text("utf-8").strip() or "another process")
            is_reported = True
        check_stop()
        time.sleep(_LOCK_PAUSE)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()  # before the lock is released, so that nobody locks a removed file
        os.close(descriptor)


def _try_lock(path: Path) -> int | None:
    """Return the descriptor of the locked file, None if another process holds the lock."""
    with os_errors(f"{path} cannot be written", code="file-unwritable", key=str(path)):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        return descriptor
    try:  # the holder before may have removed the file between open and lock
        is_current = os.fstat(descriptor).st_ino == path.stat().st_ino
    except FileNotFoundError:
        is_current = False
    if not is_current:
        os.close(descriptor)
        return _try_lock(path)
    os.truncate(descriptor, 0)
    os.write(descriptor, f"process {os.getpid()} on {os.uname().nodename}\n".encode())
    return descriptor


def bytes_in_words(number: int) -> str:
    """Return ``number`` of bytes in units of 1000: 1.6 GB."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= scale:
            return f"{number / scale:.1f} {unit}"
    return f"{number} bytes"
