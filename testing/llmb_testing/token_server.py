# SPDX-License-Identifier: Apache-2.0
"""A token server as docker's registries use them: for user and password it signs which repositories may be read."""

from __future__ import annotations

import base64
import fnmatch
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from llmb_testing.certificates import Certificate

SERVICE, ISSUER = "llmb-registry", "llmb-tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request for a token: who asked (None: nobody in particular), and for which scopes."""

    user: str | None
    scopes: tuple[str, ...]


class TokenServer:
    """Serves tokens over TLS at ``realm``; as a context manager, from its start to its end.

    ``passwords`` of the users; ``public``, a pattern of repositories that anybody may read. ``asked`` are the requests
    that came.
    """

    def __init__(self, certificate: Certificate, passwords: Mapping[str, str], public: str = "public/*") -> None:
        self.asked: list[Asked] = []
        self._certificate, self._passwords, self._public = certificate, passwords, public
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.socket = certificate.wrap(self._server.socket)
        self.realm = f"https://127.0.0.1:{self._server.server_address[1]}/token"

    def __enter__(self) -> TokenServer:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, authorization: str | None, scopes: list[str]) -> str | None:
        """The token for a request; None when the password is wrong."""
        user = self._user(authorization) if authorization else None
        self.asked.append(Asked(user=user, scopes=tuple(scopes)))
        if authorization and user is None:
            return None
        return self.token([scope for scope in scopes if user is not None or self._is_public(scope)])

    def token(self, scopes: list[str]) -> str:
        """A token that grants all of ``scopes``, ``repository:NAME:pull,push``."""
        access = []
        for scope in scopes:
            kind, name, actions = scope.split(":")
            access.append({"type": kind, "name": name, "actions": actions.split(",")})
        now = int(time.time())
        claims = {"iss": ISSUER, "sub": "", "aud": SERVICE, "exp": now + 300, "nbf": now - 60, "iat": now, "jti": "1"}
        header = {"typ": "JWT", "alg": "RS256", "x5c": [self._certificate.der]}
        text = f"{_encode(json.dumps(header))}.{_encode(json.dumps({**claims, 'access': access}))}"
        return f"{text}.{_encode(self._certificate.sign(text.encode()))}"

    def _user(self, authorization: str) -> str | None:
        user, _, password = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        return user if self._passwords.get(user) == password else None

    def _is_public(self, scope: str) -> bool:
        _, name, actions = scope.split(":")
        return actions == "pull" and fnmatch.fnmatch(name, self._public)


def _encode(content: str | bytes) -> str:
    raw = content.encode() if isinstance(content, str) else content
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _handler(server: TokenServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            scopes = parse_qs(urlsplit(self.path).query).get("scope", [])
            token = server.answer(self.headers.get("Authorization"), scopes)
            refused = {"errors": [{"code": "UNAUTHORIZED", "message": "wrong password"}]}
            body = json.dumps({"token": token, "expires_in": 300} if token else refused).encode()
            self.send_response(200 if token else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing on the terminal."""

    return Handler
