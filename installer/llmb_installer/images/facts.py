# SPDX-License-Identifier: Apache-2.0
"""The record of an image: what it was built from, size and checksum; checks the image's file against it."""

import shutil
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import llmb
from llmb.config.images import superblock_fault
from llmb.errors import Fault, InputFaults, LlmbError, as_fault, os_errors
from llmb.system import files, shell
from llmb.text import typed, yamlfile
from llmb_installer.step import sha256_of

_MACHINES = {62: "amd64", 183: "arm64", 21: "ppc64le", 243: "riscv64"}  # e_machine of the ELF header
_PROGRAMS = ("usr/bin/bash", "bin/bash", "usr/bin/dash", "bin/dash", "usr/bin/env", "bin/busybox", "usr/bin/python3")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """The record of an image, with the sha256 and the size in bytes of its file.

    ``digest`` is the manifest's, ``index_digest`` that of the index its tag names; None where unknown, as for a file
    that was ``adopted``. ``options`` are mksquashfs's. ``mtime_ns`` shows whether the file was modified.
    ``devices_left_out`` is the number of device nodes that were omitted.
    """

    reference: str
    index_digest: str | None
    digest: str | None
    architecture: str | None
    options: tuple[str, ...]
    sha256: str
    size: int
    built_at: str
    llmb: str
    builder: str
    adopted: bool = False
    mtime_ns: int | None = None
    devices_left_out: int = 0


def facts_of(file: Path, reference: str, **known: Any) -> ImageFacts:
    """The record of the image in ``file``, built or adopted now; ``known`` are further fields. Raises LlmbError."""
    stat = file.stat()
    return ImageFacts(
        reference=reference,
        sha256=sha256(file),
        size=stat.st_size,
        built_at=datetime.now(UTC).isoformat(timespec="seconds"),
        llmb=llmb.__version__,
        mtime_ns=stat.st_mtime_ns,
        **{"index_digest": None, "digest": None, "options": (), **known},
    )


def facts_path(target: Path) -> Path:
    """The JSON file of the image ``target``."""
    return target.with_name(f"{target.name}.json")


def read_facts(target: Path) -> ImageFacts | None:
    """The record of an image; None without one. Raises LlmbError for a damaged one."""
    path = facts_path(target)
    data = files.read_json(path)
    if data is None:
        return None
    try:
        return typed.read(ImageFacts, yamlfile.Document(name=str(path), data=data))
    except InputFaults as error:
        hint = "it is damaged, or from another version: remove it"
        raise LlmbError(error.message, hint=hint, code="image-record-damaged", key=str(path)) from error


def write_facts(target: Path, facts: ImageFacts) -> None:
    files.write_json(facts_path(target), typed.to_data(facts))


def check(target: Path, *, deep: bool) -> Fault | None:
    """What is wrong with an image; None for a sound one. ``deep`` reads the whole file.

    Raises LlmbError where it cannot be read.
    """
    if (fault := superblock_fault(target)) is not None:
        return fault
    try:
        facts = read_facts(target)
    except LlmbError as error:
        return as_fault(error)
    if facts is None:
        return Fault(message="its record is missing", code="image-record-missing")
    return compare(target, facts, deep=deep)


def compare(target: Path, facts: ImageFacts, *, deep: bool) -> Fault | None:
    """What differs from the record; without ``deep``, the content is only compared if the file was modified."""
    found = target.stat()
    if found.st_size != facts.size:
        message = f"it has {found.st_size:,} bytes, but its record says {facts.size:,}"
        return Fault(message=message, code="image-size-differs", value=found.st_size)
    if (deep or found.st_mtime_ns != facts.mtime_ns) and sha256(target) != facts.sha256:
        return Fault(message="its content differs from its record (sha256)", code="image-content-differs")
    return None


def sha256(path: Path) -> str:
    """The sha256 of a file in hexadecimal digits. Raises LlmbError."""
    with os_errors(f"{path} cannot be read", code="file-unreadable", key=str(path)):
        return sha256_of(path)


def architecture_of(image: Path) -> str | None:
    """The architecture of the programs in a squashfs image, in the registries' name.

    A registry's manifest may name another. None where it cannot be detected: unsquashfs is missing, or the image has
    none of the usual programs.
    """
    program = shutil.which("unsquashfs")
    if program is None:
        return None
    with tempfile.TemporaryDirectory(prefix="llmb-") as folder:
        into = Path(folder) / "image"
        shell.run([program, "-no-progress", "-no-xattrs", "-d", str(into), str(image), *_PROGRAMS])
        for path in (into / name for name in _PROGRAMS):
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    head = file.read(20)
                if len(head) == 20 and head.startswith(b"\x7fELF"):
                    number = int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")
                    return _MACHINES.get(number, f"machine {number}")
    return None
