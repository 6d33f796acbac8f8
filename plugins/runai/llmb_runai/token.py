# SPDX-License-Identifier: Apache-2.0
"""Credentials for Run:ai's API, and access tokens with their expiry."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from llmb.api import SECRETS_FILE, LlmbError, find_secrets
from llmb_runai.runai_config import RunaiConfig

# An access key and, before 3.0, an application; either pair of names works for both.
_NAMES = (("CLIENT_ID", "CLIENT_SECRET"), ("APP_ID", "APP_SECRET"))
_LONGEST = 1e9  # seconds: no token lasts longer
_EARLY = 60.0  # seconds before its expiry in which a token is no longer used


class NotSetError(LlmbError):
    """The variable ``name``, which sign-in needs, is not set."""

    def __init__(self, name: str, hint: str) -> None:
        super().__init__(f"{name} is not set", hint=hint, code="secret-missing", key=name)
        self.name = name


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """One way to request a token: the API's version and the body, a form for version 2, JSON for
    version 1.
    """

    version: int
    content: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """An access key's id and its secret, which is never printed."""

    id: str
    secret: str = field(repr=False)

    def requests(self) -> tuple[TokenRequest, ...]:
        """The ways to request a token, newest first: OAuth 2 (2.24), an access key, an application
        (before 3.0).
        """
        oauth, application = "client_credentials", "app_token"
        return (
            TokenRequest(
                version=2,
                content={"grant_type": oauth, "client_id": self.id, "client_secret": self.secret},
            ),
            TokenRequest(
                version=1,
                content={"grantType": oauth, "clientID": self.id, "clientSecret": self.secret},
            ),
            TokenRequest(
                version=1,
                content={"grantType": application, "appID": self.id, "appSecret": self.secret},
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """An access token, valid until ``until`` in seconds since the epoch."""

    text: str = field(repr=False)
    until: float


def find_credentials(runai: RunaiConfig, environ: Mapping[str, str]) -> Credentials:
    """The credentials from the environment, else from the secrets file, the id also from the
    configuration.

    Raises NotSetError for a missing one, LlmbError where the secrets file cannot be read.
    """
    values = find_secrets([name for pair in _NAMES for name in pair], environ)
    for id_name, secret_name in _NAMES:
        key = values.get(id_name) or runai.app_id
        if key and secret_name in values:
            return Credentials(id=key, secret=values[secret_name])
    missing = next((name for _, name in _NAMES if name in values), None)
    advice = f"export it, or put it into {SECRETS_FILE}"
    if missing is not None:
        id_name = missing.replace("_SECRET", "_ID")
        raise NotSetError(id_name, hint=f"{advice}, or set runai.app_id in cluster_config.yaml")
    raise NotSetError("APP_SECRET", hint=f"{advice}: it is the secret of the access key for Run:ai")


def read_token(answer: Any, now: float) -> Token | None:
    """The token of an answer that came at ``now``, or None where there is none.

    It expires as the answer says, or as the token itself says (a JWT's ``exp``), whichever is
    first. An ``exp`` in the past is ignored: the clocks differ.
    """
    text = (
        (answer.get("accessToken") or answer.get("access_token"))
        if isinstance(answer, dict)
        else None
    )
    if not isinstance(text, str) or not text or not (text.isascii() and text.isprintable()):
        return None
    lasts, ends = answer.get("expiresIn") or answer.get("expires_in"), _expiry(text)
    times = [now + lasts] if isinstance(lasts, int | float) and 0 < lasts < _LONGEST else []
    times += [ends] if ends is not None and ends > now else []
    until = min(times, default=now + 2 * _EARLY)
    return Token(text=text, until=max(until - _EARLY, now + (until - now) / 2))


def _expiry(token: str) -> float | None:
    """The JWT's ``exp``, or None where the token is no JWT."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error):
        return None
    ends = claims.get("exp") if isinstance(claims, dict) else None
    return float(ends) if isinstance(ends, int | float) and abs(ends) < _LONGEST * 10 else None
