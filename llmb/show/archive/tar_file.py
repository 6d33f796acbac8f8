# SPDX-License-Identifier: Apache-2.0
"""Writes and unpacks an archive: a tar file with Zstandard whose last member is its manifest."""

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
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import llmb
from llmb.core import files, typed
from llmb.errors import LlmbError, UsageError
from llmb.show.archive.contents import (
    MANIFEST,
    MOST,
    SCHEMA_VERSION,
    ArchivedFile,
    ArchiveManifest,
    OmittedFile,
    SourceFile,
    bytes_of,
    content_of,
)
from llmb.show.archive.redact import Redaction

# An archive that unpacks to more is none of ours: bytes in all, and for each byte of the archive;
# bytes of a member, whose content ``contents.MOST`` bounds before names are replaced; members.
_MOST, _MOST_RATIO, _ALWAYS = 64 << 30, 5000, 256 << 20
_MOST_MEMBER = 2 * MOST
_MOST_MEMBERS = 1_000_000
_MOST_HEADER = 1 << 20  # bytes of a long name
_PIECE = 1 << 20  # bytes
_KEPT = 7 * 86400  # seconds after its last use that an unpacked archive is removed


def unpacked(path: Path) -> Path:
    """Return the archive's folder in the user's cache, by its checksum. Raises as ``unpack``.

    It is unpacked once: 10,000 runs are 30,000 files, which take half a minute.
    """
    check_seal(path)
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
        with files.open_regular(path) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise _missing(path) from error
    except OSError as error:
        raise _damaged(path, str(error)) from error


def _missing(path: Path) -> UsageError:
    return UsageError(
        f"{path} does not exist",
        hint=files.suggest_file(path),
        code="path-missing",
        key="ARCHIVE",
        value=str(path),
    )


# The seal is the SHA-256 of all bytes before it, in a frame that readers of Zstandard skip
# (RFC 8878, 3.1.2). Zstandard's own checksum covers no headers, and has 32 bits.
_SEAL_HEAD = (0x184D2A5E).to_bytes(4, "little") + (32).to_bytes(4, "little")
_SEAL_SIZE = len(_SEAL_HEAD) + 32  # bytes


def check_seal(path: Path) -> bool:
    """Return True if the archive ends with the seal of its content, False if it has none.

    Raises LlmbError if a byte before the seal has changed, UsageError if there is no such file.
    """
    try:
        with files.open_regular(path) as stream:
            remaining = max(os.fstat(stream.fileno()).st_size - _SEAL_SIZE, 0)
            digest = hashlib.sha256()
            while remaining and (piece := stream.read(min(remaining, _PIECE))):
                digest.update(piece)
                remaining -= len(piece)
            seal = stream.read()
    except FileNotFoundError as error:
        raise _missing(path) from error
    except OSError as error:
        raise _damaged(path, str(error)) from error
    if not seal.startswith(_SEAL_HEAD):
        return False
    if seal[len(_SEAL_HEAD) :] != digest.digest():
        raise _damaged(path, "it is not what was archived")
    return True


def unpack(path: Path, folder: Path) -> ArchiveManifest:
    """Unpack an archive into the empty ``folder``, check each file, and return the manifest.

    Raises LlmbError if it is damaged or no archive, and if the folder has no space for it.
    """
    import zstandard

    try:
        with (
            files.open_regular(path) as raw,
            zstandard.ZstdDecompressor().stream_reader(raw) as unpacked,
            tarfile.open(fileobj=unpacked, mode="r|", tarinfo=_Member) as tar,
        ):
            size = os.fstat(raw.fileno()).st_size
            extracted = _extract(tar, folder, min(_MOST, _ALWAYS + _MOST_RATIO * size))
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
    manifest = typed.read_own(ArchiveManifest, folder / MANIFEST, data)
    extracted.pop(MANIFEST, None)
    for name in extracted.keys() | manifest.files.keys():
        if extracted.get(name) != manifest.files.get(name):
            raise _damaged(path, f"{name} is not what was archived")
    return manifest


class _Member(tarfile.TarInfo):
    """A member whose header costs no memory: no sparse file, whose size is a claim, no long text.

    ``tarfile`` reads long names and maps of sparse files whole.
    """

    # Each release of Python calls this method for every header, and some no longer call frombuf.
    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        is_header = self.type in _HEADERS
        if (is_header and self.size > _MOST_HEADER) or self.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError(_foreign(self.name))
        member: tarfile.TarInfo = super()._proc_member(tar)  # type: ignore[misc]
        return member

    def _refuse(self, member: tarfile.TarInfo, *_more: object) -> None:
        raise tarfile.ReadError(_foreign(member.name))

    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse


_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


def _foreign(name: str) -> str:
    return f"{name} does not belong in an archive of llmb"


