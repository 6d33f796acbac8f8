# SPDX-License-Identifier: Apache-2.0
"""Whether a squashfs file is as long as its superblock says: a read of 96 bytes."""

import os
import struct
from pathlib import Path

from llmb.errors import LlmbError

_MAGIC = b"hsqs"
_SIZE_AT = 40  # where the superblock has the bytes used as a 64-bit number, by the format's documentation
_SUPERBLOCK = 96


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
