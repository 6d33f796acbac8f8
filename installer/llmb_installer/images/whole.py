# SPDX-License-Identifier: Apache-2.0
"""Whether a squashfs file is whole: its superblock says how long it is, a sha256 what is in it."""

from __future__ import annotations

import hashlib
import os
import struct
from pathlib import Path

from llmb.errors import LlmbError

_MAGIC = b"hsqs"
_SIZE_AT = 40  # where the superblock has the bytes used as a 64-bit number, by the format's documentation
_SUPERBLOCK = 96
_PIECE = 1 << 20


def superblock_fault(path: Path) -> str | None:
    """What is wrong with an image by its superblock and length; None when nothing is. Raises LlmbError."""
    try:
        with path.open("rb") as file:
            head = file.read(_SUPERBLOCK)
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return "it is not there"
    except OSError as error:
        raise LlmbError(f"{path} cannot be read: {error.strerror}") from error
    if size == 0:
        return "it is empty"
    if len(head) < _SUPERBLOCK or not head.startswith(_MAGIC):
        return "it is not a squashfs image"
    (used,) = struct.unpack_from("<Q", head, _SIZE_AT)
    return f"it is cut: {size:,} of {used:,} bytes are there" if size < used else None


def sha256(path: Path) -> str:
    """The sha256 of a file in hexadecimal digits. Raises LlmbError."""
    digest = hashlib.sha256()
    buffer = bytearray(_PIECE)
    try:
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                digest.update(memoryview(buffer)[:count])
    except OSError as error:
        raise LlmbError(f"{path} cannot be read: {error.strerror}") from error
    return digest.hexdigest()


def sync(path: Path) -> None:
    """Have a file or folder on the disk, come what may. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
