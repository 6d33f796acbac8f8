# SPDX-License-Identifier: Apache-2.0
"""A site's settings for registries: mirrors, hosts without TLS, certificates; and which host they lead to."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from llmb.system import http
from llmb_installer.registry.reference import DOCKER_HUB, Reference

_HUB_HOST = "registry-1.docker.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """Keys of the installer's answers.

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
