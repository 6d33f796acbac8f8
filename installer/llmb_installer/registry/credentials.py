# SPDX-License-Identifier: Apache-2.0
"""Whose credentials a registry gets: those of the environment, of docker, of podman, or of enroot; the first found."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from llmb.errors import LlmbError
from llmb.system import secrets
from llmb_installer.registry import docker_config, netrc
from llmb_installer.registry.reference import DOCKER_HUB

NGC, NGC_KEY, NGC_USER = "nvcr.io", "NGC_API_KEY", "$oauthtoken"

# The hosts under which enroot's users keep what these registries ask for.
_TOKEN_HOSTS = {DOCKER_HUB: "auth.docker.io", NGC: "authn.nvidia.com"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A user and his secret, which is never shown, and the ``source`` that they came from.

    ``identity_token``: the secret is an OAuth2 refresh token in place of a password.
    """

    user: str
    secret: str = field(repr=False)
    source: str
    identity_token: bool = False

    def __str__(self) -> str:
        return f"'{self.user}' from {self.source}"


def find_credentials(
    registry: str, environ: Mapping[str, str], home: Path, *, token_host: str | None = None
) -> Credentials | None:
    """The credentials for ``registry``, whose token server is ``token_host``; None when there are none.

    Raises LlmbError when a file that may hold them cannot be read, or a credential helper fails.
    """
    if (found := _from_variables(registry, environ)) is not None:
        return found
    for path in _docker_files(environ, home):
        if (pair := docker_config.look_up(path, registry, environ)) is not None:
            source = f"{shown(path, home)} (docker-credential-{pair.helper})" if pair.helper else shown(path, home)
            return Credentials(user=pair.user, secret=pair.secret, source=source, identity_token=pair.is_identity_token)
    path = _enroot_file(environ, home)
    hosts = [registry, registry.partition(":")[0], token_host, _TOKEN_HOSTS.get(registry)]
    login = netrc.look_up(path, [host for host in hosts if host], environ)
    if login is None:
        return None
    return Credentials(user=login.user, secret=login.password, source=shown(path, home))


def looked_in(registry: str, environ: Mapping[str, str], home: Path) -> str:
    """Where credentials for ``registry`` were looked for, for a message."""
    names = [NGC_KEY] if registry == NGC else [variables(registry)[1]]
    files = [*_docker_files(environ, home), _enroot_file(environ, home)]
    return ", ".join([*names, *(shown(path, home) for path in files)])


def shown(path: Path, home: Path) -> str:
    """A path for a message, ``~`` for the home folder."""
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def variables(registry: str) -> tuple[str, str]:
    """The variables with user and password of any registry: ``REGISTRY_GHCR_IO_USER``, ``..._PASSWORD``."""
    word = re.sub(r"\W", "_", registry).upper()
    return f"REGISTRY_{word}_USER", f"REGISTRY_{word}_PASSWORD"


def _from_variables(registry: str, environ: Mapping[str, str]) -> Credentials | None:
    """From the environment or llmb's file of secrets."""
    user, password = variables(registry)
    found = secrets.find([user, password, *([NGC_KEY] if registry == NGC else [])], environ)

    def source(name: str) -> str:
        return f"the variable {name}" if environ.get(name) else f"{name} in {secrets.SECRETS_FILE}"

    if password in found and user not in found:
        raise LlmbError(f"{password} is set, but not {user}", hint=f"set {user} too")
    if password in found:
        return Credentials(user=found[user], secret=found[password], source=source(password))
    if NGC_KEY in found:
        return Credentials(user=NGC_USER, secret=found[NGC_KEY], source=source(NGC_KEY))
    return None


def _docker_files(environ: Mapping[str, str], home: Path) -> Iterator[Path]:
    """docker's file, and podman's, which has its form."""
    yield Path(environ.get("DOCKER_CONFIG") or home / ".docker") / "config.json"
    if environ.get("REGISTRY_AUTH_FILE"):
        yield Path(environ["REGISTRY_AUTH_FILE"])
    elif environ.get("XDG_RUNTIME_DIR"):
        yield Path(environ["XDG_RUNTIME_DIR"]) / "containers" / "auth.json"


def _enroot_file(environ: Mapping[str, str], home: Path) -> Path:
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    return Path(environ.get("ENROOT_CONFIG_PATH") or config / "enroot") / ".credentials"
