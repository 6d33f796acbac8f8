# SPDX-License-Identifier: Apache-2.0
"""Downloads a blob to a file that is whole or not there: gone on with by Range, checked by its sha256.

Nothing is forced to the disk: what a crash of the machine leaves is checked again before it is used.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmb.errors import LlmbError
from llmb.system.shell import StoppedError
from llmb_installer.registry import transport
from llmb_installer.registry.endpoint import called
from llmb_installer.registry.faults import ImageFaultError
from llmb_installer.registry.manifests import Descriptor
from llmb_installer.registry.retry import AskAgain, Pause, persist

if TYPE_CHECKING:
    import httpx

_CHUNK = 1 << 20
_DAMAGED = 2  # whole downloads with a wrong digest before we give up

Count = Callable[[int], None]


@dataclass(slots=True, kw_only=True)
class Download:
    """The way of one blob to ``path``; ``open`` asks for it with further headers (Range)."""

    descriptor: Descriptor
    path: Path
    on_bytes: Count
    stop: Callable[[], bool]
    open: Callable[[Mapping[str, str]], httpx.Response]
    have: int = 0
    damaged: int = 0
    hash: Any = field(default_factory=hashlib.sha256)

    @property
    def part(self) -> Path:
        """The file that grows."""
        return self.path.with_name(f"{self.path.name}.part")

    def run(self, pause: Pause) -> None:
        """Have the blob there. Raises ImageFaultError, StoppedError, LlmbError when the disk is full."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self._is_whole():
                self._take_up()
                persist(self._go_on, pause, lambda: self.have)
                self.part.replace(self.path)
        except OSError as error:
            message = f"{self.path} cannot be written: {error.strerror}"
            raise LlmbError(message, hint="free space or permission there; what is fetched stays") from error

    def heed_stop(self) -> None:
        """Raise StoppedError once the user wants no more of it."""
        if self.stop():
            raise StoppedError(f"the download of {self.path} was ended")

    def _is_whole(self) -> bool:
        """Whether an earlier run has left it there; one that is not what it should be is removed."""
        if not self.path.exists():
            return False
        if self.path.stat().st_size == self.descriptor.size:
            self._count_in(self.path)
            if self._matches():
                return True
        self.path.unlink()
        self._begin_anew()
        return False

    def _take_up(self) -> None:
        """Begin with what an earlier run has left in the part."""
        if self.part.exists():
            self._count_in(self.part)
        else:
            self._begin_anew()

    def _go_on(self) -> None:
        if self.have < self.descriptor.size:
            self._receive()
        if not self._matches():
            self._begin_anew()
            self.damaged += 1
            raise self._damage("is not what its digest says")

    def _receive(self) -> None:
        response = self.open({"Range": f"bytes={self.have}-"} if self.have else {})
        try:
            with self.part.open("r+b", buffering=0) as stream:
                stream.seek(self.have)
                for chunk in self._body(response):
                    _write(stream.write, chunk)
                    self.hash.update(chunk)
                    self._count(len(chunk))
        finally:
            response.close()
        if self.have < self.descriptor.size:
            raise self._damage(f"ended after {self.have} of {self.descriptor.size} bytes")

    def _body(self, response: httpx.Response) -> Iterator[bytes]:
        """What is missing of the blob, whether or not the server heeds Range."""
        import httpx

        skip = self._to_skip(response)
        try:
            for chunk in response.iter_raw():
                self.heed_stop()
                new = chunk[skip:]
                skip -= len(chunk) - len(new)
                if self.have + len(new) > self.descriptor.size:
                    raise self._damage("is longer than its manifest says")
                yield new
        except httpx.TransportError as error:
            raise transport.failure(error, response.url, known=True) from error

    def _to_skip(self, response: httpx.Response) -> int:
        """The bytes at the start of the answer that are there already. Raises for an answer of another kind."""
        if response.status_code == 200:
            return self.have
        begins = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
        if response.status_code == 206 and begins and int(begins[1]) <= self.have:
            return self.have - int(begins[1])
        if response.status_code == 404:
            message = f"{called(response.url.host)} does not have the blob {self.descriptor.digest} of the image"
            raise ImageFaultError(
                "not_there", message, hint="the image in the registry is broken; tell who publishes it"
            )
        if response.status_code in (206, 416):
            self._begin_anew()
        message = f"{called(response.url.host)} answers HTTP {response.status_code} for {self.descriptor.digest}"
        raise AskAgain(ImageFaultError("busy", message, hint="try again later"))

    def _count_in(self, path: Path) -> None:
        """Take what is in the file ``path`` as had."""
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                self.hash.update(chunk)
                self._count(len(chunk))

    def _count(self, size: int) -> None:
        self.have += size
        self.on_bytes(size)

    def _matches(self) -> bool:
        return self.descriptor.digest == f"sha256:{self.hash.hexdigest()}"

    def _begin_anew(self) -> None:
        self._count(-self.have)
        self.hash = hashlib.sha256()
        self.part.write_bytes(b"")

    def _damage(self, how: str) -> Exception:
        hint = "a proxy on the way may change it, or the registry's copy is broken"
        fault = ImageFaultError("damaged", f"the blob {self.descriptor.digest} {how}", hint=hint)
        return fault if self.damaged >= _DAMAGED else AskAgain(fault)


def _write(write: Callable[[memoryview], int | None], chunk: bytes) -> None:
    left = memoryview(chunk)
    while left:
        left = left[write(left) or 0 :]
