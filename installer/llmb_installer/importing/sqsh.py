# SPDX-License-Identifier: Apache-2.0
"""Finds the container images of an installation, and links them among llmb's."""

from collections.abc import Mapping
from pathlib import Path

from llmb.core.values import dataclass
from llmb.errors import LlmbError, os_errors
from llmb.plan.images import file_name, superblock_fault
from llmb_installer.images.adapter import as_llmb_errors, share_record, with_libraries
from llmb_installer.importing.item import ImportItem, leave
from sqshpull.errors import PullInputError
from sqshpull.record import architecture_of, record_of, record_path, write_record
from sqshpull.reference import ImageReference

_LONGEST_LINK = 240  # bytes: the record of the image has a longer name


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundImage:
    """An image of the source: its ``file``, behind all links, and its reference if it is known.

    ``link`` is its name among llmb's images.
    """

    file: Path
    reference: str | None
    link: str


def find_images(
    files: Mapping[Path, str], named: Mapping[str, str], images: Path
) -> tuple[list[FoundImage], list[ImportItem]]:
    """Return the complete images to be linked into ``images``, and what became of each image.

    ``files`` are all of the source with the references that it knows. ``named`` has references by
    file name, from the records of runs.
    """
    images_found, items = [], []
    for path, known in files.items():
        name = path.name
        texts = (named.get(name), known)
        reference = next((text for text in texts if text and _is_reference(text)), None)
        link = file_name(reference) if reference is not None else name
        try:
            fault = superblock_fault(path)
        except LlmbError as error:
            items.append(leave("image", name, error.message, error.code))
            continue
        if fault is not None:
            items.append(leave("image", name, fault.message, fault.code))
        elif (images / link).exists():
            items.append(
                ImportItem(kind="image", name=name, action="present", code="image-present")
            )
        else:
            images_found.append(FoundImage(file=path.resolve(), reference=reference, link=link))
            detail = reference or "its reference is unknown; to use it, give its path to --image"
            items.append(
                ImportItem(kind="image", name=name, detail=f"linked, not copied: {detail}")
            )
    return images_found, items


def _is_reference(text: str) -> bool:
    """Return True if a foreign text is an image's reference: llmb's file names are made of it."""
    try:
        ImageReference.parse(text)
    except PullInputError:
        return False
    return len(file_name(text)) <= _LONGEST_LINK


def link_image(image: FoundImage, images: Path, *, checksum: bool) -> None:
    """Link ``image`` into the folder ``images``.

    With ``checksum``, read it and record its sha256. Raises LlmbError.
    """
    target = images / image.link
    hint = "check the permissions there"
    with os_errors(
        f"{target} cannot be linked", hint=hint, code="file-unwritable", key=str(target)
    ):
        if not target.is_symlink():
            target.symlink_to(image.file)
    if not checksum or image.reference is None or record_path(target).exists():
        return
    with (
        as_llmb_errors(),
        os_errors(
            f"{target} cannot be recorded", hint=hint, code="file-unwritable", key=str(target)
        ),
    ):
        record = record_of(
            target,
            str(ImageReference.parse(image.reference)),
            architecture=architecture_of(target),
            builder="unknown",
            adopted=True,
        )
        write_record(target, record)
        with_libraries(target, record)
        share_record(target)
