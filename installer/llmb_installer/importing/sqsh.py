# SPDX-License-Identifier: Apache-2.0
"""Finds the container images of an installation, and links them among llmb's."""

from collections.abc import Mapping
from pathlib import Path

from llmb.core.values import dataclass
from llmb.errors import LlmbError, os_errors
from llmb.plan.images import file_name, superblock_fault
from llmb_installer.images.adapter import as_llmb_errors, share_record, with_libraries
from llmb_installer.importing.source import ExemplarInstall, ImportItem, leave
from sqshpull.errors import PullInputError
from sqshpull.record import architecture_of, record_of, record_path, write_record
from sqshpull.reference import ImageReference

_NGC = "nvcr.io"  # the registry of the images whose file names begin with nvidia+
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
    source: ExemplarInstall, named: Mapping[str, str], images: Path
) -> tuple[list[FoundImage], list[ImportItem]]:
    """Return the complete images to be linked into ``images``, and what became of each image.

    ``named`` has references by file name, from the records of runs.
    """
    folders = [
        source.folder / "images",
        source.image_folder,
        *([source.folder] if source.layout == "stage" else []),
    ]
    files = {
        path.name: path
        for folder in folders
        if folder is not None
        for path in sorted(folder.glob("*.sqsh"))
    }
    images_found, items = [], []
    for name, path in sorted(files.items()):
        texts = (named.get(name), _reference_of(name))
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


def name_in_exemplar(reference: str) -> str:
    """Return exemplar-performance's file name of an image: end of the reference, and tag."""
    whole, _, _ = reference.replace("#", "/").partition("@")
    *_, parent, last = ["", *whole.split("/")]
    name, _, tag = last.partition(":")
    if tag.startswith("sha256:"):
        tag = f"sha256-{tag.removeprefix('sha256:')[:12]}"
    return f"{parent}+{name}+{tag or 'latest'}.sqsh"


def _reference_of(name: str) -> str | None:
    """The reference of a file name if it is certain: ``nvidia+nemo+25.04.01.sqsh``."""
    parts = name.removesuffix(".sqsh").split("+")
    if len(parts) != 3 or parts[0] != "nvidia" or parts[2].startswith("sha256-"):
        return None
    return f"{_NGC}/nvidia/{parts[1]}:{parts[2]}"


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
