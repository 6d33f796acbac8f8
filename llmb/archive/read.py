# SPDX-License-Identifier: Apache-2.0
"""Reads an archive: unpacks it into an empty folder, which is then an install directory without a cluster."""

import atexit
import hashlib
import shutil
import tarfile
import tempfile
from pathlib import Path

from llmb.archive.manifest import MANIFEST, SCHEMA_VERSION, Manifest
from llmb.errors import LlmbError, UsageError
from llmb.system import files
from llmb.text import typed

_MOST = 64 << 30  # bytes of an unpacked archive: a file that unpacks to more is no archive of ours


def unpacked(path: Path) -> Path:
    """A new folder with the files of an archive, which is removed when the process ends. Raises as ``unpack``."""
    folder = Path(tempfile.mkdtemp(prefix="llmb-archive-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    unpack(path, folder)
    return folder


def unpack(path: Path, folder: Path) -> Manifest:
    """Unpack an archive into the empty ``folder`` and return its manifest; every file has its checksum.

    Raises UsageError where the file is missing, and LlmbError where it is damaged or no archive.
    """
    import zstandard

    try:
        with (
            path.open("rb") as raw,
            zstandard.ZstdDecompressor().stream_reader(raw) as unpacked,
            tarfile.open(fileobj=unpacked, mode="r|") as tar,
        ):
            _extract(tar, folder)
    except FileNotFoundError as error:
        raise UsageError(f"{path} does not exist", code="path-missing", key="ARCHIVE", value=str(path)) from error
    except (OSError, EOFError, tarfile.TarError, zstandard.ZstdError) as error:
        raise _damaged(path, str(error) or type(error).__name__) from error
    data = files.read_json(folder / MANIFEST)
    if not isinstance(data, dict):
        raise _damaged(path, f"it has no {MANIFEST}")
    if data.get("schema_version") != SCHEMA_VERSION:
        message = f"{path} was written by llmb {data.get('llmb_version')}"
        raise LlmbError(message, hint="use a newer llmb", code="archive-version")
    manifest = typed.read_own(Manifest, folder / MANIFEST, data)
    for name, known in manifest.files.items():
        found = folder / name
        if not found.is_file() or hashlib.sha256(found.read_bytes()).hexdigest() != known.sha256:
            raise _damaged(path, f"{name} is not what was archived")
    return manifest


def _extract(tar: tarfile.TarFile, folder: Path) -> None:
    """Extract regular files alone, below ``folder``. Raises tarfile.TarError."""
    size = 0
    for member in tar:
        size += member.size
        if not member.isfile() or size > _MOST:
            raise tarfile.TarError(f"{member.name} does not belong in an archive of llmb")
        tar.extract(member, folder, filter="data")


def _damaged(path: Path, why: str) -> LlmbError:
    hint = "ask for it again, or compare its sha256sum with the sender's"
    return LlmbError(f"{path} is damaged: {why}", hint=hint, code="archive-damaged", value=str(path))
