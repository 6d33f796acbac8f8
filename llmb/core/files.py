# SPDX-License-Identifier: Apache-2.0
"""Writes files atomically: a reader sees the old content or the new.

No other module writes files of an install directory.

Bytes that are not UTF-8, as in a value of the command line, are written and read as they are
(surrogateescape).
"""

import codecs
import contextlib
import errno
import json
import os
import stat
import time
import uuid
from collections.abc import Iterator, Mapping
from io import FileIO
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO

from llmb.core.names import nearest
from llmb.core.parallel import run_bounded
from llmb.core.permissions import mode_of_install, share_folder
from llmb.errors import LlmbError, UsageError

MODE = 0o666  # reduced by the install directory's mode, elsewhere by the user's umask
_WRITERS = 8
_LEFT = 3600.0  # seconds without a change of a file that was being written
_SMALL = 1 << 16  # bytes
_LIKE_FILE = 0.75  # likeness of two names of files, one of which may be a wrong spelling
SPACE = 64 * 1024  # bytes that must be free for a run to start
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
# Answers of storage: the file may be sound, and another attempt may read it.
_STORAGE = (errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EREMOTEIO)
_LARGEST_JSON = 256 << 20  # bytes: the largest is the record of a list of thousands of runs
_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class DiskFullError(LlmbError):
    """The disk or the user's quota is full."""


def expand(path: str | Path) -> Path:
    """Replace ``~`` in ``path`` by the home folder, if that is known."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def at_home(path: str) -> Path:
    """``path`` with ``~`` replaced by the home folder. Raises LlmbError if that is unknown."""
    if (expanded := expand(path)).parts[:1] == ("~",):
        message = "your home folder is not known, and HOME is not set"
        raise LlmbError(message, hint="export HOME=DIR", code="home-unknown")
    return expanded


def nearest_folder(folder: Path) -> Path:
    """``folder``, or the nearest folder above it that exists."""
    absolute = expand(folder).absolute()
    return next(path for path in (absolute, *absolute.parents) if is_folder(path))


def write_text(path: Path, text: str, *, mode: int = MODE, durable: bool = True) -> None:
    """Write ``text`` to ``path`` atomically, also if the machine crashes.

    Without ``durable``, a crash may leave it empty. Raises LlmbError if the folder is not writable
    or the disk is full. Then ``path`` is unchanged.
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
            raise cannot_write(path, error) from error
        raise


@contextlib.contextmanager
def output(path: Path) -> Iterator[BinaryIO]:
    """Open a stream for the content of a file that the user names. Raises LlmbError.

    ``path`` is complete or unchanged. The target of a link is replaced, and a pipe or device is
    written to.
    """
    target = Path(os.path.realpath(path))
    is_replaced = not exists(target) or is_file(target)
    part = _part(target)
    try:
        if not is_replaced:
            with path.open("wb") as stream:
                yield stream
            return
        with _open_part(part) as stream:
            yield stream
            stream.flush()
            if not exists(part):
                _give_name(stream, part)
        part.replace(target)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        if is_replaced:
            _discard(part)


def _open_part(part: Path) -> BinaryIO:
    """Open a file without a name, so that nothing remains of a killed process.

    If the file system has none, open ``part``, and remove what killed processes left beside it.
    """
    try:
        descriptor = os.open(part.parent, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, MODE)
    except OSError:
        _remove_old_parts(part)
        return part.open("wb")
    return os.fdopen(descriptor, "wb")


