# SPDX-License-Identifier: Apache-2.0
"""Container images by reference, their .sqsh files, and the check that such a file is complete."""

import os
import re
import struct
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from llmb.contract.schema import ClusterConfig
from llmb.core import files
from llmb.errors import Fault, LlmbError

_MAGIC = b"hsqs"
_SIZE_AT = 40  # of the bytes used as a 64-bit number, in the superblock of squashfs
_SUPERBLOCK = 96


def commit_of(library: str) -> str:
    """Return the key of a library's commit among the contents of an image."""
    return f"{library} commit"


@lru_cache(maxsize=64)  # the jobs of a list share their images
def file_name(reference: str) -> str:
    """Return an image's file name, ``nvidia+nemo+25.04.01.sqsh`` for release 25.04.01."""
    plain = reference.removeprefix("docker://").replace("#", "/")
    registry, slash, path = plain.partition("/")
    name = path if slash and (re.search(r"[.:]", registry) or registry == "localhost") else plain
    return re.sub(r"[/:@]", "+", name) + ".sqsh"


def image_path(reference: str, config: ClusterConfig) -> Path:
    """Return the path of the image on this cluster. A reference that is a path stays."""
    if reference.startswith(("/", ".", "~")) or reference.endswith(".sqsh"):
        return files.expand(reference)
    return (config.install.image_folder or config.llmb_install / "images") / file_name(reference)


def recorded_digest(reference: str, config: ClusterConfig) -> str | None:
    """Return the digest in the installer's record of the image, None without a sound one."""
    digest = _fact(image_path(reference, config), "digest")
    return digest if isinstance(digest, str) else None


def recorded_contents(reference: str, config: ClusterConfig) -> Mapping[str, str]:
    """Return the versions of frameworks that the installer found in the image, by package.

    And under ``commit_of`` the commit of a framework's library. Empty if nothing is known.
    """
    path = image_path(reference, config)
    try:
        status = _record_of(path).stat()
    except OSError:
        return {}
    return _contents_of(path, (status.st_mtime_ns, status.st_ino, status.st_size))


@lru_cache(maxsize=64)  # a list may have thousands of jobs
def _contents_of(path: Path, _version: tuple[int, int, int]) -> Mapping[str, str]:
    contents = _fact(path, "contents")
    if not isinstance(contents, dict):
        return {}
    return {str(name): str(value) for name, value in contents.items()}


def recorded_size(path: Path) -> int | None:
    """Return the bytes of the image at ``path`` by its record, or None without one."""
    size = _fact(path, "size")
    return size if isinstance(size, int) else None


def _fact(path: Path, name: str) -> object:
    try:
        facts = files.read_json(_record_of(path))
    except LlmbError:
        return None
    return facts.get(name) if isinstance(facts, dict) else None


def _record_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def superblock_fault(path: Path) -> Fault | None:
    """Return why a file is no complete squashfs image, None if it is. Raises LlmbError."""
    try:
        with files.open_regular(path) as file:
            head = file.read(_SUPERBLOCK)
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return Fault(message="it does not exist", code="image-missing")
    except OSError as error:
        raise LlmbError(
            f"{path} cannot be read: {error.strerror}", code="file-unreadable", key=str(path)
        ) from error
    if size == 0:
        return Fault(message="it is empty", code="image-cut-off", value=0)
    if len(head) < _SUPERBLOCK or not head.startswith(_MAGIC):
        return Fault(message="it is not a squashfs image", code="not-squashfs")
    (used,) = struct.unpack_from("<Q", head, _SIZE_AT)
    if size >= used:
        return None
    return Fault(
        message=f"it is truncated: it has {size:,} of {used:,} bytes",
        code="image-cut-off",
        value=size,
    )
