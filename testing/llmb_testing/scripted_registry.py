# SPDX-License-Identifier: Apache-2.0
"""A small registry that fails exactly as a test asks, and records the requests.

with ScriptedRegistry() as registry:
    registry.add("team/tool", "1.0", made)
    registry.next("/blobs/", Status(429, {"Retry-After": "7"}), Cut(1000))
"""

from __future__ import annotations

import base64
import json
import re
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from llmb_testing.certificates import Certificate
from llmb_testing.sample_images import Made


@dataclass(frozen=True, slots=True)
class Status:
    """Answer with this status instead. A Location header makes it a redirect."""

    code: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b"{}"


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection after this many bytes of the body."""

    after: int


@dataclass(frozen=True, slots=True)
class Hang:
    """Pause after this many bytes of the body, until ``resumed`` is set."""

    after: int
    resumed: threading.Event


@dataclass(frozen=True, slots=True)
class Wrong:
    """Send different bytes of the same length."""


@dataclass(frozen=True, slots=True)
class Longer:
    """Send ten bytes too many."""


Fault = Status | Cut | Hang | Wrong | Longer


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryRequest:
    """A request. Names of headers are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Body:
    status: int
    content: bytes
    headers: dict[str, str]


class ScriptedRegistry:
    """A registry on loopback, served by threads of this process within its context.

    ``certificate``: use TLS. ``passwords``: by user, or None if everyone may read. ``bearer``:
    require tokens of its ``/token`` instead of Basic. ``refresh_tokens``: accepted there instead of
    a password. ``ranges``: whether it supports Range. ``requests``: all requests, in order.
    """

    def __init__(
        self,
        *,
        passwords: Mapping[str, str] | None = None,
        bearer: bool = False,
        ranges: bool = True,
        certificate: Certificate | None = None,
    ) -> None:
        self.passwords, self.bearer, self.ranges = passwords, bearer, ranges
        self.refresh_tokens: set[str] = set()
        self.requests: list[RegistryRequest] = []
        self._manifests: dict[tuple[str, str], Made] = {}
        self._blobs: dict[str, bytes] = {}
        self._faults: list[tuple[str, list[Fault]]] = []
        self._tokens: set[str] = set()
        self._issued = 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        if certificate is not None:
            self._server.socket = certificate.wrap(self._server.socket)
        self.scheme = "http" if certificate is None else "https"
        self.host = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> ScriptedRegistry:
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, repository: str, tag: str, image: Made) -> str:
        """Add an image with its blobs, and return its full name."""
        for child in image.children:
            self.add(repository, child.digest, child)
        self._manifests |= {(repository, tag): image, (repository, image.digest): image}
        self._blobs |= image.blobs
        return f"{self.host}/{repository}:{tag}"

    def next(self, part: str, *faults: Fault) -> None:
        """Apply these faults, one each, to the next requests with ``part`` in their path."""
        self._faults.append((part, [*faults]))

    def revoke_tokens(self) -> None:
        """Invalidate all tokens."""
        self._tokens.clear()

    def asked(self, part: str) -> list[RegistryRequest]:
        """Return the requests with ``part`` in their path."""
        return [request for request in self.requests if part in request.path]

    def _take_fault(self, path: str) -> Fault | None:
        with self._lock:
            queue = next((faults for part, faults in self._faults if part in path and faults), None)
            return queue.pop(0) if queue else None

    def _answer(self, request: RegistryRequest) -> _Body:
        path, authorization = request.path, request.headers.get("authorization", "")
        if path.startswith("/token"):
            return self._give_token(self._knows(authorization) or self._refreshes(request.body))
        if not self._may(authorization):
            basic, bearer = (
                'Basic realm="test"',
                f'Bearer realm="{self.scheme}://{self.host}/token",service="test"',
            )
            return _json(
                401,
                {"errors": [{"code": "UNAUTHORIZED"}]},
                {"WWW-Authenticate": bearer if self.bearer else basic},
            )
        if path == "/v2/":
            return _json(200, {})
        if match := re.fullmatch(r"/v2/(.+)/manifests/(.+)", path):
            image = self._manifests.get((match[1], match[2]))
            return (
                _Body(
                    status=200, content=image.manifest, headers={"Content-Type": image.media_type}
                )
                if image
                else _NONE
            )
        if match := re.fullmatch(r"/v2/(.+)/tags/list(\?.*)?", path):
            tags = [tag for name, tag in self._manifests if name == match[1] and ":" not in tag]
            return _json(200, {"name": match[1], "tags": tags}) if tags else _NONE
        blob = self._blobs.get(path.rpartition("/")[2].partition("?")[0])
        return self._part(blob, request) if blob is not None else _NONE

    def _part(self, blob: bytes, request: RegistryRequest) -> _Body:
        begins = re.fullmatch(r"bytes=(\d+)-", request.headers.get("range", ""))
        if begins is None or not self.ranges:
            return _Body(status=200, content=blob, headers={})
        start = int(begins[1])
        if start >= len(blob):
            return _json(416, {})
        return _Body(
            status=206,
            content=blob[start:],
            headers={"Content-Range": f"bytes {start}-{len(blob) - 1}/{len(blob)}"},
        )

    def _may(self, authorization: str) -> bool:
        if self.passwords is None:
            return True
        if self.bearer:
            return authorization.removeprefix("Bearer ") in self._tokens
        return self._knows(authorization)

    def _knows(self, authorization: str) -> bool:
        user, _, password = (
            base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        )
        return (
            bool(self.passwords)
            and self.passwords is not None
            and self.passwords.get(user) == password
        )

    def _refreshes(self, form: str) -> bool:
        return parse_qs(form).get("refresh_token", [""])[0] in self.refresh_tokens

    def _give_token(self, is_known: bool) -> _Body:
        if not is_known:
            return _json(401, {"errors": [{"code": "UNAUTHORIZED"}]})
        with self._lock:
            self._issued += 1
            token = f"token-{self._issued}"
            self._tokens.add(token)
        return _json(200, {"token": token})


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""


def _json(status: int, data: Any, headers: dict[str, str] | None = None) -> _Body:
    return _Body(status=status, content=json.dumps(data).encode(), headers=headers or {})


_NONE = _json(404, {"errors": [{"code": "NOT_FOUND"}]})


def _handler(registry: ScriptedRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            path = re.sub(r"^http://[^/]+", "", self.path)  # a request to a proxy has the full URL
            given = self.rfile.read(int(headers.get("content-length", 0))).decode()
            request = RegistryRequest(path=path, headers=headers, body=given)
            registry.requests.append(request)
            fault = registry._take_fault(path)
            body = registry._answer(request)
            if isinstance(fault, Status):
                body = _Body(status=fault.code, content=fault.body, headers=dict(fault.headers))
            elif isinstance(fault, Wrong):
                body = _Body(
                    status=body.status,
                    content=bytes(255 - byte for byte in body.content),
                    headers=body.headers,
                )
            elif isinstance(fault, Longer):
                body = _Body(
                    status=body.status, content=body.content + b"0123456789", headers=body.headers
                )
            self._send(body, fault)

        do_POST = do_GET

        def _send(self, body: _Body, fault: Fault | None) -> None:
            self.send_response(body.status)
            for name, value in body.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body.content)))
            self.end_headers()
            if isinstance(fault, (Cut, Hang)):
                self.wfile.write(body.content[: fault.after])
                self.wfile.flush()
                if isinstance(fault, Hang):
                    fault.resumed.wait()
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
            else:
                self.wfile.write(body.content)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    return Handler
