# SPDX-License-Identifier: Apache-2.0
"""Reads and writes files; each is written completely or not at all."""

import contextlib
import errno
import json
import os
import shutil
import stat
import uuid
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from llmb.errors import LlmbError, UsageError
from llmb.system.parallel import run_bounded

MODE = 0o666  # limited by the install directory's mode; elsewhere by the user's umask
_INSTALLS = ("cluster_config.yaml", ".llmb")  # files that identify an install directory
_WRITERS = 8
NEEDED_SPACE = 64 * 1024  # bytes that must be free for a run to begin
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class NoRoomError(LlmbError):
    """A disk, or the user's quota on it, is full."""


def expand(path: str | Path) -> Path:
    """``path`` with the home folder for ``~``; unchanged if that is unknown, so that it will not be found."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def at_home(path: str) -> Path:
    """``path`` with the home folder for ``~``. Raises LlmbError if that is unknown."""
    if (found := expand(path)).parts[:1] == ("~",):
        message, hint = "your home folder is unknown, and HOME is not set", "export HOME=DIR, a folder of yours"
        raise LlmbError(message, hint=hint, code="home-unknown", key="HOME")
    return found


def write_text(path: Path, text: str, *, mode: int = MODE, durable: bool = True) -> None:
    """Write ``text`` to ``path`` so that a reader sees the old or the new content, also after a crash of the machine.

    If it is not ``durable``, such a crash may leave it empty. Raises LlmbError if the folder is not writable or the
    disk is full; ``path`` is then unchanged.
    """
    part = _part(path)
    try:
        _write_new(part, text, mode, durable=durable)
        part.replace(path)
        if durable:
            sync_folder(path.parent)
    except BaseException as error:
        _discard(part)
        if isinstance(error, OSError):
            raise _cannot_write(path, error) from error
        raise


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` survive a crash of the machine, if the file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def create_text(path: Path, text: str, *, mode: int = MODE, durable: bool = True) -> bool:
    """Write ``text`` to ``path`` if it does not exist, ``durable`` as in ``write_text``; False if it exists.

    Of several processes, on NFS too, exactly one succeeds, and a reader sees its whole text. Raises LlmbError.
    """
    part = _part(path)
    try:
        _write_new(part, text, mode, durable=durable)
        return _put_in_place(part, path, text, mode)
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        _discard(part)


def overwrite(path: Path, text: str, *, at: int = 0, over: str | None = None) -> bool:
    """Write a few characters into ``path`` from byte ``at``, in one write and in place; False if it does not exist.

    Also False, with nothing written, if the file does not contain ``over`` there, or ``text`` has another length.
    """
    new, old = text.encode(), None if over is None else over.encode()
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        try:
            if old is not None and (len(old) != len(new) or os.pread(descriptor, len(old), at) != old):
                return False
            return os.pwrite(descriptor, new, at) == len(new)
        finally:
            os.close(descriptor)  # where NFS reports a full disk
    except OSError:
        return False


def write_folder(path: Path, texts: Mapping[str, str]) -> None:
    """Write a folder of text files, completely or not at all; an existing one is kept. Raises LlmbError."""
    if path.is_dir():
        return
    part = _part(path)
    try:
        # Several at a time: a disk syncs many files in hardly more time than one.
        run_bounded(
            iter(texts.items()),
            lambda item: _write_new(part / item[0], item[1], MODE),
            workers=_WRITERS,
        )
        part.rename(path)
    except OSError as error:
        if not path.is_dir():  # else another has written it meanwhile
            raise _cannot_write(path, error) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_json(path: Path, data: Any, *, mode: int = MODE) -> None:
    """Write plain data as indented JSON, by ``write_text``."""
    write_text(path, to_json(data), mode=mode)


def to_json(data: Any) -> str:
    """Plain data as the indented JSON text that our files hold."""
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def read_json(path: Path) -> Any | None:
    """The data in a JSON file; None if it does not exist. Raises LlmbError: ``file-damaged`` if it is not JSON."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        message, hint = f"{path} cannot be read: {error.strerror}", "ask its owner for read access"
        raise LlmbError(message, hint=hint, code="file-unreadable", key=str(path)) from error
    except (OSError, ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        message, hint = f"{path} cannot be read: {reason}", "it is damaged; move it away"
        raise LlmbError(message, hint=hint, code="file-damaged", key=str(path)) from error


def read_text(path: Path, *, name: str | None = None) -> str:
    """The text of a file that a user wrote, without a byte order mark; ``name`` is its name in errors.

    Raises UsageError if it cannot be read or is not UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{name or path} cannot be read: {error.strerror}", code="file-unreadable") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        message = f"{name or path} cannot be read: it is not UTF-8 text (line {line})"
        raise UsageError(message, hint="save the file as UTF-8", code="not-utf-8") from error


@lru_cache(maxsize=1024)
def mode_of_install(folder: Path) -> int | None:
    """The permission bits of the install directory that contains ``folder``; None outside of any."""
    for place in (folder, *folder.parents):
        try:
            if any((place / name).exists() for name in _INSTALLS):
                return place.stat().st_mode & 0o777
        except OSError:
            return None
    return None


def umask_in(folder: Path, own: int) -> int:
    """The umask for programs in ``folder``: by the install directory's mode, elsewhere the user's ``own``."""
    shared = mode_of_install(folder)
    return own if shared is None else 0o077 & ~shared


def own_umask() -> int:
    """The umask of this process."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("\nUmask:")[2].split()[0], 8)
    except (OSError, ValueError, IndexError):
        found = os.umask(0o077)  # the only other way to read it
        os.umask(found)
        return found


def make_folder(folder: Path) -> None:
    """Create a folder and missing ones above it; in an install directory, they get its mode."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        try:
            one.mkdir()
        except FileExistsError:  # another process created it
            continue
        share_folder(one)


def share_folder(folder: Path) -> None:
    """Give a new folder the mode of its install directory, if any."""
    if (shared := mode_of_install(folder.parent)) is not None:
        with contextlib.suppress(OSError):
            folder.chmod(folder.stat().st_mode & 0o7000 | 0o700 | shared & 0o077)


def share_tree(folder: Path) -> None:
    """Give ``folder`` and everything in it the mode of its install directory.

    Group and others get the owner's permissions, as far as the install directory's mode allows.
    """
    shared = mode_of_install(folder.parent)
    if shared is None:
        return
    for place, folders, names in os.walk(folder):
        for path in (place, *(os.path.join(place, name) for name in (*folders, *names))):  # noqa: PTH118  # a hot loop
            with contextlib.suppress(OSError):
                now = os.lstat(path).st_mode
                owner = now >> 6 & 0o7
                mode = now & 0o7700 | (owner << 3 | owner) & shared
                if not stat.S_ISLNK(now) and mode != now & 0o7777:
                    os.chmod(path, mode)  # noqa: PTH101


def rotate(path: Path, *, limit: int) -> None:
    """Rename a log of more than ``limit`` bytes to ``<name>.1``, replacing that. No process may be writing to it."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > limit:
            path.replace(path.with_name(f"{path.name}.1"))


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")


def _write_new(path: Path, text: str, mode: int, *, durable: bool = True) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        descriptor = os.open(path, flags, mode)
    except FileNotFoundError:
        make_folder(path.parent)
        descriptor = os.open(path, flags, mode)
    with os.fdopen(descriptor, "wb", buffering=0) as stream:
        if mode == MODE and (shared := mode_of_install(path.parent)) is not None:
            with contextlib.suppress(OSError):  # a file system without modes
                os.fchmod(descriptor, 0o600 | shared & 0o066)
        left = memoryview(text.encode())
        while left:
            left = left[stream.write(left) :]
        if durable:
            os.fsync(descriptor)


def _put_in_place(part: Path, path: Path, text: str, mode: int) -> bool:
    try:
        path.hardlink_to(part)
    except FileExistsError:
        return part.stat().st_nlink == 2  # our own link: an NFS server's first answer was lost
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        return _create_in_place(path, text, mode)
    return True


def _create_in_place(path: Path, text: str, mode: int) -> bool:
    """For file systems without hard links: a reader may see an empty file for a moment."""
    try:
        _write_new(path, text, mode)
    except FileExistsError:
        return False
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return True


def _discard(part: Path) -> None:
    with contextlib.suppress(OSError):
        part.unlink(missing_ok=True)


def check_space(folder: Path) -> None:
    """Write NEEDED_SPACE bytes into ``folder`` and remove them. Raises NoRoomError if the disk is full."""
    if not folder.is_dir():  # a deleted folder is not created again
        return
    part = _part(folder / "space")
    try:
        _write_new(part, " " * NEEDED_SPACE, 0o600)
    except OSError as error:
        if error.errno in _FULL:
            raise NoRoomError(
                f"{folder} is full: {error.strerror}", hint="free some space there", code="disk-full", key=str(folder)
            ) from error
    finally:
        _discard(part)


def _cannot_write(path: Path, error: OSError) -> LlmbError:
    message, hint = f"{path} cannot be written: {error.strerror}", "free space or fix the permissions there"
    if error.errno in _FULL:
        return NoRoomError(message, hint=hint, code="disk-full", key=str(path))
    return LlmbError(message, hint=hint, code="file-unwritable", key=str(path))
