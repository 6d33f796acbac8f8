# SPDX-License-Identifier: Apache-2.0
"""Reads what registries say of an image: manifests and indexes, docker's and OCI's. Pure."""

import json
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llmb_installer.registry.faults import ImageFaultError
from llmb_installer.registry.reference import Reference

MEDIA_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_CONFIGS = ("application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json")

# As machines call themselves, which is what people read, and as registries call them.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}
_USUAL_VARIANTS = {"amd64": ("", "v1"), "arm64": ("", "v8")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """A blob of an image: what it is, its sha256 digest, and its size in bytes."""

    media_type: str
    digest: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """An image for one architecture (the registries' name: amd64), its layers from the lowest to the uppermost.

    ``index_digest`` is that of the index that listed it, None where there was none.
    """

    reference: Reference
    digest: str
    index_digest: str | None
    architecture: str
    config: Descriptor
    layers: tuple[Descriptor, ...]

    @property
    def compressed_bytes(self) -> int:
        """What is to be fetched, in bytes; a layer that comes twice counts once."""
        return sum({blob.digest: blob.size for blob in (self.config, *self.layers)}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One image that an index lists."""

    descriptor: Descriptor
    os: str
    architecture: str
    variant: str


def architecture_name(machine: str | None = None) -> str:
    """The registries' name of an architecture: ``x86_64`` is amd64, ``aarch64`` arm64; None is this machine's."""
    name = (machine or platform.machine()).lower()
    return _ARCHITECTURES.get(name, name)


def machine_name(architecture: str | None) -> str:
    """An architecture as machines call themselves, for people: ``amd64`` and ``x86_64`` are x86_64."""
    if architecture is None:
        return "unknown machines"
    name = architecture.lower()
    return next((machine for machine, other in _ARCHITECTURES.items() if other == name), name)


def parse_json(body: bytes, what: str) -> dict[str, Any]:
    """The JSON object in ``body``. Raises ImageFaultError."""
    try:
        data = json.loads(body)
    except ValueError as error:
        raise _odd(f"{what} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise _odd(f"{what} is not a JSON object")
    return data


def read_index(data: dict[str, Any], reference: Reference) -> tuple[Listed, ...] | None:
    """The images that an index lists; None when ``data`` is no index. Raises ImageFaultError."""
    if not isinstance(data.get("manifests"), list):
        return None
    listed = []
    for item in data["manifests"]:
        place = item.get("platform") if isinstance(item, dict) else None
        place = place if isinstance(place, dict) else {}
        words = [str(place.get(key) or "") for key in ("os", "architecture", "variant")]
        listed.append(
            Listed(descriptor=_descriptor(item, reference), os=words[0], architecture=words[1], variant=words[2])
        )
    return tuple(listed)


def choose(listed: Sequence[Listed], architecture: str, reference: Reference) -> Descriptor:
    """The image for Linux on ``architecture``, the plainest of several variants. Raises ImageFaultError."""
    images = [image for image in listed if image.os in ("", "linux")]
    fits = [image for image in images if image.architecture == architecture]
    if not fits:
        raise no_architecture(reference, architecture, [image.architecture for image in images])
    usual = _USUAL_VARIANTS.get(architecture, ("",))
    return next((image for image in fits if image.variant in usual), fits[0]).descriptor


def no_architecture(reference: Reference, architecture: str, there: Sequence[str]) -> ImageFaultError:
    """The error that an image is not there for ``architecture`` but for those ``there``."""
    names = sorted({machine_name(name) for name in there if name not in ("", "unknown")})
    others = ", ".join(names) or "none that it names"
    message = f"{reference} is not there for {machine_name(architecture)}; it is for {others}"
    return ImageFaultError("architecture", message, hint="name an image for it, or mend the nodes' architecture")


def read_manifest(data: dict[str, Any], reference: Reference) -> tuple[Descriptor, tuple[Descriptor, ...]]:
    """Config and layers of a manifest. Raises ImageFaultError when it is none of a container image."""
    if "fsLayers" in data:
        raise unusable(reference, "is in docker's old format (schema 1)", "push it again with a docker of this decade")
    config, layers = data.get("config"), data.get("layers")
    if not isinstance(config, dict) or not isinstance(layers, list):
        raise unusable(reference, "has no manifest of a container image", "check the reference")
    if config.get("mediaType") not in _CONFIGS:
        raise unusable(reference, f"is no container image but {config.get('mediaType')}", "check the reference")
    return _descriptor(config, reference), tuple(_descriptor(layer, reference) for layer in layers)


def _descriptor(item: Any, reference: Reference) -> Descriptor:
    digest, size = (item.get("digest"), item.get("size")) if isinstance(item, dict) else (None, None)
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", str(digest)) or not isinstance(size, int) or size < 0:
        raise unusable(reference, "lists a part without a sha256 digest and a size", "tell who publishes it")
    return Descriptor(media_type=str(item.get("mediaType") or ""), digest=str(digest), size=size)


def unusable(reference: Reference, why: str, hint: str) -> ImageFaultError:
    """The error that an image cannot be used by its form."""
    return ImageFaultError("unusable", f"{reference} {why}", hint=hint)


def _odd(message: str) -> ImageFaultError:
    return ImageFaultError("damaged", message, hint="try again; a proxy on the way may have answered in its place")