def _give_name(stream: BinaryIO, path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # With a folder's descriptor, Python follows the link of /proc, as linkat can and link not.
        os.link(f"/proc/self/fd/{stream.fileno()}", path, src_dir_fd=folder)
    finally:
        os.close(folder)


def _remove_old_parts(part: Path) -> None:
    """Remove this user's parts of files of this kind that nobody has written to for an hour."""
    kind = ".".join(part.name.split(".")[2:-2])
    for old in part.parent.glob(f".*.{kind}.*.part" if kind else ".*.part"):
        with contextlib.suppress(OSError):
            status = old.lstat()
            if time.time() - status.st_mtime > _LEFT and status.st_uid == os.getuid():
                old.unlink()


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` survive a crash, if the file system supports it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def create_text(path: Path, text: str, *, mode: int = MODE, durable: bool = True) -> bool:
    """Write ``text`` to a new file ``path``, ``durable`` as above. False if it already exists.

    Of several processes that try, also on NFS, exactly one succeeds, and a reader sees its whole
    text. Raises LlmbError.
    """
    part = _part(path)
    try:
        _write_new(part, text, mode, durable=durable)
        return _put_in_place(part, path, text, mode)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        _discard(part)


def overwrite(path: Path, text: str, *, at: int = 0, over: str | None = None) -> bool:
    """Overwrite bytes of ``path`` in place from byte ``at`` in one write.

    Returns False, with nothing written, if the file does not exist or does not have ``over`` there,
    or if ``over`` is not as long as ``text``.
    """
    new, old = text.encode(), None if over is None else over.encode()
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    with contextlib.suppress(OSError):
        try:
            if old is not None and (
                len(old) != len(new) or os.pread(descriptor, len(old), at) != old
            ):
                return False
            return os.pwrite(descriptor, new, at) == len(new)
        finally:
            os.close(descriptor)  # NFS reports a full disk here
    return False


def show_anew(folder: Path) -> None:
    """Make this machine list ``folder`` as its file server has it.

    A client of NFS keeps a listing for up to a minute, and drops it when it changes the folder
    itself. Nothing happens if the folder is not there, or cannot be written.
    """
    part = _part(folder / "listing")
    with contextlib.suppress(OSError):
        part.touch(exist_ok=False)
        part.unlink()


def write_folder(path: Path, texts: Mapping[str, str]) -> None:
    """Write a new folder of text files atomically. Raises LlmbError.

    An existing folder is not changed.
    """
    if path.is_dir():
        return
    part = _part(path)
    try:
        # In parallel: syncing many files takes hardly longer than syncing one.
        run_bounded(
            texts.items(), lambda item: _write_new(part / item[0], item[1], MODE), workers=_WRITERS
        )
        part.rename(path)
    except OSError as error:
        if not path.is_dir():  # else another process has written it
            raise cannot_write(path, error) from error
    finally:
        import shutil  # takes 2 ms, which few commands need

        shutil.rmtree(part, ignore_errors=True)


def write_json(path: Path, data: Any, *, mode: int = MODE) -> None:
    """Write plain data as indented JSON with ``write_text``."""
    write_text(path, to_json(data), mode=mode)


def to_json(data: Any) -> str:
    """Plain data as indented JSON, the format of llmb's files."""
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def read_json(path: Path | str) -> Any | None:
    """Return the data of a JSON file, None if it does not exist. Raises LlmbError."""
    try:
        return _json_data(_read_all(path).removeprefix(codecs.BOM_UTF8))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise LlmbError(
            f"{path} cannot be read: {error.strerror}",
            hint="ask its owner for read permission",
            code="file-unreadable",
            value=str(path),
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, OSError) and error.errno in _STORAGE:
            message = f"{path} cannot be read: {error.strerror}"
            hint = "try again; if that repeats, ask the administrators of its file system"
            raise LlmbError(message, hint=hint, code="file-unreadable", value=str(path)) from error
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        message, hint = f"{path} cannot be read: {reason}", "it is damaged; move it away"
        raise LlmbError(message, hint=hint, code="file-damaged", value=str(path)) from error


def _json_data(data: bytes) -> Any:
    """Return the data of a JSON text. Raises ValueError, RecursionError."""
    import orjson  # only where files are read: thousands of them in half the time

    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:  # damaged, or what JSON forbids and Python reads: NaN, Latin-1
        return json.loads(data.decode("utf-8", "surrogateescape"))


def read_json_if_sound(path: Path) -> Any | None:
    """Read as ``read_json``. None also if the file is damaged or may not be read."""
    try:
        return read_json(path)
    except LlmbError:
        return None


def _read_all(path: Path | str) -> bytes:
    """The bytes of a small file, in half the time of Path.read_bytes. Raises OSError."""
    descriptor, size = _open_regular(path)
    try:
        data = b""
        # in one piece, since each addition copies what was read before
        while chunk := os.read(descriptor, min(max(size, _SMALL), _LARGEST_JSON) + 1):
            data += chunk
            if len(data) > _LARGEST_JSON:
                raise OSError(errno.EFBIG, f"it is larger than {_LARGEST_JSON:,} bytes", str(path))
            if len(data) == size:  # the end, unless it grows at this moment
                break
        return data
    finally:
        os.close(descriptor)


def open_regular(path: Path) -> FileIO:
    """Open a regular file to read, unbuffered. Raises OSError, also for a pipe or a device.

    Opening a pipe would wait for a writer, and a device may have no end.
    """
    return os.fdopen(_open_regular(path)[0], "rb", buffering=0)


def _open_regular(path: Path | str) -> tuple[int, int]:
    """Return the descriptor of a regular file and its size in bytes. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode):
        return descriptor, status.st_size
    os.close(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def read_start(path: Path, size: int) -> bytes:
    """Return at most ``size`` bytes from the start of a regular file. Raises OSError."""
    with open_regular(path) as stream:
        data = b""
        while len(data) < size and (chunk := stream.read(size - len(data))):
            data += chunk
        return data


def exists(path: Path | str) -> bool:
    """Return True if ``path`` exists, False also if its file system fails (stale handle, EIO)."""
    return os.path.exists(path)  # noqa: PTH110 - Path's raises


def is_file(path: Path) -> bool:
    """Return True for a regular file, False also if its file system fails."""
    return os.path.isfile(path)  # noqa: PTH113 - Path's raises


def owner(path: Path) -> int | None:
    """Return the user id of a file's owner, None if it does not exist or its file system fails."""
    try:
        return path.stat().st_uid
    except OSError:
        return None


def is_folder(path: Path) -> bool:
    """Return True for a folder, False also if its file system fails."""
    return os.path.isdir(path)  # noqa: PTH112 - Path's raises


def read_text(path: Path, *, name: str | None = None, most: int | None = None) -> str:
    """Return the text of a user's file, without a byte order mark. Errors call it ``name``.

    With ``most``, for files of others, it must be a regular file of at most ``most`` bytes. Raises
    UsageError if it cannot be read or is not UTF-8.
    """
    try:
        data = path.read_bytes() if most is None else read_start(path, most + 1)
        if most is not None and len(data) > most:
            raise OSError(errno.EFBIG, f"it is larger than {most:,} bytes", str(path))
        return data.decode("utf-8-sig")
    except OSError as error:
        message = f"{name or path} cannot be read: {error.strerror}"
        hint = suggest_file(path) if isinstance(error, FileNotFoundError) else None
        if isinstance(error, PermissionError):
            hint = "ask its owner for the permission to read it"
        raise UsageError(message, hint=hint, code="file-unreadable", value=str(path)) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        message = f"{name or path} cannot be read: it is not UTF-8 text (line {line})"
        raise UsageError(message, hint="save the file as UTF-8", code="not-utf-8") from error


def suggest_file(path: Path) -> str | None:
    """Return the hint for a file that does not exist: the one of the nearest name beside it.

    None if no name is near.
    """
    try:
        beside = [entry.name for entry in os.scandir(path.parent) if not entry.is_dir()]
    except OSError:
        return None
    near = nearest(path.name, beside, str.lower, likeness=_LIKE_FILE)
    return None if near is None else f"did you mean '{path.with_name(near)}'?"


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, in an install directory with its mode."""
    missing = takewhile(lambda parent: not parent.exists(), (folder, *folder.parents))
    for parent in reversed(list(missing)):
        try:
            parent.mkdir()
        except FileExistsError:  # another process was faster
            continue
        share_folder(parent)


def rotate(path: Path, *, limit: int) -> None:
    """Rename a log of more than ``limit`` bytes to ``<name>.1``, replacing that.

    No process may be writing to it.
    """
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
    try:
        if mode == MODE and (shared := mode_of_install(path.parent)) is not None:
            with contextlib.suppress(OSError):  # a file system that has no modes
                os.fchmod(descriptor, 0o600 | shared & 0o066)
        unwritten = memoryview(text.encode("utf-8", "surrogateescape"))
        while unwritten:
            unwritten = unwritten[os.write(descriptor, unwritten) :]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)  # NFS reports a full disk here


def _put_in_place(part: Path, path: Path, text: str, mode: int) -> bool:
    try:
        path.hardlink_to(part)
    except FileExistsError:
        return part.stat().st_nlink == 2  # our own link, if the NFS server's first answer was lost
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        try:  # without hard links, a reader may see the file empty for a moment
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
    """Write SPACE bytes into ``folder`` and remove them. Raises DiskFullError."""
    if not folder.is_dir():  # a deleted folder is not created again
        return
    part = _part(folder / "space")
    try:
        _write_new(part, " " * SPACE, 0o600)
    except OSError as error:
        if error.errno in _NO_SPACE:
            message = f"{folder} is full: {error.strerror}"
            raise DiskFullError(message, hint="free some space there", code="disk-full") from error
    finally:
        _discard(part)


def cannot_write(path: Path, error: OSError) -> LlmbError:
    """Return the error of a file that cannot be written, DiskFullError for a full disk or quota."""
    kind, code = (
        (DiskFullError, "disk-full") if error.errno in _NO_SPACE else (LlmbError, "file-unwritable")
    )
    return kind(
        f"{path} cannot be written: {error.strerror}",
        hint="check free space and permissions there",
        code=code,
        value=str(path),
    )
