# SPDX-License-Identifier: Apache-2.0
"""References to images as docker, podman and enroot spell them, and the registry that has them."""

import re
from dataclasses import dataclass, replace
from typing import Self

from sqshpull import http
from sqshpull.errors import PullInputError
from sqshpull.settings import RegistrySettings

DOCKER_HUB = "docker.io"
HUB_NAMES = (DOCKER_HUB, "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com")
_HUB_HOST = "registry-1.docker.io"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::\d{1,5})?"
_EXAMPLE = "write one like nvcr.io/nvidia/nemo:25.04.01"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageReference:
    """An image in a registry: by ``tag``, or by ``digest``, which decides if both are given."""

    registry: str
    repository: str
    tag: str | None
    digest: str | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``nvcr.io/nvidia/nemo:25.04.01``, ``docker://nvcr.io#nvidia/nemo``, ``...@DIGEST``.

        A name without a registry is on Docker Hub. A name without tag and digest means ``latest``.
        Raises PullInputError.
        """
        named, at, digest = text.strip().removeprefix("docker://").partition("@")
        if "#" in digest or "://" in named:
            raise _invalid(text, f"omit the {'user' if at else 'protocol'}; {_EXAMPLE}")
        if at and not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
            raise _invalid(text, "a digest is sha256: and 64 hexadecimal digits")
        registry, sharp, path = named.partition("#")
        if not sharp:  # as docker does: a registry if it looks like a host
            registry, slash, path = named.partition("/")
            if not slash or not (re.search(r"[.:]", registry) or registry == "localhost"):
                registry, path = DOCKER_HUB, named
        registry = DOCKER_HUB if registry.lower() in HUB_NAMES else registry
        repository, colon, tag = path.partition(":")
        if colon and not re.fullmatch(r"\w[\w.-]{0,127}", tag, re.ASCII):
            raise _invalid(
                text, f"'{tag}' is not a valid tag" if tag else "the tag after ':' is missing"
            )
        if not re.fullmatch(rf"{_COMPONENT}(?:/{_COMPONENT})*", repository):
            lower = repository.lower()
            in_lower_case = lower != repository and re.fullmatch(
                rf"{_COMPONENT}(?:/{_COMPONENT})*", lower
            )
            raise _invalid(
                text, f"write the name in lower case: {lower}" if in_lower_case else _EXAMPLE
            )
        if not re.fullmatch(_HOST, registry):
            raise _invalid(text, f"'{registry}' is not a valid name of a registry")
        return cls(
            registry=registry.lower(),
            repository=(
                f"library/{repository}"
                if registry == DOCKER_HUB and "/" not in repository
                else repository
            ),
            tag=tag or (None if at else "latest"),
            digest=digest or None,
        )

    @property
    def name(self) -> str:
        return f"{self.registry}/{self.repository}"

    @property
    def version(self) -> str:
        """The digest, else the tag."""
        return self.digest or self.tag or "latest"

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.name}{tag}{digest}"


def _invalid(text: str, hint: str) -> PullInputError:
    return PullInputError(
        f"'{text}' is not a valid image reference", hint=hint, code="reference-invalid", value=text
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The ``host`` to ask for a registry's images, and the ``prefix`` of repositories (``hub/``).

    ``registry`` is the name for messages and credentials: the mirror's, if one is configured.
    """

    registry: str
    host: str
    prefix: str = ""


def endpoint_of(registry: str, settings: RegistrySettings) -> Endpoint:
    """Return the host to ask for the images of ``registry``."""
    mirror = settings.registry_mirrors.get(registry)
    if mirror is None:
        return Endpoint(registry=registry, host=_HUB_HOST if registry == DOCKER_HUB else registry)
    host, _, path = (
        mirror.partition("://")[2].partition("/") if "://" in mirror else mirror.partition("/")
    )
    return Endpoint(
        registry=host, host=host, prefix=f"{path.strip('/')}/" if path.strip("/") else ""
    )


def shown_host(host: str) -> str:
    """Return a host as messages name it.

    Docker Hub has the name that users know, followed by the host that is asked.
    """
    return f"{DOCKER_HUB} ({host})" if host == _HUB_HOST else host


def mirrored(reference: ImageReference, settings: RegistrySettings) -> ImageReference:
    """Return the image's reference at the mirror, ``reference`` itself without a mirror."""
    if reference.registry not in settings.registry_mirrors:
        return reference
    endpoint = endpoint_of(reference.registry, settings)
    return replace(
        reference, registry=endpoint.host, repository=f"{endpoint.prefix}{reference.repository}"
    )


def allows_plain_http(host: str, settings: RegistrySettings) -> bool:
    """Return True if ``host``, with or without a port, may be asked without TLS.

    It is on loopback, or the settings allow it.
    """
    return bool(
        {host, http.without_port(host)} & {*settings.insecure_registries}
    ) or http.is_loopback(host)
