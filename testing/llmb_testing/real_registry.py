# SPDX-License-Identifier: Apache-2.0
"""A real registry on loopback: Debian's docker-registry, public or with passwords or tokens.

with RealRegistry(folder, access="basic") as registry:
    registry.push("team/tool", "1.0", made)
    registry.reference("team/tool", "1.0")
"""

from __future__ import annotations

import base64
import contextlib
import fnmatch
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qs, urlsplit

from llmb.core import files, shell
from llmb.errors import LlmbError
from llmb_testing.certificates import Certificate, make_certificate
from llmb_testing.sample_images import Made
from sqshpull.credentials import variables
from sqshpull.settings import RegistrySettings

if TYPE_CHECKING:
    import httpx

Access = Literal["open", "basic", "token"]
USER, PASSWORD = "reader", "correct-horse"
_PROGRAMS = {
    "docker-registry": "docker-registry",
    "htpasswd": "apache2-utils",
    "openssl": "openssl",
}
_PUSH = "repository:{}:pull,push"
_START_SECONDS = 240.0
SERVICE, ISSUER = "llmb-registry", "llmb-tokens"


def missing_packages() -> list[str]:
    """Return the Debian packages that these registries need and this machine lacks."""
    return [package for program, package in _PROGRAMS.items() if shutil.which(program) is None]


class RealRegistry:
    """A registry with all its files in ``folder``, which runs within its context.

    ``access``: ``basic`` requires USER and PASSWORD. ``token`` uses TLS with ``certificate`` and a
    token server that requires USER and PASSWORD, except for ``public/*``.
    """

    def __init__(self, folder: Path, access: Access = "open") -> None:
        self.folder, self.access = folder, access
        self.host = ""
        self.certificate: Certificate | None = None
        self.tokens: TokenServer | None = None
        self.process: shell.Popen[bytes] | None = None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> RealRegistry:
        self.folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            if self.access == "token":
                self.certificate = make_certificate(self.folder)
                self.tokens = stack.enter_context(TokenServer(self.certificate, {USER: PASSWORD}))
            files.write_text(self.folder / "config.yml", self._settings())
            before = self.log.stat().st_size if self.log.exists() else 0
            self.process = stack.enter_context(self._started())
            self.host = self._listening(self.process, before)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        """Its URL."""
        return f"{'https' if self.access == 'token' else 'http'}://{self.host}"

    @property
    def settings(self) -> RegistrySettings:
        """Settings of a site that trusts it."""
        return RegistrySettings(
            ca_bundle=self.certificate.path if self.certificate is not None else None
        )

    def login(self, user: str = USER, password: str = PASSWORD) -> dict[str, str]:
        """Environment variables with credentials for it."""
        names = variables(self.host)
        return {names[0]: user, names[1]: password}

    def reference(self, repository: str, tag: str) -> str:
        """Return the full name of one of its images."""
        return f"{self.host}/{repository}:{tag}"

    def push(self, repository: str, tag: str, image: Made) -> str:
        """Push an image with its blobs, and return its digest."""
        with self._client(repository) as client:
            _push(client, repository, tag, image)
        return image.digest

    def _client(self, repository: str) -> httpx.Client:
        import ssl

        import httpx

        headers = {}
        if self.tokens is not None:
            headers["Authorization"] = f"Bearer {self.tokens.token([_PUSH.format(repository)])}"
        verify = (
            ssl.create_default_context(cafile=str(self.certificate.path))
            if self.certificate
            else False
        )
        auth = (USER, PASSWORD) if self.access == "basic" else None
        return httpx.Client(
            base_url=self.url,
            verify=verify,
            auth=auth,
            headers=headers,
            trust_env=False,
            timeout=60,
        )

    def _settings(self) -> str:
        auth, tls = "", ""
        if self.access == "basic":
            _htpasswd(self.folder / "htpasswd")
            auth = f"auth: {{htpasswd: {{realm: test, path: {self.folder}/htpasswd}}}}\n"
        if self.certificate is not None and self.tokens is not None:
            tls = f", tls: {{certificate: {self.certificate.path}, key: {self.certificate.key}}}"
            token = f"realm: '{self.tokens.realm}', service: {SERVICE}, issuer: {ISSUER}"
            auth = f"auth: {{token: {{{token}, rootcertbundle: {self.certificate.path}}}}}\n"
        return (
            "version: 0.1\nlog: {level: info, formatter: text}\n"
            f"storage: {{filesystem: {{rootdirectory: {self.folder}/storage}}}}\n"
            f"http: {{addr: '127.0.0.1:0', secret: test{tls}}}\n{auth}"
        )

    @contextlib.contextmanager
    def _started(self) -> Iterator[shell.Popen[bytes]]:
        argv = ["docker-registry", "serve", str(self.folder / "config.yml")]
        environ = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}
        process = shell.spawn(argv, env=environ, cwd=self.folder, log=self.log)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()

    @property
    def log(self) -> Path:
        """Its log, with a line for each request."""
        return self.folder / "registry.log"

    def _listening(self, process: shell.Popen[bytes], before: int) -> str:
        """Return the address it listens on, from the part of its log after the first ``before``
        bytes.

        Raises LlmbError with the log if it does not start.
        """
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            if match := re.search(
                rb"listening on (127\.0\.0\.1:\d+)", self.log.read_bytes()[before:]
            ):
                return match[1].decode()
            time.sleep(0.02)
        raise LlmbError(
            f"docker-registry does not start:\n{self.log.read_text()}", code="daemon-start"
        )


