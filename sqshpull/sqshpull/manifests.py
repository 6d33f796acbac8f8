# SPDX-License-Identifier: Apache-2.0
"""Reads manifests and indexes of images, docker's and OCI's, and reports what is wrong. Pure."""

import json
import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqshpull.errors import MIRROR, PullError
from sqshpull.reference import ImageReference

MEDIA_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_CONFIGS = (
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
)

# The names that `uname -m` prints, which messages use, and those of registries.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}
_USUAL_VARIANTS = {"amd64": ("", "v1"), "arm64": ("", "v8")}
_SHOWN = 8  # tags that a message lists
# size of a zstd squashfs by that of the gzip layers, at most; measured on images of frameworks
_BUILT = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A blob of an image: its media type, sha256 digest, and size in bytes."""

    media_type: str
    digest: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageManifest:
    """An image for one ``architecture`` (the registries' name, amd64), the lowest layer first.

    ``index_digest`` is the digest of the index that lists it, None without one.
    """

    reference: ImageReference
    digest: str
    index_digest: str | None
    architecture: str
    config: Blob
    layers: tuple[Blob, ...]

    @property
    def compressed_bytes(self) -> int:
        """The bytes to fetch. A layer that is listed twice is fetched once."""
        return sum({blob.digest: blob.size for blob in (self.config, *self.layers)}.values())

    @property
    def image_bytes(self) -> int:
        """The approximate size of the built file."""
        return round(self.compressed_bytes * _BUILT)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """One image of an index."""

    descriptor: Blob
    os: str
    architecture: str
    variant: str


def architecture_name(machine: str | None = None) -> str:
    """Return the registries' name: amd64 for ``x86_64``, this machine's for None."""
    name = (machine or platform.machine()).lower()
    return _ARCHITECTURES.get(name, name)


def machine_name(architecture: str | None) -> str:
    """Return the name of an architecture as `uname -m` prints it: x86_64 for ``amd64``."""
    if architecture is None:
        return "unknown machines"
    name = architecture.lower()
    return next(
        (machine for machine, registry_name in _ARCHITECTURES.items() if registry_name == name),
        name,
    )


def parse_json(body: bytes, title: str) -> dict[str, Any]:
    """Return the JSON object in ``body``, which messages call ``title``. Raises PullError."""
    try:
        data, reason = json.loads(body), "a JSON object"
    except (ValueError, RecursionError) as error:
        deep = isinstance(error, RecursionError)
        data, reason = None, f"JSON: {'nested too deeply' if deep else error}"
    if not isinstance(data, dict):
        hint = "try again; a proxy may have answered instead of the registry"
        raise PullError(f"{title} is not {reason}", hint=hint, code="image-damaged", key=title)
    return data


def read_index(data: dict[str, Any], reference: ImageReference) -> tuple[IndexEntry, ...] | None:
    """Return the images of an index, None if ``data`` is not an index. Raises PullError."""
    if not isinstance(data.get("manifests"), list):
        return None
    listed = []
    for item in data["manifests"]:
        place = item.get("platform") if isinstance(item, dict) else None
        place = place if isinstance(place, dict) else {}
        words = [str(place.get(key) or "") for key in ("os", "architecture", "variant")]
        listed.append(
            IndexEntry(
                descriptor=_descriptor(item, reference),
                os=words[0],
                architecture=words[1],
                variant=words[2],
            )
        )
    return tuple(listed)


def choose(listed: Sequence[IndexEntry], architecture: str, reference: ImageReference) -> Blob:
    """Return the image for Linux on ``architecture``, of several variants the most general.

    Raises PullError.
    """
    images = [image for image in listed if image.os in ("", "linux")]
    fits = [image for image in images if image.architecture == architecture]
    if not fits:
        raise no_architecture(reference, architecture, [image.architecture for image in images])
    usual = _USUAL_VARIANTS.get(architecture, ("",))
    return next((image for image in fits if image.variant in usual), fits[0]).descriptor


def read_manifest(data: dict[str, Any], reference: ImageReference) -> tuple[Blob, tuple[Blob, ...]]:
    """Return config and layers of a manifest. Raises PullError if it is not a container image's."""
    if "fsLayers" in data:
        raise unusable(
            reference, "is in docker's old format (schema 1)", "push it again with a current docker"
        )
    config, layers = data.get("config"), data.get("layers")
    if not isinstance(config, dict) or not isinstance(layers, list):
        raise unusable(reference, "has no manifest of a container image", "check the reference")
    if config.get("mediaType") not in _CONFIGS:
        raise unusable(
            reference,
            f"is not a container image but {config.get('mediaType')}",
            "check the reference",
        )
    return _descriptor(config, reference), tuple(_descriptor(layer, reference) for layer in layers)


def _descriptor(item: Any, reference: ImageReference) -> Blob:
    digest, size = (
        (item.get("digest"), item.get("size")) if isinstance(item, dict) else (None, None)
    )
    if (
        not re.fullmatch(r"sha256:[0-9a-f]{64}", str(digest))
        or not isinstance(size, int)
        or size < 0
    ):
        raise unusable(
            reference,
            "lists a part without a sha256 digest and a size",
            "report it to its publisher",
        )
    return Blob(media_type=str(item.get("mediaType") or ""), digest=str(digest), size=size)


def no_architecture(
    reference: ImageReference, architecture: str, available: Sequence[str]
) -> PullError:
    """Return the error for an image that exists only for the architectures ``available``."""
    names = sorted({machine_name(name) for name in available if name not in ("", "unknown")})
    message = f"{reference} is not available for {machine_name(architecture)}"
    message += f", only for {', '.join(names)}" if names else "; its registry names no architecture"
    hint = "choose another image, or correct the nodes' architecture"
    return PullError(
        message, hint=hint, code="architecture-missing", key=str(reference), value=names
    )


def unusable(reference: ImageReference, reason: str, hint: str) -> PullError:
    """Return the error for an image of an unsupported form."""
    return PullError(f"{reference} {reason}", hint=hint, code="image-unusable", key=str(reference))


def missing(
    reference: ImageReference,
    tags: Callable[[], list[str] | None],
    *,
    version: str,
    mirror_of: str | None = None,
) -> PullError:
    """Return the error for a reference that does not exist, with the nearest tag of ``tags()``.

    ``version`` is the tag or digest that was asked for. ``mirror_of`` is the registry that this one
    is a mirror of.
    """
    message, hint = _missing_part(reference, version, tags)
    if mirror_of is not None:
        hint = f"{hint}; {MIRROR} names it as the mirror of {mirror_of}"
    return PullError(message, hint=hint, code="image-missing", key=str(reference))


def _missing_part(
    reference: ImageReference, version: str, tags: Callable[[], list[str] | None]
) -> tuple[str, str]:
    """Return the part of ``reference`` that does not exist, and the fix."""
    if ":" in version:
        return (
            f"{reference.name} has no image {version}",
            "it may have been removed: choose another, or a tag",
        )
    try:
        existing = tags()
    except PullError as error:  # reading tags may need more rights than reading the image
        return (
            f"{reference} does not exist",
            f"check name and tag; its tags cannot be read: {error}",
        )
    if existing is None:
        return (
            f"{reference.registry} has no repository {reference.repository}",
            "check the spelling of the name",
        )
    if version in existing:
        message = (
            f"{reference.name} lists the tag {version}, but its registry does not have it (HTTP"
            " 404)"
        )
        return message, "the push may be unfinished: try again, else report it to its publisher"
    if (close := _nearest(version, existing)) is not None:
        hint = f"did you mean '{close}'?"
    else:
        newest_first = sorted(existing)[::-1]
        more = f" and {len(existing) - _SHOWN} more" if len(existing) > _SHOWN else ""
        hint = f"existing tags: {', '.join(newest_first[:_SHOWN]) + more or 'none'}"
    return f"{reference.name} has no tag {version}", hint


def _nearest(tag: str, tags: Sequence[str]) -> str | None:
    """Return the tag that is most like ``tag``, None if none is close."""
    import difflib

    by_lower = {name.lower(): name for name in tags}
    matches = difflib.get_close_matches(tag.lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[matches[0]] if matches else None
