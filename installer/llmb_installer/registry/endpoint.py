# SPDX-License-Identifier: Apache-2.0
"""Where a registry is asked: Docker Hub's own host, a mirror in its place, and whether that may go without TLS."""

import ipaddress
from dataclasses import dataclass, replace

from llmb_installer.registry.reference import DOCKER_HUB, Reference
from llmb_installer.registry.settings import RegistrySettings

_HUB_HOST = "registry-1.docker.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """``registry``, whose credentials count and which messages name; the ``host`` that is asked; and what goes before
    the names of repositories there, ``hub/`` or nothing."""

    registry: str
    host: str
    prefix: str = ""


def place_of(registry: str, settings: RegistrySettings) -> Place:
    """Where ``registry`` is asked by the settings."""
    mirror = settings.registry_mirrors.get(registry)
    if mirror is None:
        return Place(registry=registry, host=_HUB_HOST if registry == DOCKER_HUB else registry)
    host, _, path = mirror.partition("://")[2].partition("/") if "://" in mirror else mirror.partition("/")
    return Place(registry=host, host=host, prefix=f"{path.strip('/')}/" if path.strip("/") else "")


def called(host: str) -> str:
    """A host as messages name it: Docker Hub by the name that its users know, with the one that is asked."""
    return f"{DOCKER_HUB} ({host})" if host == _HUB_HOST else host


def mirrored(reference: Reference, settings: RegistrySettings) -> Reference:
    """The image under its name at the mirror; ``reference`` itself where its registry has none."""
    if reference.registry not in settings.registry_mirrors:
        return reference
    place = place_of(reference.registry, settings)
    return replace(reference, registry=place.host, repository=f"{place.prefix}{reference.repository}")


def may_be_plain(host: str, settings: RegistrySettings) -> bool:
    """Whether ``host``, with or without a port, may be asked without TLS: loopback, or named in the settings."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if name == "localhost" or {host, name} & {*settings.insecure_registries}:
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False
