# SPDX-License-Identifier: Apache-2.0
"""The JSON beside an image: what it was built from and what it must be, so that nobody has to believe the file."""

from dataclasses import dataclass
from pathlib import Path

from llmb.config import images as image_files
from llmb.errors import InputFaults, LlmbError
from llmb.system import files
from llmb.text import typed, yamlfile
from llmb_installer.images import whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """An image: where it is from, for which machines, and the sha256 and size in bytes of its file.

    ``digest`` of the manifest, ``index_digest`` of what its tag named in the registry: None where unknown, as for a
    file that was ``adopted``. ``options`` are those of mksquashfs. ``mtime_ns`` tells whether the file was touched.
    ``devices_left_out`` counts device nodes that the image would have.
    """

    reference: str
    index_digest: str | None
    digest: str | None
    architecture: str | None
    options: tuple[str, ...]
    sha256: str
    size: int
    built_at: str
    llmb: str
    builder: str
    adopted: bool = False
    mtime_ns: int | None = None
    devices_left_out: int = 0


def facts_path(target: Path) -> Path:
    """The JSON of the image ``target``."""
    return target.with_name(f"{target.name}.json")


def read_facts(target: Path) -> ImageFacts | None:
    """What is written about an image; None when nothing is. Raises LlmbError when that is damaged."""
    path = facts_path(target)
    data = files.read_json(path)
    if data is None:
        return None
    try:
        return typed.read(ImageFacts, yamlfile.Document(name=str(path), data=data))
    except InputFaults as error:
        raise LlmbError(error.message, hint="it is damaged, or of another version; remove it") from error


def write_facts(target: Path, facts: ImageFacts) -> None:
    """Write it, atomically. Raises LlmbError."""
    files.write_json(facts_path(target), typed.to_data(facts))


def check(target: Path, *, deep: bool) -> list[str]:
    """What is wrong with an image, as sentences; none when it is whole. ``deep`` reads all of it.

    Raises LlmbError when it cannot be read.
    """
    fault = image_files.superblock_fault(target)
    if fault is not None:
        return [fault]
    try:
        facts = read_facts(target)
    except LlmbError as error:
        return [error.message]
    if facts is None:
        return ["its record is missing"]
    return against(target, facts, deep=deep)


def against(target: Path, facts: ImageFacts, *, deep: bool) -> list[str]:
    """What of an image differs from its record; without ``deep``, its content only where the file was touched."""
    found = target.stat()
    if found.st_size != facts.size:
        return [f"it has {found.st_size:,} bytes, its record says {facts.size:,}"]
    if (deep or found.st_mtime_ns != facts.mtime_ns) and whole.sha256(target) != facts.sha256:
        return ["its content is not what its record says (the sha256 differs)"]
    return []
