# SPDX-License-Identifier: Apache-2.0
"""Whether a file is whole: its sha256 says what is in it."""

import hashlib
import os
from pathlib import Path

from llmb.errors import LlmbError

_PIECE = 1 << 20


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
