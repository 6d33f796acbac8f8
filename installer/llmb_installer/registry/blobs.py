# SPDX-License-Identifier: Apache-2.0
"""Downloads a blob to a file that appears only when it is complete: continued by Range, checked by its sha256.

Nothing is flushed to the disk: what a crash of the machine leaves is checked before it is used.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmb.errors import LlmbError, os_errors
from llmb.system import http, retry, shell
from llmb_installer.registry.manifests import Descriptor
from llmb_installer.registry.reference import shown_host

if TYPE_CHECKING:
    import httpx

_CHUNK = 1 << 20
_MOST_DAMAGED = 2  # complete downloads with a wrong digest after which we give up


@dataclass(slots=True, kw_only=True)
class Download:
    """The download of one blob to ``path`` by way of ``part``, the file that grows.

    ``open`` asks for the blob with further headers (Range).
    """

    descriptor: Descriptor
    path: Path
    part: Path
    on_bytes: Callable[[int], None]
    stop: Callable[[], bool]
    open: Callable[[Mapping[str, str]], httpx.Response]
    received: int = 0
    damaged: int = 0
    hash: Any = field(default_factory=hashlib.sha256)

    def run(self, pause: retry.Pause) -> None:
        """Complete the download. Raises LlmbError, also for a full disk, and StoppedError."""
        hint = "free space or fix the permissions there; what was fetched is kept"
        with os_errors(f"{self.path} cannot be written", hint=hint, code="file-unwritable", key=str(self.path)):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists():
                if self.path.stat().st_size == self.descriptor.size and self._take(self.path):
                    return
                self.path.unlink()
                self._restart()
            elif self.part.exists():
                self._take(self.part)
            else:
                self._restart()
            retry.persist(self._continue, pause, received=lambda: self.received)
            self.part.replace(self.path)

    def check_stop(self) -> None:
        """Raise StoppedError once the user has interrupted."""
        if self.stop():
            raise shell.StoppedError(f"the download of {self.path} was interrupted")

    def _take(self, path: Path) -> bool:
        """Count what an earlier run left in ``path`` as received; whether that is the whole blob."""
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                self.hash.update(chunk)
                self._count(len(chunk))
        return self._matches()

    def _continue(self) -> None:
        if self.received < self.descriptor.size:
            self._receive()
        if not self._matches():
            self._restart()
            self.damaged += 1
            raise self._damage("does not match its digest")

    def _receive(self) -> None:
        """Add the rest of the blob to the part, whether or not the server supports Range."""
        response = self.open({"Range": f"bytes={self.received}-"} if self.received else {})
        name = shown_host(response.url.netloc.decode())
        try:
            skip = self._to_skip(response)
            with self.part.open("r+b") as stream, http.raises(response.url, known=True, name=name):
                stream.seek(self.received)
                for chunk in response.iter_raw():
                    self.check_stop()
                    new = chunk[skip:]
                    skip -= len(chunk) - len(new)
                    if self.received + len(new) > self.descriptor.size:
                        raise self._damage("is longer than its manifest says")
                    stream.write(new)
                    self.hash.update(new)
                    self._count(len(new))
        finally:
            response.close()
        if self.received < self.descriptor.size:
            raise self._damage(f"ended after {self.received} of {self.descriptor.size} bytes")

    def _to_skip(self, response: httpx.Response) -> int:
        """The bytes at the start of the answer that were received before. Raises LlmbError, AskAgain."""
        status, digest = response.status_code, self.descriptor.digest
        if status == 200:
            return self.received
        begins = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
        if status == 206 and begins and int(begins[1]) <= self.received:
            return self.received - int(begins[1])
        host = shown_host(response.url.host)
        if status == 404:
            message, hint = f"{host} does not have the blob {digest} of the image", "report it to its publisher"
            raise LlmbError(message, hint=hint, code="image-missing", key=digest)
        if status in (206, 416):
            self._restart()
        message = f"{host} answers HTTP {status} for {digest}"
        raise retry.AskAgain(LlmbError(message, hint="try again later", code="host-busy", key=host, value=status))

    def _count(self, size: int) -> None:
        self.received += size
        self.on_bytes(size)

    def _matches(self) -> bool:
        return self.descriptor.digest == f"sha256:{self.hash.hexdigest()}"

    def _restart(self) -> None:
        self._count(-self.received)
        self.hash = hashlib.sha256()
        self.part.write_bytes(b"")

    def _damage(self, how: str) -> Exception:
        message = f"the blob {self.descriptor.digest} {how}"
        hint = "a proxy may have changed it, or the registry's copy is damaged"
        fault = LlmbError(message, hint=hint, code="image-damaged", key=self.descriptor.digest)
        return fault if self.damaged >= _MOST_DAMAGED else retry.AskAgain(fault)
