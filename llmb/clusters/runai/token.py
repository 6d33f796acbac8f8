# SPDX-License-Identifier: Apache-2.0
"""Who signs in at Run:ai's API, and until when a token holds."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from llmb.config.runai import RunaiConfig
from llmb.errors import LlmbError
from llmb.system import secrets

# An access key, and what it was called before; both pairs of names stand for either.
_NAMES = (("CLIENT_ID", "CLIENT_SECRET"), ("APP_ID", "APP_SECRET"))
_LONGEST = 1e9  # seconds: no token lasts longer
_EARLY = 60.0  # seconds before its end in which a token is not used any more


class NotSetError(LlmbError):
    """The variable ``name``, without which nobody can sign in, is set nowhere."""

    def __init__(self, name: str, hint: str) -> None:
        super().__init__(f"{name} is not set", hint=hint)
        self.name = name


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """One way to ask for a token: the API's version, and its body, which goes as a form to version 2, else as JSON."""

    version: int
    content: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """An access key's id and its secret, which is never shown."""

    id: str
    secret: str = field(repr=False)

    def requests(self) -> tuple[TokenRequest, ...]:
        """The ways to ask for a token, newest first: OAuth 2 (from 2.24), an access key's, and an application's, which
        releases before 3.0 knew.
        """
        ours, theirs = "client_credentials", "app_token"
        return (
            TokenRequest(version=2, content={"grant_type": ours, "client_id": self.id, "client_secret": self.secret}),
            TokenRequest(version=1, content={"grantType": ours, "clientID": self.id, "clientSecret": self.secret}),
            TokenRequest(version=1, content={"grantType": theirs, "appID": self.id, "appSecret": self.secret}),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """An access token, good until ``until`` in seconds since the epoch."""

    text: str = field(repr=False)
    until: float


def find_credentials(runai: RunaiConfig, environ: Mapping[str, str]) -> Credentials:
    """From the environment, else from the secrets file; the id also from the configuration.

    Raises NotSetError for what is missing, LlmbError where the secrets file cannot be read.
    """
    found = secrets.find([name for pair in _NAMES for name in pair], environ)
    for id_name, secret_name in _NAMES:
        key = found.get(id_name) or runai.app_id
        if key and secret_name in found:
            return Credentials(id=key, secret=found[secret_name])
    missing = next((name for _, name in _NAMES if name in found), None)
    where = f"export it, or keep it in {secrets.SECRETS_FILE}"
    if missing is not None:
        id_name = missing.replace("_SECRET", "_ID")
        raise NotSetError(id_name, hint=f"{where}; runai.app_id in cluster_config.yaml does as well")
    raise NotSetError("APP_SECRET", hint=f"{where}: the secret of the access key that signs in at Run:ai")


def read_token(answer: Any, now: float) -> Token | None:
    """The token of an answer that came at ``now``; None where there is none.

    It ends as the answer says, or as the token itself does (a JWT's ``exp``), whichever is first; a clock that is off
    by more than it lasts is not believed.
    """
    text = (answer.get("accessToken") or answer.get("access_token")) if isinstance(answer, dict) else None
    if not isinstance(text, str) or not text or not (text.isascii() and text.isprintable()):
        return None
    lasts, ends = answer.get("expiresIn") or answer.get("expires_in"), _expiry(text)
    times = [now + lasts] if isinstance(lasts, int | float) and 0 < lasts < _LONGEST else []
    times += [ends] if ends is not None and ends > now else []
    until = min(times, default=now + 2 * _EARLY)
    return Token(text=text, until=max(until - _EARLY, now + (until - now) / 2))


def _expiry(token: str) -> float | None:
    """The JWT's ``exp``, None where the token is none."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error):
        return None
    ends = claims.get("exp") if isinstance(claims, dict) else None
    return float(ends) if isinstance(ends, int | float) and abs(ends) < _LONGEST * 10 else None