def _extract(tar: tarfile.TarFile, folder: Path, most: int) -> dict[str, ArchivedFile]:
    """Write regular files alone, at most ``most`` bytes, below ``folder``, and return them by name.

    Raises tarfile.TarError, OSError. It takes half the time of tarfile's own function, which also
    sets owner, mode and times. Its filters came with Python 3.11.4. None is needed: without links
    and devices, a name is all that could lead outside.
    """
    size, extracted = 0, dict[str, ArchivedFile]()
    for count, member in enumerate(tar, 1):
        size += member.size
        if size > most or member.size > _MOST_MEMBER or count > _MOST_MEMBERS:
            raise tarfile.TarError(f"{member.name} makes it larger than archives of llmb are")
        content = tar.extractfile(member) if member.isfile() and not member.issparse() else None
        if content is None:
            raise tarfile.TarError(_foreign(member.name))
        target = folder / _relative(member.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        extracted[member.name] = _copy(content, target, member.size)
        tar.members.clear()  # type: ignore[attr-defined] # it would keep them all
    return extracted


def _copy(content: IO[bytes], target: Path, size: int) -> ArchivedFile:
    """Copy a member in pieces. Raises tarfile.TarError if it does not have ``size`` bytes."""
    total, copied = hashlib.sha256(), 0
    with target.open("wb") as stream:
        while piece := content.read(_PIECE):
            stream.write(piece)
            total.update(piece)
            copied += len(piece)
    if copied != size:
        raise tarfile.TarError(f"{target.name} is cut off")
    return ArchivedFile(bytes=copied, sha256=total.hexdigest())


def _relative(name: str) -> PurePosixPath:
    """Return the path of a member below its folder. Raises tarfile.TarError if it is outside."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise tarfile.TarError(f"{name!r} would be outside the archive's folder")
    return path


def _no_folder(folder: Path, error: OSError) -> LlmbError:
    message = f"{folder}: no archive can be unpacked there: {error.strerror}"
    hint = "set XDG_CACHE_HOME to another folder"
    return LlmbError(message, hint=hint, code="archive-no-folder", value=str(folder))


def _damaged(path: Path, cause: str) -> LlmbError:
    hint = "ask for it again, or compare its sha256sum with the sender's"
    return LlmbError(
        f"{path} is damaged: {cause}", hint=hint, code="archive-damaged", value=str(path)
    )


_LEVEL = 10  # a tenth of a second for a MB of logs, which become a twentieth


def write(
    path: Path, chosen: Iterable[SourceFile], redaction: Redaction, *, runs: int, created: datetime
) -> ArchiveManifest:
    """Write the archive and return its manifest. Raises LlmbError.

    ``path`` is complete or unchanged.
    """
    import zstandard

    archived: dict[str, ArchivedFile] = {}
    omitted: dict[str, OmittedFile] = {}
    names, secrets = _Names(redaction), 0
    with files.output(path) as raw:
        sealed = _Sealed(raw)
        with (
            zstandard.ZstdCompressor(level=_LEVEL).stream_writer(
                cast("IO[bytes]", sealed), closefd=False
            ) as packed,
            tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
        ):
            for source in chosen:
                name, content = names.of(source.name), content_of(source.path)
                if isinstance(content, OmittedFile):
                    omitted[name] = content
                    continue
                text, secret_count = redaction.apply(content.text)
                secrets += secret_count
                data = bytes_of(name, text)
                total = hashlib.sha256(data).hexdigest()
                archived[name] = ArchivedFile(bytes=len(data), sha256=total)
                _add(tar, name, data, content.modified)
            manifest = ArchiveManifest(
                llmb_version=llmb.__version__,
                created=created.isoformat(timespec="seconds"),
                runs=runs,
                secrets=secrets,
                is_anonymous=bool(redaction.names),
                files=archived,
                omitted=omitted,
            )
            text = json.dumps(asdict(manifest), indent=1)
            _add(tar, MANIFEST, text.encode(), created.timestamp())
        raw.write(_SEAL_HEAD + sealed.digest.digest())
    return manifest


class _Names:
    """The paths of files in an archive without names, different for different files.

    Two folders or files whose names differ only in what is replaced, as a host with and without
    domain, would have the same.
    """

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._by_source: dict[str, str] = {}
        self._taken = {MANIFEST}

    def of(self, source: str) -> str:
        """Return the path in the archive, the same for the same ``source``."""
        new = self._redaction.in_path(source)
        parts, new_parts = source.split("/"), new.split("/")
        if len(parts) != len(new_parts):  # a name of several parts was replaced
            return self._distinct(source, new)
        path = ""
        for count, part in enumerate(new_parts, 1):
            path = self._distinct("/".join(parts[:count]), f"{path}/{part}" if path else part)
        return path

    def _distinct(self, source: str, path: str) -> str:
        """Return ``path``, with a number before its suffix if another ``source`` has it."""
        if source not in self._by_source:
            folder, slash, name = path.rpartition("/")
            stem, point, suffix = name[1:].partition(".")
            stem, number = name[:1] + stem, 1
            while path in self._taken:
                number += 1
                path = f"{folder}{slash}{stem}-{number}{point}{suffix}"
            self._taken.add(path)
            self._by_source[source] = path
        return self._by_source[source]


class _Sealed(io.RawIOBase):
    """Writes to a stream, and computes the SHA-256 of what it wrote."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self._stream.write(data)


def _add(tar: tarfile.TarFile, name: str, data: bytes, mtime: float) -> None:
    """Add a file that has nothing of its owner but its time."""
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = len(data), int(mtime), 0o644
    tar.addfile(member, io.BytesIO(data))
