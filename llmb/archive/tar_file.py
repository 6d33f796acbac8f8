# SPDX-License-Identifier: Apache-2.0
"""Writes an archive, a tar file with Zstandard whose last member is its manifest, and unpacks one."""

import atexit
import hashlib
import io
import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import llmb
from llmb.archive.contents import (
    MANIFEST,
    SCHEMA_VERSION,
    ArchivedFile,
    Chosen,
    Manifest,
    OmittedFile,
    bytes_of,
    text_of,
)
from llmb.archive.redact import Redaction
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


_LEVEL = 10  # a tenth of a second for a MB of logs, which become a twentieth


def write(path: Path, chosen: Iterable[Chosen], redaction: Redaction, *, runs: int, created: datetime) -> Manifest:
    """Write the archive and return its manifest; ``path`` is complete or unchanged. Raises LlmbError."""
    import zstandard

    files: dict[str, ArchivedFile] = {}
    omitted: dict[str, OmittedFile] = {}
    secrets = 0
    part = path.with_name(f".{path.name}.part")
    try:
        with (
            part.open("wb") as raw,
            zstandard.ZstdCompressor(level=_LEVEL).stream_writer(raw, closefd=False) as packed,
            tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
        ):
            for one in chosen:
                name, own = redaction.in_path(one.name), one.omitted
                text = text_of(one.path) if own is None else None
                if text is None:
                    omitted[name] = own or OmittedFile(bytes=one.path.stat().st_size, reason="not a text")
                    continue
                text, found = redaction.apply(text)
                secrets += found
                data = bytes_of(name, text)
                files[name] = ArchivedFile(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
                _add(tar, name, data, one.path.stat().st_mtime)
            manifest = Manifest(
                llmb_version=llmb.__version__,
                created=created.isoformat(timespec="seconds"),
                runs=runs,
                secrets=secrets,
                is_anonymous=bool(redaction.names),
                files=files,
                omitted=omitted,
            )
            _add(tar, MANIFEST, json.dumps(asdict(manifest), indent=1).encode(), created.timestamp())
        part.replace(path)
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror or error}"
        raise LlmbError(message, hint="-o FILE writes it elsewhere", code="archive-unwritable") from error
    finally:
        part.unlink(missing_ok=True)
    return manifest


def _add(tar: tarfile.TarFile, name: str, data: bytes, mtime: float) -> None:
    """Add a file that has nothing of its owner but its time."""
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = len(data), int(mtime), 0o644
    tar.addfile(member, io.BytesIO(data))
