# SPDX-License-Identifier: Apache-2.0
"""What an archive contains: texts of runs and of the install directory, and the MANIFEST with their checksums."""

import gzip
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from llmb.config import CONFIG_FILE, ClusterConfig
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
    """A file or folder that is not in the archive: its size in bytes, and why."""

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


MOST = 256 << 20  # bytes of one file; a log of a night is a few MB
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A file with its path in the archive; or what is omitted instead of it."""

    name: str
    path: Path
    omitted: OmittedFile | None = None


def choose(config: ClusterConfig, runs: Iterable[RunRecord]) -> Iterator[Chosen]:
    """The files of the install directory and of these runs, sorted within each folder."""
    for relative in _INSTALL:
        yield from _below(config.llmb_install / relative, relative)
    for run in runs:
        workload, experiments, experiment = run.directory.parts[-4:-1]
        yield from _below(run.directory, f"workloads/{workload}/{experiments}/{experiment}/{run.directory.name}")


def _below(path: Path, name: str) -> Iterator[Chosen]:
    """The file ``path``, or every file below it."""
    if path.is_symlink():
        return
    if path.is_dir():
        if (kind := _FOLDERS.get(path.name)) is not None:
            size = sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
            yield Chosen(name=name, path=path, omitted=OmittedFile(bytes=size, reason=kind))
            return
        for entry in sorted(path.iterdir()):
            yield from _below(entry, f"{name}/{entry.name}")
    elif path.is_file():
        reason = _why_not(path)
        omitted = OmittedFile(bytes=path.stat().st_size, reason=reason) if reason else None
        yield Chosen(name=name, path=path, omitted=omitted)


def _why_not(path: Path) -> str:
    """Why a file is not in an archive; empty where it is."""
    kind = next((kind for suffix, kind in _SUFFIXES.items() if path.name.endswith(suffix)), "")
    if kind or ".lock." in path.name:
        return kind or "lock"
    return "larger than 256 MiB" if path.stat().st_size > MOST else ""


def text_of(path: Path) -> str | None:
    """The text of a file, a compressed one unpacked; None where it is not a text."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError):
            return None
    return None if b"\0" in data[:65536] else data.decode("utf-8", "surrogateescape")


def bytes_of(name: str, text: str) -> bytes:
    """The content of a file of the archive: as it was, compressed where its name says so."""
    data = text.encode("utf-8", "surrogateescape")
    return gzip.compress(data, mtime=0) if name.endswith(".gz") else data
