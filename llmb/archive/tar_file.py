# SPDX-License-Identifier: Apache-2.0
"""Writes an archive, a tar file with Zstandard whose last member is its manifest, and unpacks one."""

import contextlib
import errno
import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
import time
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
    content_of,
)
from llmb.archive.redact import Redaction
from llmb.errors import LlmbError, UsageError
from llmb.system import files
from llmb.text import typed

_MOST = 64 << 30  # bytes of an unpacked archive: a file that unpacks to more is no archive of ours
_KEPT = 7 * 86400  # seconds after its last use that an unpacked archive is removed


def unpacked(path: Path) -> Path:
    """The folder with the files of an archive, in the user's cache by the archive's checksum. Raises as ``unpack``.

    It is unpacked once: 10,000 runs are 30,000 files, which take half a minute.
    """
    cache = files.expand(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "llmb" / "archives"
    folder = cache / checksum(path)
    if not folder.is_dir():
        try:
            cache.mkdir(parents=True, exist_ok=True)
            part = Path(tempfile.mkdtemp(dir=cache))
        except OSError as error:
            raise _no_folder(cache, error) from error
        try:
            unpack(path, part)
            try:
                part.rename(folder)
            except OSError as error:
                if not folder.is_dir():  # else another process was faster
                    raise _no_folder(cache, error) from error
        finally:
            shutil.rmtree(part, ignore_errors=True)
        for old in cache.iterdir():
            with contextlib.suppress(OSError):  # another process removes it
                if time.time() - old.lstat().st_mtime > _KEPT:
                    shutil.rmtree(old, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.utime(folder)
    return folder


def checksum(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal. Raises LlmbError."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise UsageError(f"{path} does not exist", code="path-missing", key="ARCHIVE", value=str(path)) from error
    except OSError as error:
        raise _damaged(path, str(error)) from error


def unpack(path: Path, folder: Path) -> Manifest:
    """Unpack an archive into the empty ``folder`` and return its manifest; every file has its checksum.

    Raises LlmbError where it is damaged or no archive, and where the folder has no space for it.
    """
    import zstandard

    try:
        with (
            path.open("rb") as raw,
            zstandard.ZstdDecompressor().stream_reader(raw) as unpacked,
            tarfile.open(fileobj=unpacked, mode="r|") as tar,
        ):
            checksums = _extract(tar, folder)
    except (OSError, EOFError, tarfile.TarError, zstandard.ZstdError) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _no_folder(folder, error) from error
        raise _damaged(path, str(error) or type(error).__name__) from error
    data = files.read_json(folder / MANIFEST)
    if not isinstance(data, dict):
        raise _damaged(path, f"it has no {MANIFEST}")
    if data.get("schema_version") != SCHEMA_VERSION:
        message = f"{path} was written by llmb {data.get('llmb_version')}"
        raise LlmbError(message, hint="use a newer llmb", code="archive-version")
    manifest = typed.read_own(Manifest, folder / MANIFEST, data)
    for name, known in manifest.files.items():
        if checksums.get(name) != known.sha256:
            raise _damaged(path, f"{name} is not what was archived")
    return manifest


def _extract(tar: tarfile.TarFile, folder: Path) -> dict[str, str]:
    """Write regular files alone, below ``folder``, and return their SHA-256 by name. Raises tarfile.TarError, OSError.

    In half the time of tarfile's own function, which also sets owner, mode and times.
    """
    size, checksums = 0, {}
    for member in tar:
        size += member.size
        content = tar.extractfile(member) if member.isfile() and size <= _MOST else None
        if content is None:
            raise tarfile.TarError(f"{member.name} does not belong in an archive of llmb")
        target = folder / tarfile.data_filter(member, str(folder)).name
        target.parent.mkdir(parents=True, exist_ok=True)
        data = content.read()
        target.write_bytes(data)
        checksums[member.name] = hashlib.sha256(data).hexdigest()
    return checksums


def _no_folder(folder: Path, error: OSError) -> LlmbError:
    message = f"{folder}: no archive can be unpacked there: {error.strerror}"
    hint = "set XDG_CACHE_HOME to another folder"
    return LlmbError(message, hint=hint, code="archive-no-folder", value=str(folder))


def _damaged(path: Path, why: str) -> LlmbError:
    hint = "ask for it again, or compare its sha256sum with the sender's"
    return LlmbError(f"{path} is damaged: {why}", hint=hint, code="archive-damaged", value=str(path))


_LEVEL = 10  # a tenth of a second for a MB of logs, which become a twentieth


def write(path: Path, chosen: Iterable[Chosen], redaction: Redaction, *, runs: int, created: datetime) -> Manifest:
    """Write the archive and return its manifest; ``path`` is complete or unchanged. Raises LlmbError."""
    import zstandard

    archived: dict[str, ArchivedFile] = {}
    omitted: dict[str, OmittedFile] = {}
    secrets = 0
    with (
        files.output(path) as raw,
        zstandard.ZstdCompressor(level=_LEVEL).stream_writer(raw, closefd=False) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for one in chosen:
            name, content = redaction.in_path(one.name), content_of(one.path)
            if isinstance(content, OmittedFile):
                omitted[name] = content
                continue
            text, found = redaction.apply(content.text)
            secrets += found
            data = bytes_of(name, text)
            archived[name] = ArchivedFile(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
            _add(tar, name, data, content.modified)
        manifest = Manifest(
            llmb_version=llmb.__version__,
            created=created.isoformat(timespec="seconds"),
            runs=runs,
            secrets=secrets,
            is_anonymous=bool(redaction.names),
            files=archived,
            omitted=omitted,
        )
        _add(tar, MANIFEST, json.dumps(asdict(manifest), indent=1).encode(), created.timestamp())
    return manifest


def _add(tar: tarfile.TarFile, name: str, data: bytes, mtime: float) -> None:
    """Add a file that has nothing of its owner but its time."""
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = len(data), int(mtime), 0o644
    tar.addfile(member, io.BytesIO(data))