def _htpasswd(path: Path) -> None:
    process = shell.run(["htpasswd", "-Bbn", USER, PASSWORD])
    if process.code:
        raise LlmbError(f"htpasswd failed: {process.err.strip()}")
    files.write_text(path, process.out)


def _push(client: httpx.Client, repository: str, tag: str, image: Made) -> None:
    """Push ``image`` and its children to ``repository:tag``. Raises httpx.HTTPStatusError."""
    import httpx

    for child in image.children:
        _push(client, repository, child.digest, child)
    for digest, blob in image.blobs.items():
        start = client.post(f"/v2/{repository}/blobs/uploads/").raise_for_status()
        address = httpx.URL(start.headers["Location"]).copy_merge_params({"digest": digest})
        client.put(address, content=blob).raise_for_status()
    headers = {"Content-Type": image.media_type}
    client.put(
        f"/v2/{repository}/manifests/{tag}", content=image.manifest, headers=headers
    ).raise_for_status()


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInRequest:
    """A request for a token: its user (None if anonymous) and scopes."""

    user: str | None
    scopes: tuple[str, ...]


class TokenServer:
    """A token server as Docker registries use them. It serves signed tokens over TLS at ``realm``
    within its context.

    ``passwords``: by user. ``public``: a pattern of repositories that everyone may read. ``asked``:
    all requests.
    """

    def __init__(
        self, certificate: Certificate, passwords: Mapping[str, str], public: str = "public/*"
    ) -> None:
        self.asked: list[SignInRequest] = []
        self._certificate, self._passwords, self._public = certificate, passwords, public
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.socket = certificate.wrap(self._server.socket)
        self.realm = f"https://127.0.0.1:{self._server.server_address[1]}/token"

    def __enter__(self) -> TokenServer:
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, authorization: str | None, scopes: list[str]) -> str | None:
        """Return the token for a request, or None if the password is wrong."""
        user = self._user(authorization) if authorization else None
        self.asked.append(SignInRequest(user=user, scopes=tuple(scopes)))
        if authorization and user is None:
            return None
        return self.token([scope for scope in scopes if user is not None or self._is_public(scope)])

    def token(self, scopes: list[str]) -> str:
        """Return a token that grants all of ``scopes``, ``repository:NAME:pull,push``."""
        access = []
        for scope in scopes:
            kind, name, actions = scope.split(":")
            access.append({"type": kind, "name": name, "actions": actions.split(",")})
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "sub": "",
            "aud": SERVICE,
            "exp": now + 300,
            "nbf": now - 60,
            "iat": now,
            "jti": "1",
        }
        header = {"typ": "JWT", "alg": "RS256", "x5c": [self._certificate.der]}
        text = f"{_encode(json.dumps(header))}.{_encode(json.dumps({**claims, 'access': access}))}"
        return f"{text}.{_encode(self._certificate.sign(text.encode()))}"

    def _user(self, authorization: str) -> str | None:
        user, _, password = (
            base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        )
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
            """Log nothing."""

    return Handler
