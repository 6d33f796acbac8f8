# SPDX-License-Identifier: Apache-2.0
"""Finds the container images of an installation, and links them into llmb's, with a record of their contents."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llmb.config.images import file_name, superblock_fault
from llmb.errors import LlmbError, os_errors
from llmb_installer.images.facts import architecture_of, facts_of, facts_path, write_facts
from llmb_installer.importing.source import Item, Source, left
from llmb_installer.registry.reference import Reference

_NGC = "nvcr.io"  # the registry of the images whose file names begin with nvidia+


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundImage:
    """An image of the source: its ``file``, behind all links, and its ``reference``, None where it is not known.

    ``link``: its name among llmb's images.
    """

    file: Path
    reference: str | None
    link: str


def find_images(source: Source, named: Mapping[str, str], images: Path) -> tuple[list[FoundImage], list[Item]]:
    """The complete images of ``source`` that are to be linked into ``images``, and what became of each.

    ``named``: references of images by their file name, from the records of its runs.
    """
    folders = [source.folder / "images", source.image_folder, *([source.folder] if source.layout == "stage" else [])]
    files = {path.name: path for folder in folders if folder is not None for path in sorted(folder.glob("*.sqsh"))}
    found, items = [], []
    for name, path in sorted(files.items()):
        reference = named.get(name) or _reference_of(name)
        link = file_name(reference) if reference is not None else name
        try:
            fault = superblock_fault(path)
        except LlmbError as error:
            items.append(left("image", name, error.message, error.code))
            continue
        if fault is not None:
            items.append(left("image", name, fault.message, fault.code))
        elif (images / link).exists():
            items.append(Item(kind="image", name=name, action="present", code="image-present"))
        else:
            found.append(FoundImage(file=path.resolve(), reference=reference, link=link))
            what = reference or "its reference is unknown; to use it, give its path to --image"
            items.append(Item(kind="image", name=name, detail=f"linked, not copied: {what}"))
    return found, items


def name_in_exemplar(reference: str) -> str:
    """The file name that exemplar-performance gives an image: the last two parts of its reference and its tag."""
    whole, _, _ = reference.replace("#", "/").partition("@")
    *_, parent, last = ["", *whole.split("/")]
    name, _, tag = last.partition(":")
    if tag.startswith("sha256:"):
        tag = f"sha256-{tag.removeprefix('sha256:')[:12]}"
    return f"{parent}+{name}+{tag or 'latest'}.sqsh"


def _reference_of(name: str) -> str | None:
    """The reference that a file name means, where that is certain: ``nvidia+nemo+25.04.01.sqsh``."""
    parts = name.removesuffix(".sqsh").split("+")
    if len(parts) != 3 or parts[0] != "nvidia" or parts[2].startswith("sha256-"):
        return None
    return f"{_NGC}/nvidia/{parts[1]}:{parts[2]}"


def link_image(image: FoundImage, images: Path, *, checksum: bool) -> None:
    """Link ``image`` into the folder ``images``; with ``checksum``, read it and record its sha256. Raises LlmbError."""
    target = images / image.link
    hint = "check the permissions there"
    with os_errors(f"{target} cannot be linked", hint=hint, code="file-unwritable", key=str(target)):
        if not target.is_symlink():
            target.symlink_to(image.file)
    if not checksum or image.reference is None or facts_path(target).exists():
        return
    facts = facts_of(
        target,
        str(Reference.parse(image.reference)),
        architecture=architecture_of(target),
        builder="unknown",
        adopted=True,
    )
    write_facts(target, facts)
