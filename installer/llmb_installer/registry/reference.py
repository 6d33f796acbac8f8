# SPDX-License-Identifier: Apache-2.0
"""References to images, in the spellings of docker, podman and enroot; and the registry or mirror that has them."""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from llmb.errors import UsageError
from llmb.system import http

DOCKER_HUB = "docker.io"
HUB_NAMES = (DOCKER_HUB, "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com")
_HUB_HOST = "registry-1.docker.io"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::\d{1,5})?"
_EXAMPLE = "write one like nvcr.io/nvidia/nemo:25.04.01"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """An image in a registry: by ``tag``, or by ``digest``, which decides where both are given."""

    registry: str
    repository: str
    tag: str | None
    digest: str | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``nvcr.io/nvidia/nemo:25.04.01``, ``nvcr.io#nvidia/nemo:25.04.01``, ``docker://...``, ``...@DIGEST``.

        A name without a registry is on Docker Hub; one without tag and digest means ``latest``. Raises UsageError.
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
            raise _invalid(text, f"'{tag}' is not a valid tag" if tag else "the tag after ':' is missing")
        if not re.fullmatch(rf"{_COMPONENT}(?:/{_COMPONENT})*", repository):
            lower = repository.lower()
            in_lower_case = lower != repository and re.fullmatch(rf"{_COMPONENT}(?:/{_COMPONENT})*", lower)
            raise _invalid(text, f"write the name in lower case: {lower}" if in_lower_case else _EXAMPLE)
        if not re.fullmatch(_HOST, registry):
            raise _invalid(text, f"'{registry}' is not a valid name of a registry")
        return cls(
            registry=registry.lower(),
            repository=f"library/{repository}" if registry == DOCKER_HUB and "/" not in repository else repository,
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
        return f"{self.name}{f':{self.tag}' if self.tag else ''}{f'@{self.digest}' if self.digest else ''}"


def _invalid(text: str, hint: str) -> UsageError:
    return UsageError(f"'{text}' is not a valid image reference", hint=hint, code="reference-invalid", value=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """A site's settings for registries, among the keys of ``images`` in the answers.

    ``insecure_registries`` lists hosts that may be asked without TLS; ``registry_mirrors`` maps a registry to the one
    to ask instead, ``{docker.io: mirror.example.org/hub}``; ``ca_bundle`` holds certificates to trust in addition.
    """

    insecure_registries: tuple[str, ...] = ()
    registry_mirrors: dict[str, str] = field(default_factory=dict)
    ca_bundle: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The ``host`` to ask for the images of a registry, and the ``prefix`` of its repositories there (``hub/``).

    ``registry`` is the name for messages and credentials: the mirror's, where one is configured.
    """

    registry: str
    host: str
    prefix: str = ""


def endpoint_of(registry: str, settings: RegistrySettings) -> Endpoint:
    """Where to ask for the images of ``registry``."""
    mirror = settings.registry_mirrors.get(registry)
    if mirror is None:
        return Endpoint(registry=registry, host=_HUB_HOST if registry == DOCKER_HUB else registry)
    host, _, path = mirror.partition("://")[2].partition("/") if "://" in mirror else mirror.partition("/")
    return Endpoint(registry=host, host=host, prefix=f"{path.strip('/')}/" if path.strip("/") else "")


def shown_host(host: str) -> str:
    """A host as messages name it: Docker Hub by the name that users know, followed by the host that is asked."""
    return f"{DOCKER_HUB} ({host})" if host == _HUB_HOST else host


def mirrored(reference: Reference, settings: RegistrySettings) -> Reference:
    """The image's reference at the mirror; ``reference`` itself without a mirror."""
    if reference.registry not in settings.registry_mirrors:
        return reference
    endpoint = endpoint_of(reference.registry, settings)
    return replace(reference, registry=endpoint.host, repository=f"{endpoint.prefix}{reference.repository}")


def allows_plain_http(host: str, settings: RegistrySettings) -> bool:
    """Whether ``host``, with or without a port, may be asked without TLS: on loopback, or as the settings say."""
    return bool({host, http.without_port(host)} & {*settings.insecure_registries}) or http.is_loopback(host)
