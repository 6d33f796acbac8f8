# SPDX-License-Identifier: Apache-2.0
"""Reads docker's config.json: logins kept in the file itself, or by a credential helper, a program that it names."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmb.errors import LlmbError
from llmb.system import files, shell
from llmb_installer.registry.reference import DOCKER_HUB, HUB_NAMES

_HUB_KEY = "https://index.docker.io/v1/"
_HELPER_SECONDS = 30.0
_HINT = "log in again: docker login"


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """What is kept for a registry; ``helper`` is the program that kept it, None for the file."""

    user: str
    secret: str
    is_identity_token: bool = False
    helper: str | None = None

    def __repr__(self) -> str:
        return f"Login({self.user!r}, ...)"


def look_up(path: Path, registry: str, environ: Mapping[str, str]) -> Login | None:
    """The login for ``registry`` by the file ``path``; None when there is none, or no such file.

    A registry's own helper goes first, then the common one, then the file. Raises LlmbError for a damaged file and a
    helper that fails.
    """
    data = files.read_json(path)
    if not isinstance(data, dict):
        return None
    auths, helpers = _mapping(data, "auths"), _mapping(data, "credHelpers")
    helper = next((name for key, name in helpers.items() if _is_for(key, registry)), None) or data.get("credsStore")
    kept = next((entry for key, entry in auths.items() if _is_for(key, registry) and entry), None)
    if isinstance(helper, str) and helper:
        login = _ask(helper, registry, environ, path)
        if login is not None:
            return login
    return _from_entry(kept, path, registry) if isinstance(kept, dict) else None


def _mapping(data: dict[str, Any], key: str) -> dict[str, Any]:
    found = data.get(key)
    return found if isinstance(found, dict) else {}


def _is_for(key: str, registry: str) -> bool:
    """Whether a key of the file (``https://index.docker.io/v1/``, ``nvcr.io``) means ``registry``."""
    host = key.partition("://")[2] or key
    host = host.partition("/")[0].lower()
    return host == registry or (registry == DOCKER_HUB and host in HUB_NAMES)


def _from_entry(entry: dict[str, Any], path: Path, registry: str) -> Login | None:
    user, secret = entry.get("username"), entry.get("password")
    if entry.get("auth"):
        try:
            user, colon, secret = base64.b64decode(entry["auth"], validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError, TypeError, ValueError):
            colon = ""
        if not colon:
            raise LlmbError(f"{path}: the 'auth' of {registry} cannot be read", hint=f"{_HINT} {registry}")
    if entry.get("identitytoken"):
        return Login(user=user or "<token>", secret=str(entry["identitytoken"]), is_identity_token=True)
    return Login(user=str(user), secret=str(secret)) if user and secret else None


def _ask(helper: str, registry: str, environ: Mapping[str, str], path: Path) -> Login | None:
    """Ask the credential helper, by docker's protocol; None when it keeps nothing for ``registry``."""
    program = f"docker-credential-{helper}"
    server = _HUB_KEY if registry == DOCKER_HUB else registry
    try:
        done = shell.run([program, "get"], env=environ, timeout=_HELPER_SECONDS, given=server)
    except LlmbError as error:
        raise _failed(path, program, error.message) from error
    if done.code:
        said = (done.out or done.err).strip()
        if "not found" in said.lower():
            return None
        raise _failed(path, program, said or f"exit code {done.code}")
    try:
        answer = json.loads(done.out)
        user, secret = answer["Username"], answer["Secret"]
    except (ValueError, KeyError, TypeError) as error:
        raise _failed(path, program, "its answer is not that of a credential helper") from error
    return Login(user=user, secret=secret, is_identity_token=user == "<token>", helper=helper) if secret else None


def _failed(path: Path, program: str, said: str) -> LlmbError:
    message = f"{path} leaves credentials to {program}, which failed: {said}"
    return LlmbError(message, hint="mend it, or take its line ('credsStore', 'credHelpers') out of that file")
