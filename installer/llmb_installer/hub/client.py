# SPDX-License-Identifier: Apache-2.0
"""Fetches files from a model hub by its HTTP interface: whole, checked, at one commit, going on where it was cut.

Source: the hub's ``/{repository}/resolve/{revision}/{file}``, whose answers carry the commit (X-Repo-Commit), and as
ETag the sha256 of large files and git's sha1 of small ones. HF_ENDPOINT names another hub, as its own client has it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from llmb.errors import LlmbError
from llmb.system import secrets
from llmb.workload.needs import HubAsset
from llmb_installer.registry import transport
from llmb_installer.registry.retry import own_pause, retry_after
from llmb_installer.registry.settings import RegistrySettings
from llmb_installer.step import Context

if TYPE_CHECKING:
    import httpx

ENDPOINT = "https://huggingface.co"
ATTEMPTS = 6
CHUNK = 1 << 20
_SECONDS = 60.0  # that the hub may be silent
_PASSING = (408, 429, 500, 502, 503, 504)


class NoSuchFileError(LlmbError):
    """The repository has no file of that name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFile:
    """A file of the hub: its URL at the commit, its size in bytes, and the ``etag`` that tells its content."""

    url: str
    size: int
    commit: str
    etag: str


class Hub:
    """The repository of one need at the hub; a context manager, one at a time in a thread."""

    def __init__(self, need: HubAsset, context: Context) -> None:
        self.need, self.context = need, context
        self.endpoint = (context.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
        wanted = (need.secret,) if need.secret is not None else ()
        self.token = secrets.find(wanted, context.environ).get(need.secret or "")

    def __enter__(self) -> Hub:
        self.client = transport.make_client(RegistrySettings(), self.context.environ, _SECONDS)
        # An Authorization of ours is not sent on where the hub's answer leads to another host.
        self.client.headers.update({"Authorization": f"Bearer {self.token}"} if self.token else {})
        self.client.follow_redirects = True
        return self

    def __exit__(self, *error: object) -> None:
        self.client.close()

    def look(self, name: str) -> HubFile:
        """What the hub says of a file. Raises LlmbError that tells a missing file from a missing permission."""
        url = self._url(self.need.revision, name)
        with self._ask("HEAD", url, {"Accept-Encoding": "identity"}) as answer:
            told = [*answer.history, answer]  # the hub's own headers come before it leads elsewhere
            commit = _header(told, "X-Repo-Commit") or self.need.revision
            etag = (_header(told, "X-Linked-Etag") or _header(told, "ETag") or "").removeprefix("W/").strip('"')
            size = int(_header(told, "X-Linked-Size") or answer.headers.get("Content-Length") or 0)
        return HubFile(url=self._url(commit, name), size=size, commit=commit, etag=etag)

    def look_all(self) -> dict[str, HubFile]:
        """All files of the need by their names, without the optional ones that are not there. Raises LlmbError."""
        found = {name: self.look(name) for name in self.need.files}
        for name in self.need.optional:
            with suppress(NoSuchFileError):
                found[name] = self.look(name)
        return found

    def fetch(self, file: HubFile, path: Path) -> None:
        """Have the file at ``path``. Raises LlmbError when what came is not what the hub has said."""
        path.parent.mkdir(parents=True, exist_ok=True)
        have = path.stat().st_size if path.exists() else 0
        self.context.progress.advance(min(have, file.size))
        for attempt in range(1, ATTEMPTS + 1):
            if self._fetch_some(file, path, last=attempt == ATTEMPTS):
                break
            self._pause(own_pause(attempt))
        if not _is_what_was_said(file, path):
            path.unlink(missing_ok=True)
            raise LlmbError(f"{file.url}: what came is not what the hub has", hint="give the same command again")

    def _fetch_some(self, file: HubFile, path: Path, *, last: bool) -> bool:
        """Go on with the file; whether it is complete. A cut connection is worth another attempt."""
        import httpx

        have = path.stat().st_size if path.exists() else 0
        if file.size and have == file.size:
            return True
        ranged = {"Range": f"bytes={have}-"} if 0 < have < file.size else {}
        try:
            with (
                self._ask("GET", file.url, {"Accept-Encoding": "identity", **ranged}) as answer,
                path.open("ab" if answer.status_code == 206 else "wb") as stream,
            ):
                for chunk in answer.iter_bytes(CHUNK):
                    stream.write(chunk)
                    self.context.progress.advance(len(chunk))
        except httpx.TransportError as error:
            if last:
                raise self._unanswered(error, file.url) from error
            return False
        except OSError as error:
            path.unlink(missing_ok=True)  # others need what space there is
            raise LlmbError(f"{path} cannot be written: {error.strerror}", hint="free space there") from error
        return not file.size or path.stat().st_size >= file.size

    def _url(self, revision: str, name: str) -> str:
        return f"{self.endpoint}/{self.need.repository}/resolve/{revision}/{name}"

    @contextmanager
    def _ask(self, method: str, url: str, headers: dict[str, str]) -> Iterator[httpx.Response]:
        """The hub's answer, asked for again while it is busy. Raises LlmbError."""
        import httpx

        for attempt in range(1, ATTEMPTS + 1):
            try:
                request = self.client.build_request(method, url, headers=headers)
                answer = self.client.send(request, stream=True)
            except (httpx.TransportError, httpx.InvalidURL) as error:
                if attempt == ATTEMPTS or isinstance(error, httpx.InvalidURL):
                    raise self._unanswered(error, url) from error
                self._pause(own_pause(attempt))
                continue
            try:
                if answer.status_code in _PASSING and attempt < ATTEMPTS:
                    wanted = retry_after(answer.headers.get("Retry-After"))
                    self._pause(own_pause(attempt) if wanted is None else min(wanted, 60.0))
                    continue
                if answer.status_code >= 400:
                    raise self._refused(answer)
                yield answer
                return
            finally:
                answer.close()

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.context.progress.advance(0)  # raises StoppedError once the user has interrupted
            self.context.stop.wait(min(left, 0.2))

    def _unanswered(self, error: Exception, url: str) -> LlmbError:
        import httpx

        said, hint = f"{self.endpoint} is no address: {error}", "check HF_ENDPOINT"
        if isinstance(error, httpx.TransportError):
            fault = transport.in_words(error, httpx.URL(url))
            said, hint = fault.message, f"{fault.hint}; another hub: HF_ENDPOINT"
        return LlmbError(said, hint=hint)

    def _refused(self, answer: httpx.Response) -> LlmbError:
        need, code = self.need, answer.status_code
        where = f"{self.endpoint}/{need.repository}"
        if code in (401, 403):
            if need.secret is None:
                return LlmbError(f"{where} is not open to all", hint="tell the plugin's maker: it names no token")
            if not self.token:
                return LlmbError(
                    f"{where} needs the token {need.secret}", hint=f"set it, or put it in {secrets.SECRETS_FILE}"
                )
            hint = f"accept the repository's terms at {where} with the account of the token {need.secret}"
            return LlmbError(f"{where} refuses the token {need.secret} ({code})", hint=hint)
        if code == 404:
            return NoSuchFileError(f"{answer.request.url}: there is no such file", hint="tell the plugin's maker")
        return LlmbError(f"{answer.request.url}: the hub answers {code}", hint="give the same command again later")


def _header(answers: list[httpx.Response], name: str) -> str | None:
    return next((answer.headers[name] for answer in answers if name in answer.headers), None)


def _is_what_was_said(file: HubFile, path: Path) -> bool:
    """Whether size and content are what the hub has said; an ETag of another kind tells nothing."""
    size = path.stat().st_size
    if file.size and size != file.size:
        return False
    kinds = {64: hashlib.sha256(), 40: hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)}
    digest = kinds.get(len(file.etag))
    if digest is None:
        return True
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest() == file.etag
