# SPDX-License-Identifier: Apache-2.0
"""Writes an archive: a tar file, compressed with Zstandard, whose last member is its manifest."""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import llmb
from llmb.archive.contents import Chosen, bytes_of, text_of
from llmb.archive.manifest import MANIFEST, ArchivedFile, Manifest, OmittedFile
from llmb.archive.redact import Redaction
from llmb.errors import LlmbError

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
