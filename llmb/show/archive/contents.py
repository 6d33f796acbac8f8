# SPDX-License-Identifier: Apache-2.0
"""The content of an archive: texts of runs and of the install directory, and the MANIFEST."""

import contextlib
import gzip
import os
import re
import stat
import zlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from llmb.contract.record import RunRecord
from llmb.contract.schema import ClusterConfig
from llmb.core.scan import open_log
from llmb.core.values import dataclass
from llmb.errors import UsageError
from llmb.plan.locate import CONFIG_FILE

MANIFEST = "llmb-archive.json"
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """A file of an archive: its size in bytes and its SHA-256 in hexadecimal."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OmittedFile:
    """A file or folder that is not in the archive. Its size in bytes is 0 if unknown, or a link."""

    bytes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveManifest:
    """The manifest of an archive."""

    schema_version: int = SCHEMA_VERSION
    llmb_version: str
    #: ISO 8601.
    created: str
    runs: int
    #: The number of replaced secrets.
    secrets: int = 0
    #: Users, hosts and paths were replaced too.
    is_anonymous: bool = False
    #: By path in the install directory.
    files: dict[str, ArchivedFile]
    #: By path in the install directory.
    omitted: dict[str, OmittedFile]


MOST = 256 << 20  # bytes of one file, also unpacked; a log of a night is a few MB
_LOCK = re.compile(r".*\.lock\.\d+")  # llmb's own, which mean nothing later
_FOLDERS = {
    "nsys_profile": "profile",
    "torch_profile": "profile",
    "checkpoints": "checkpoint",
    "__pycache__": "cache",
}
_SUFFIXES = {
    ".nsys-rep": "profile",
    ".qdrep": "profile",
    ".sqlite": "profile",
    ".distcp": "checkpoint",
    ".pt": "weights",
}
# Of the install directory itself: what was installed, with versions and digests.
_INSTALL = (CONFIG_FILE, ".llmb/install.json", ".llmb/locks", ".llmb/baselines")


class SourceFile(NamedTuple):
    """A file, or a folder that is not looked into, and its path in the archive."""

    name: str
    path: Path


class Content(NamedTuple):
    """The text of a file, and when it was changed, in seconds since the epoch."""

    text: str
    modified: float


def choose(
    config: ClusterConfig, runs: Iterable[RunRecord], more: Iterable[Path] = ()
) -> Iterator[SourceFile]:
    """The files of the install directory and of these runs, sorted within each folder.

    ``more``: further files and folders. Raises UsageError for one that is in neither the install
    directory nor the folder of its runs.
    """
    for relative in _INSTALL:
        yield from _below(config.llmb_install / relative, relative)
    for path in more:
        yield from _below(path, _name_of(path, config))
    for run in runs:
        workload, experiments, experiment = run.directory.parts[-4:-1]
        name = f"workloads/{workload}/{experiments}/{experiment}/{run.directory.name}"
        yield from _below(run.directory, name, (run.log, run.batch_log))


def _name_of(path: Path, config: ClusterConfig) -> str:
    """Return the path of a file in the archive, whose runs are always below ``workloads``."""
    for folder, name in ((config.runs_root, "workloads/"), (config.llmb_install, "")):
        if path.is_relative_to(folder) and ".." not in path.parts:
            return f"{name}{path.relative_to(folder)}"
    raise UsageError(
        f"{path} does not belong to the install directory",
        hint=f"--include takes files and folders below {config.llmb_install}",
        code="include-outside",
        key="--include",
        value=str(path),
    )


def _below(path: Path, name: str, logs: Collection[Path] = ()) -> Iterator[SourceFile]:
    """Yield ``path``, or every file below it. Only imported runs' ``logs`` may be links."""
    if path.is_symlink() or path.name in _FOLDERS or (entries := _entries(path)) is None:
        if os.path.lexists(path):
            is_followed = path in logs and _may_follow(path)
            yield SourceFile(name, Path(os.path.realpath(path)) if is_followed else path)
        return
    for entry in (entry for entry in entries if not _LOCK.fullmatch(entry.name)):
        yield from _below(entry, f"{name}/{entry.name}", logs)


def _may_follow(link: Path) -> bool:
    """Return True if the owner of a link may read its target, so that it shows them nothing new.

    In a shared install directory, a link of another user could name a private file of whoever
    writes the archive.
    """
    try:
        maker, target = link.lstat().st_uid, Path(os.path.realpath(link))
        status = target.stat()
        if maker in (os.getuid(), status.st_uid):
            return True
        folders = [folder.stat().st_mode for folder in target.parents]
    except FileNotFoundError:  # reading it says so
        return True
    except OSError:
        return False
    return bool(status.st_mode & stat.S_IROTH) and all(mode & stat.S_IXOTH for mode in folders)


def _entries(folder: Path) -> list[Path] | None:
    try:
        return sorted(folder.iterdir())
    except OSError:  # a file, or a folder that this user may not read
        return None


def content_of(path: Path) -> Content | OmittedFile:
    """Return the text of a file, unpacked if it is gzip, or why it is not in an archive."""
    try:
        status = path.lstat()
        reason = _why_not(path, status)
        if not reason:
            with open_log(path) as stream:
                if not os.path.samestat(status, os.fstat(stream.fileno())):
                    return OmittedFile(bytes=0, reason="link")  # it was a file a moment ago
                data = _read(stream)
            if b"\0" not in data[:65536] and len(data) <= MOST:
                return Content(data.decode("utf-8", "surrogateescape"), status.st_mtime)
            reason = "not a text" if len(data) <= MOST else _LARGE
    except (EOFError, zlib.error, gzip.BadGzipFile):
        reason = "damaged"
    except OSError:
        reason = "unreadable"
    return OmittedFile(bytes=_size(path), reason=reason)


def _read(stream: BinaryIO) -> bytes:
    """The bytes of a file up to one more than MOST."""
    data = bytearray()
    while len(data) <= MOST and (piece := stream.read(min(_PIECE, MOST + 1 - len(data)))):
        data += piece
    return bytes(data)


_PIECE = 1 << 20  # bytes
_LARGE = "larger than 256 MiB"


def _why_not(path: Path, status: os.stat_result) -> str:
    """Return why an archive omits a file or folder. Empty if its content decides."""
    if stat.S_ISDIR(status.st_mode):
        return _FOLDERS.get(path.name, "unreadable")
    if not stat.S_ISREG(status.st_mode):
        return "link" if stat.S_ISLNK(status.st_mode) else "not a file"
    kind = next((kind for suffix, kind in _SUFFIXES.items() if path.name.endswith(suffix)), "")
    return kind or (_LARGE if status.st_size > MOST else "")


def _size(path: Path) -> int:
    """Return the bytes of a regular file, or of all files below a folder that can be read."""
    below = [Path(folder) / name for folder, _, names in os.walk(path) for name in names]
    size = 0
    for part in below or [path]:
        with contextlib.suppress(OSError):
            status = part.lstat()
            size += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return size


def bytes_of(name: str, text: str) -> bytes:
    """Return the content of a file of the archive, compressed if its name says so."""
    data = text.encode("utf-8", "surrogateescape")
    return gzip.compress(data, mtime=0) if name.endswith(".gz") else data
