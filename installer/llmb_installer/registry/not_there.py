# SPDX-License-Identifier: Apache-2.0
"""Says what of a reference does not exist, and what is nearest to it."""

from collections.abc import Callable

from llmb.text.names import nearest
from llmb_installer.registry.faults import ImageFaultError
from llmb_installer.registry.reference import Reference

_SHOWN = 8


def not_there(
    reference: Reference, version: str, tags: Callable[[], list[str] | None], *, instead_of: str | None = None
) -> ImageFaultError:
    """The error that ``reference`` does not exist; ``tags`` asks for those of its repository.

    ``instead_of``: the registry that it is a mirror of, None where it is none.
    """
    found = _found_out(reference, version, tags)
    if instead_of is None:
        return found
    hint = f"{found.hint}; registry_mirrors has it asked in place of {instead_of}"
    return ImageFaultError(found.kind, found.message, hint=hint)


def _found_out(reference: Reference, version: str, tags: Callable[[], list[str] | None]) -> ImageFaultError:
    if ":" in version:
        message = f"{reference.name} has nothing with the digest {version}"
        return ImageFaultError("not_there", message, hint="it may have been removed: name another, or a tag")
    try:
        there = tags()
    except ImageFaultError as error:  # the tags may be for fewer eyes than the image
        message = f"{reference} does not exist"
        return ImageFaultError("not_there", message, hint=f"check name and tag; its tags cannot be read: {error}")
    if there is None:
        message = f"{reference.registry} has no repository {reference.repository}"
        return ImageFaultError("not_there", message, hint="check the name's spelling")
    if version in there:
        message = f"{reference.name} lists the tag {version}, and its registry does not give it (HTTP 404)"
        return ImageFaultError("not_there", message, hint="try again: it may be on its way; else tell who publishes it")
    close = nearest(version, there, str.lower)
    hint = f"did you mean '{close}'?" if close else f"it has {_listed(there)}"
    return ImageFaultError("not_there", f"{reference.name} has no tag {version}", hint=hint)


def _listed(tags: list[str]) -> str:
    if not tags:
        return "no tags at all"
    rest = f" and {len(tags) - _SHOWN} more" if len(tags) > _SHOWN else ""
    return ", ".join(sorted(tags)[-_SHOWN:]) + rest
