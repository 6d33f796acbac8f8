# SPDX-License-Identifier: Apache-2.0
"""A real registry on loopback, Debian's docker-registry, open to all or behind passwords or tokens.

with RealRegistry(folder, access="basic") as registry:
    registry.push("team/tool", "1.0", made)
    registry.reference("team/tool", "1.0")
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from llmb.errors import LlmbError
from llmb.system import files, shell
from llmb_installer.registry.credentials import variables
from llmb_installer.registry.settings import RegistrySettings
from llmb_testing.certificates import Certificate, make_certificate
from llmb_testing.push import push
from llmb_testing.sample_images import Made
from llmb_testing.token_server import ISSUER, SERVICE, TokenServer

if TYPE_CHECKING:
    import httpx

Access = Literal["open", "basic", "token"]
USER, PASSWORD = "reader", "correct-horse"
_PROGRAMS = {"docker-registry": "docker-registry", "htpasswd": "apache2-utils", "openssl": "openssl"}
_PUSH = "repository:{}:pull,push"
_START_SECONDS = 240.0


def missing_packages() -> list[str]:
    """The Debian packages to install before these registries can start; none when all are there."""
    return [package for program, package in _PROGRAMS.items() if shutil.which(program) is None]


class RealRegistry:
    """A registry whose files are all in ``folder``; as a context manager, started and then ended.

    ``access``: ``basic`` wants USER and PASSWORD; ``token`` speaks TLS and sends to a token server for USER and
    PASSWORD, which lets anybody read ``public/*``. ``certificate`` is the server's own, for ``token``.
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
        """Its address."""
        return f"{'https' if self.access == 'token' else 'http'}://{self.host}"

    @property
    def settings(self) -> RegistrySettings:
        """The settings of a site that trusts it."""
        return RegistrySettings(ca_bundle=self.certificate.path if self.certificate is not None else None)

    def login(self, user: str = USER, password: str = PASSWORD) -> dict[str, str]:
        """The variables that hold credentials for it."""
        names = variables(self.host)
        return {names[0]: user, names[1]: password}

    def reference(self, repository: str, tag: str) -> str:
        """An image of it by its full name."""
        return f"{self.host}/{repository}:{tag}"

    def push(self, repository: str, tag: str, made: Made) -> str:
        """Put an image there, with all that belongs to it; its digest."""
        with self._client(repository) as client:
            push(client, repository, tag, made)
        return made.digest

    def _client(self, repository: str) -> httpx.Client:
        import ssl

        import httpx

        headers = {}
        if self.tokens is not None:
            headers["Authorization"] = f"Bearer {self.tokens.token([_PUSH.format(repository)])}"
        verify = ssl.create_default_context(cafile=str(self.certificate.path)) if self.certificate else False
        auth = (USER, PASSWORD) if self.access == "basic" else None
        return httpx.Client(base_url=self.url, verify=verify, auth=auth, headers=headers, trust_env=False, timeout=60)

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
        """What it tells, a line for each request."""
        return self.folder / "registry.log"

    def _listening(self, process: shell.Popen[bytes], before: int) -> str:
        """The address that it took, as its log tells behind the ``before`` bytes of earlier ones.

        Raises LlmbError with the log when it ends instead.
        """
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            if found := re.search(rb"listening on (127\.0\.0\.1:\d+)", self.log.read_bytes()[before:]):
                return found[1].decode()
            time.sleep(0.02)
        raise LlmbError(f"docker-registry does not start:\n{self.log.read_text()}")


def _htpasswd(path: Path) -> None:
    done = shell.run(["htpasswd", "-Bbn", USER, PASSWORD])
    if done.code:
        raise LlmbError(f"htpasswd failed: {done.err.strip()}")
    files.write_text(path, done.out)
