# SPDX-License-Identifier: Apache-2.0
"""Container images by reference, their .sqsh files, and the check that such a file is complete."""

import os
import re
import struct
from pathlib import Path

from llmb.config import ClusterConfig
from llmb.errors import Fault, LlmbError
from llmb.system import files

_MAGIC = b"hsqs"
_SIZE_AT = 40  # of the bytes used as a 64-bit number, in the superblock of squashfs
_SUPERBLOCK = 96


def file_name(reference: str) -> str:
    """The file name of an image: ``nvidia+nemo+25.04.01.sqsh`` for ``nvcr.io/nvidia/nemo:25.04.01``."""
    plain = reference.removeprefix("docker://").replace("#", "/")
    registry, slash, rest = plain.partition("/")
    name = rest if slash and (re.search(r"[.:]", registry) or registry == "localhost") else plain
    return re.sub(r"[/:@]", "+", name) + ".sqsh"


def image_path(reference: str, config: ClusterConfig) -> Path:
    """The path of the image on this cluster; a reference that is a path is returned as it is."""
    if reference.startswith(("/", ".", "~")) or reference.endswith(".sqsh"):
        return files.expand(reference)
    return (config.install.image_folder or config.llmb_install / "images") / file_name(reference)


def recorded_digest(reference: str, config: ClusterConfig) -> str | None:
    """The digest in the installer's record of the image; None without a record, or with a damaged one."""
    digest = _fact(image_path(reference, config), "digest")
    return digest if isinstance(digest, str) else None


def recorded_size(path: Path) -> int | None:
    """The size in bytes of the image at ``path`` by its record; None without one."""
    size = _fact(path, "size")
    return size if isinstance(size, int) else None


def _fact(path: Path, name: str) -> object:
    try:
        facts = files.read_json(path.with_name(f"{path.name}.json"))
    except LlmbError:
        return None
    return facts.get(name) if isinstance(facts, dict) else None


def superblock_fault(path: Path) -> Fault | None:
    """Why the image at ``path`` is not a complete squashfs file; None if it is one. Raises LlmbError."""
    try:
        with path.open("rb") as file:
            head = file.read(_SUPERBLOCK)
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return Fault(message="it does not exist", code="image-missing")
    except OSError as error:
        raise LlmbError(f"{path} cannot be read: {error.strerror}", code="file-unreadable", key=str(path)) from error
    if size == 0:
        return Fault(message="it is empty", code="image-cut-off", value=0)
    if len(head) < _SUPERBLOCK or not head.startswith(_MAGIC):
        return Fault(message="it is not a squashfs image", code="not-squashfs")
    (used,) = struct.unpack_from("<Q", head, _SIZE_AT)
    if size >= used:
        return None
    return Fault(message=f"it is truncated: it has {size:,} of {used:,} bytes", code="image-cut-off", value=size)
