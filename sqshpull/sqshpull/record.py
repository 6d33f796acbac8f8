# SPDX-License-Identifier: Apache-2.0
"""The record of an image, a JSON file beside it, and checks of the image against it."""

import os
import shutil
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqshpull import VERSION, files, programs
from sqshpull.errors import PullError

_SUPERBLOCK, _MAGIC, _SIZE_AT = 96, b"hsqs", 40  # the header of squashfs; offset of bytes_used
# e_machine of the ELF header
_MACHINES = {62: "amd64", 183: "arm64", 21: "ppc64le", 243: "riscv64"}
# Programs that images usually have, by whose ELF header the architecture is detected.
_PROGRAMS = (
    "usr/bin/bash",
    "bin/bash",
    "usr/bin/dash",
    "bin/dash",
    "usr/bin/env",
    "bin/busybox",
    "usr/bin/python3",
)


# The types of the keys that older and newer records have too.
_TYPES = {
    "reference": str,
    "index_digest": str | None,
    "digest": str | None,
    "architecture": str | None,
    "options": list,
    "sha256": str,
    "size": int,
    "built_at": str,
    "builder": str,
    "mtime_ns": int | None,
    "contents": dict,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRecord:
    """What an image was built from, and what its file must be."""

    reference: str
    index_digest: str | None
    """The digest of the index that the tag names, None without one or if unknown."""
    digest: str | None
    """The digest of the manifest, None if unknown, as for a file that was adopted."""
    architecture: str | None
    """The registries' name, such as amd64."""
    options: tuple[str, ...]
    """The options of mksquashfs."""
    sha256: str
    size: int
    """Bytes."""
    built_at: str
    tool: str = ""
    """The program and its version that wrote the record."""
    builder: str
    adopted: bool = False
    """The file existed without a record."""
    mtime_ns: int | None = None
    """Shows that the file was modified."""
    devices_left_out: int = 0
    """Device nodes that were omitted."""
    contents: Mapping[str, str] = field(default_factory=dict)
    """What a caller found in the image, by names of its own."""


def record_of(file: Path, reference: str, **details: Any) -> ImageRecord:
    """Return the record of the image in ``file``, built or adopted now. Raises PullError.

    ``details`` are further fields.
    """
    stat = file.stat()
    return ImageRecord(
        reference=reference,
        sha256=files.sha256(file),
        size=stat.st_size,
        built_at=datetime.now(UTC).isoformat(timespec="seconds"),
        tool=f"sqshpull {VERSION}",
        mtime_ns=stat.st_mtime_ns,
        **{"index_digest": None, "digest": None, "options": (), **details},
    )


def record_path(target: Path) -> Path:
    """Return the path of the record of the image ``target``."""
    return target.with_name(f"{target.name}.json")


def read_record(target: Path) -> ImageRecord | None:
    """Return the record of an image, None without one. Raises PullError for a damaged one.

    Unknown keys are ignored, so that the records of other versions can be read.
    """
    path = record_path(target)
    data = files.read_json(path)
    if data is None:
        return None
    if not isinstance(data, dict):
        raise _damaged_record(path, "it is not a JSON object")
    names = {field.name for field in fields(ImageRecord)}
    values = {key: value for key, value in data.items() if key in names}
    values.setdefault("contents", {})
    for key, kind in _TYPES.items():
        if not isinstance(values.get(key), kind):
            raise _damaged_record(path, f"'{key}' is missing or has the wrong type")
    return ImageRecord(**{**values, "options": tuple(map(str, values["options"]))})


def _damaged_record(path: Path, reason: str) -> PullError:
    message, hint = f"{path}: {reason}", "it is damaged, or from another version: remove it"
    return PullError(message, hint=hint, code="image-record-damaged", key=str(path))


def write_record(target: Path, record: ImageRecord) -> None:
    """Write the record of the image ``target``. Raises OSError."""
    files.write_json(record_path(target), asdict(record))


def check(target: Path, *, deep: bool) -> PullError | None:
    """Return what is wrong with an image, None if it is sound. ``deep`` reads the whole file.

    Raises PullError if it cannot be read.
    """
    if (fault := superblock_fault(target)) is not None:
        return fault
    try:
        record = read_record(target)
    except PullError as error:
        return error
    if record is None:
        return PullError("its record is missing", code="image-record-missing")
    return compare(target, record, deep=deep)


def compare(target: Path, record: ImageRecord, *, deep: bool) -> PullError | None:
    """Return how the image differs from its record, None if it does not.

    Without ``deep``, the content is only compared if the file was modified.
    """
    stat = target.stat()
    if stat.st_size != record.size:
        message = f"it has {stat.st_size:,} bytes, but its record says {record.size:,}"
        return PullError(message, code="image-size-differs", value=stat.st_size)
    is_read = deep or stat.st_mtime_ns != record.mtime_ns
    if is_read and files.sha256(target) != record.sha256:
        message = "its content differs from its record (sha256)"
        return PullError(message, code="image-content-differs")
    return None


def superblock_fault(path: Path) -> PullError | None:
    """Return why ``path`` is not a complete squashfs file, None if it is one.

    Raises PullError if it cannot be read.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_SUPERBLOCK)
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return PullError("it does not exist", code="image-missing")
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
        raise PullError(message, code="file-unreadable", key=str(path)) from error
    if size == 0:
        return PullError("it is empty", code="image-cut-off", value=0)
    if len(head) < _SUPERBLOCK or not head.startswith(_MAGIC):
        return PullError("it is not a squashfs image", code="not-squashfs")
    (used,) = struct.unpack_from("<Q", head, _SIZE_AT)
    if size >= used:
        return None
    message = f"it is truncated: it has {size:,} of {used:,} bytes"
    return PullError(message, code="image-cut-off", value=size)


def architecture_of(image: Path) -> str | None:
    """Return the architecture of the programs in a squashfs image, in the registries' name.

    A registry's manifest may name another. None if it cannot be detected: unsquashfs is missing, or
    the image has none of the usual programs.
    """
    with _unpacked(image, _PROGRAMS) as folder:
        for path in (folder / name for name in _PROGRAMS):
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    head = file.read(20)
                if len(head) == 20 and head.startswith(b"\x7fELF"):
                    number = int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")
                    return _MACHINES.get(number, f"machine {number}")
    return None


def read_files(image: Path, patterns: Sequence[str]) -> dict[str, bytes]:
    """Return the regular files of a squashfs image by path, such as ``etc/os-release``.

    ``patterns`` are their paths or those of folders above them, with the shell's wildcards. Empty
    if none matches, or unsquashfs is missing.
    """
    with _unpacked(image, patterns) as folder:
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in paths
            if not path.is_symlink()
        }


@contextmanager
def _unpacked(image: Path, patterns: Sequence[str]) -> Iterator[Path]:
    """Unpack a part of ``image`` into a temporary folder, nothing if unsquashfs is missing."""
    program = shutil.which("unsquashfs")
    with tempfile.TemporaryDirectory(prefix="sqshpull-") as folder:
        into = Path(folder) / "image"
        if program is not None:
            programs.run(
                [program, "-no-progress", "-no-xattrs", "-d", str(into), str(image), *patterns]
            )
        yield into
