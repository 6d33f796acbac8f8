# SPDX-License-Identifier: Apache-2.0
"""What an archive contains: texts of runs and of the install directory, and the MANIFEST with their checksums."""

import contextlib
import gzip
import os
import re
import stat
import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from llmb.config import CONFIG_FILE, ClusterConfig
from llmb.logs.scan import open_log
from llmb.runs.record import RunRecord

MANIFEST = "llmb-archive.json"
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """A file of an archive: its size in bytes and its SHA-256 in hexadecimal."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OmittedFile:
    """A file or folder that is not in the archive: its size in bytes (0: unknown, or a link), and why."""

    bytes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """``created``: ISO 8601; ``files`` and ``omitted`` by path in the install directory.

    ``secrets``: how many were replaced; ``is_anonymous``: whether users, hosts and paths were too.
    """

    schema_version: int = SCHEMA_VERSION
    llmb_version: str
    created: str
    runs: int
    secrets: int = 0
    is_anonymous: bool = False
    files: dict[str, ArchivedFile]
    omitted: dict[str, OmittedFile]


MOST = 256 << 20  # bytes of one file, also unpacked; a log of a night is a few MB
_LOCK = re.compile(r".*\.lock\.\d+")  # llmb's own, which mean nothing later
_FOLDERS = {"nsys_profile": "profile", "torch_profile": "profile", "checkpoints": "checkpoint", "__pycache__": "cache"}
_SUFFIXES = {
    ".nsys-rep": "profile",
    ".qdrep": "profile",
    ".sqlite": "profile",
    ".distcp": "checkpoint",
    ".pt": "weights",
}
# Of the install directory itself: what was installed, with versions and digests.
_INSTALL = (CONFIG_FILE, ".llmb/install.json", ".llmb/locks", ".llmb/baselines")


class Chosen(NamedTuple):
    """A file, or a folder that is not looked into, and its path in the archive."""

    name: str
    path: Path


class Content(NamedTuple):
    """The text of a file, and when it was changed, in seconds since the epoch."""

    text: str
    modified: float


def choose(config: ClusterConfig, runs: Iterable[RunRecord]) -> Iterator[Chosen]:
    """The files of the install directory and of these runs, sorted within each folder."""
    for relative in _INSTALL:
        yield from _below(config.llmb_install / relative, relative)
    for run in runs:
        workload, experiments, experiment = run.directory.parts[-4:-1]
        name = f"workloads/{workload}/{experiments}/{experiment}/{run.directory.name}"
        yield from _below(run.directory, name, (run.log, run.batch_log))


def _below(path: Path, name: str, logs: Collection[Path] = ()) -> Iterator[Chosen]:
    """The file ``path``, or every file below it. Of links, only the ``logs`` are followed: imported runs have these."""
    if path.is_symlink() or path.name in _FOLDERS or (entries := _entries(path)) is None:
        if os.path.lexists(path):
            yield Chosen(name, Path(os.path.realpath(path)) if path in logs else path)
        return
    for entry in (entry for entry in entries if not _LOCK.fullmatch(entry.name)):
        yield from _below(entry, f"{name}/{entry.name}", logs)


def _entries(folder: Path) -> list[Path] | None:
    try:
        return sorted(folder.iterdir())
    except OSError:  # a file, or a folder that this user may not read
        return None


def content_of(path: Path) -> Content | OmittedFile:
    """The text of a file, unpacked where it is gzip, or why it is not in an archive."""
    try:
        status = path.lstat()
        reason = _why_not(path, status)
        if not reason:
            with open_log(path) as stream:
                data = stream.read(MOST + 1)
            if b"\0" not in data[:65536] and len(data) <= MOST:
                return Content(data.decode("utf-8", "surrogateescape"), status.st_mtime)
            reason = "not a text" if len(data) <= MOST else _LARGE
    except (EOFError, zlib.error, gzip.BadGzipFile):
        reason = "damaged"
    except OSError:
        reason = "unreadable"
    return OmittedFile(bytes=_size(path), reason=reason)


_LARGE = "larger than 256 MiB"


def _why_not(path: Path, status: os.stat_result) -> str:
    """Why a file or folder is not in an archive; empty where its content decides."""
    if stat.S_ISDIR(status.st_mode):
        return _FOLDERS.get(path.name, "unreadable")
    if not stat.S_ISREG(status.st_mode):
        return "link" if stat.S_ISLNK(status.st_mode) else "not a file"
    kind = next((kind for suffix, kind in _SUFFIXES.items() if path.name.endswith(suffix)), "")
    return kind or (_LARGE if status.st_size > MOST else "")


def _size(path: Path) -> int:
    """The bytes of a regular file, or of those below a folder, as far as they can be looked at."""
    below = [Path(folder) / name for folder, _, names in os.walk(path) for name in names]
    size = 0
    for one in below or [path]:
        with contextlib.suppress(OSError):
            status = one.lstat()
            size += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return size


def bytes_of(name: str, text: str) -> bytes:
    """The content of a file of the archive: as it was, compressed where its name says so."""
    data = text.encode("utf-8", "surrogateescape")
    return gzip.compress(data, mtime=0) if name.endswith(".gz") else data
