# SPDX-License-Identifier: Apache-2.0
"""Files of a model hub's repository: the step that installs them, and the client for them.

The client uses ``/{repository}/resolve/{revision}/{file}``: answers carry the commit
(X-Repo-Commit), and as ETag the sha256 of large files and git's sha1 of small ones. HF_ENDPOINT
names another hub, as for the hub's own client.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from llmb.contract import needs
from llmb.core import backoff, files, http, secrets
from llmb.core.scan import plain
from llmb.core.values import dataclass
from llmb.errors import Fault, LlmbError
from llmb_installer.step import (
    BuildContext,
    Facts,
    InstallStep,
    StepCost,
    remove_folder,
    sha256_of,
)

if TYPE_CHECKING:
    import httpx

ENDPOINT = "https://huggingface.co"
_CHUNK = 1 << 20
_SIZE = re.compile(r"\d{1,15}", re.ASCII)  # bytes of a file
_SECONDS = 60.0  # that the hub may be silent
_AGAIN = "give the same command again"
_HINTS = dict.fromkeys(("dns", "refused", "other"), f"check HF_ENDPOINT, {http.NETWORK}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetStep(InstallStep):
    """Downloads the files of ``need`` into ``install``, so that ranks need not ask the hub."""

    kind: ClassVar[str] = "asset"
    need: needs.HubAsset
    install: Path

    @property
    def name(self) -> str:
        return f"{self.need.repository}@{self.need.revision}"

    @property
    def title(self) -> str:
        return f"{', '.join(self.need.files)} of {self.need.repository} from the model hub"

    @property
    def path(self) -> Path:
        return self.need.folder(self.install)

    def check(self, context: BuildContext) -> StepCost:
        """Ask the hub for the files and their size. Raises LlmbError if they cannot be read."""
        with Hub(self.need, context) as hub:
            total = sum(file.size for file in hub.look_all().values())
        return StepCost(fetch=total, disk=total)

    def build(self, context: BuildContext) -> Facts:
        """Download all files at the same commit, continuing an interrupted attempt."""
        part = self.path.with_name(f".{self.path.name}.part")
        part.mkdir(parents=True, exist_ok=True)
        with Hub(self.need, context) as hub:
            hub_files = hub.look_all()
            context.progress.total(sum(file.size for file in hub_files.values()))
            for name, file in hub_files.items():
                hub.fetch(file, part / name)
        shutil.rmtree(self.path, ignore_errors=True)
        part.rename(self.path)
        return {
            "folder": str(self.path),
            "commit": next((file.commit for file in hub_files.values()), ""),
            "files": {name: sha256_of(self.path / name) for name in hub_files},
        }


def _files(facts: Facts) -> dict[Path, Any]:
    folder = Path(str(facts.get("folder")))
    return {folder / name: digest for name, digest in facts.get("files", {}).items()}


def is_there(name: str, facts: Facts, install: Path) -> bool:
    return all(path.is_file() for path in _files(facts))


def verify(name: str, facts: Facts, install: Path, *, deep: bool) -> list[Fault]:
    """Return the files that are missing or changed. All are read: they are small."""
    digests = _files(facts)
    missing = [path for path in digests if not path.is_file()]
    changed = [path for path in digests if path not in missing and sha256_of(path) != digests[path]]
    return [
        *(
            Fault(message=f"{path} is missing", code="file-missing", value=str(path))
            for path in missing
        ),
        *(
            Fault(message=f"{path} was changed", code="file-changed", value=str(path))
            for path in changed
        ),
    ]


remove = remove_folder


def describe(name: str, facts: Facts) -> str:
    return f"{len(facts.get('files', {}))} files at {str(facts.get('commit'))[:12]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFile:
    """A file of the hub: its URL at the commit, and its size in bytes.

    ``etag`` identifies its content.
    """

    url: str
    size: int
    commit: str
    etag: str


class Hub:
    """The repository of one need at the hub, a context manager for one thread."""

    def __init__(self, need: needs.HubAsset, context: BuildContext) -> None:
        self.need, self.context = need, context
        self.endpoint = (context.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
        secret_names = (need.secret,) if need.secret is not None else ()
        self.token = secrets.find(secret_names, context.environ).get(need.secret or "")
        self._has_answered = False

    def __enter__(self) -> Hub:
        headers = {"User-Agent": "llmb-install", "Accept-Encoding": "identity"}
        headers |= {"Authorization": f"Bearer {self.token}"} if self.token else {}
        self.client = http.make_client(
            headers=headers, environ=self.context.environ, read_seconds=_SECONDS
        )
        self.client.event_hooks = {"request": [self._require_tls]}
        self.client.follow_redirects = True  # httpx does not send Authorization to another host
        return self

    def __exit__(self, *error: object) -> None:
        self.client.close()

    def _require_tls(self, request: httpx.Request) -> None:
        """Refuse an address without TLS, also one that the hub redirects to, off this machine."""
        if request.url.scheme == "http" and not http.is_loopback(request.url.netloc.decode()):
            message = f"{request.url.host} has no TLS: a token or a file could be changed or read"
            hint = f"set HF_ENDPOINT to an address with https://, such as {ENDPOINT}"
            raise LlmbError(message, hint=hint, code="address-invalid", key="HF_ENDPOINT")

    def look(self, name: str) -> HubFile:
        """Return size, commit and digest of a file.

        Raises LlmbError: ``file-missing`` if the hub does not have it.
        """
        answer = backoff.persist(
            lambda: self._open("HEAD", self._url(self.need.revision, name)), self._pause
        )
        answer.close()
        answers = [*answer.history, answer]  # the hub's own headers come before its redirect
        commit = _header(answers, "X-Repo-Commit") or self.need.revision
        etag = (
            (_header(answers, "X-Linked-Etag") or _header(answers, "ETag") or "")
            .removeprefix("W/")
            .strip('"')
        )
        size = _header(answers, "X-Linked-Size") or answer.headers.get("Content-Length") or "0"
        if not _SIZE.fullmatch(size):
            message = f"{self.endpoint}: the hub says that {name} has {plain(size, 40)!r} bytes"
            raise LlmbError(message, hint=_AGAIN, code="host-unusable", key=self.endpoint)
        return HubFile(url=self._url(commit, name), size=int(size), commit=commit, etag=etag)

    def look_all(self) -> dict[str, HubFile]:
        """Return all files of the need by name. Optional ones may be missing. Raises LlmbError."""
        hub_files = {name: self.look(name) for name in self.need.files}
        for name in self.need.optional:
            try:
                hub_files[name] = self.look(name)
            except LlmbError as error:
                if error.code != "file-missing":
                    raise
        return hub_files

    def fetch(self, file: HubFile, path: Path) -> None:
        """Download the file to ``path``. Raises LlmbError, also if it does not match its digest."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.context.progress.advance(min(_size(path), file.size))
        backoff.persist(
            lambda: self._continue(file, path), self._pause, received=lambda: _size(path)
        )
        if not _matches(file, path):
            path.unlink(missing_ok=True)
            message = f"{file.url}: the downloaded content does not match its digest"
            raise LlmbError(message, hint=_AGAIN, code="file-damaged", key=file.url)

    def _continue(self, file: HubFile, path: Path) -> None:
        """Download the rest of the file. Raises AskAgain for a connection that was cut."""
        received = _size(path)
        if file.size and received == file.size:
            return
        answer = self._open(
            "GET", file.url, {"Range": f"bytes={received}-"} if 0 < received < file.size else {}
        )
        try:
            mode = "ab" if answer.status_code == 206 else "wb"
            with path.open(mode) as stream, http.raises(answer.url, is_known=True, hints=_HINTS):
                for chunk in answer.iter_bytes(_CHUNK):
                    if file.size and stream.tell() + len(chunk) > file.size:
                        message = f"{file.url}: the answer is longer than {file.size} bytes"
                        raise LlmbError(message, hint=_AGAIN, code="file-damaged", key=file.url)
                    stream.write(chunk)
                    self.context.progress.advance(len(chunk))
        except OSError as error:
            write_error = files.cannot_write(path, error)
            if isinstance(write_error, files.DiskFullError):  # the other steps need the space
                path.unlink(missing_ok=True)
            raise write_error from error
        finally:
            answer.close()
        if _size(path) < file.size:
            message = f"{file.url}: the answer ended after {_size(path)} of {file.size} bytes"
            raise backoff.AskAgain(
                LlmbError(message, hint=_AGAIN, code="file-damaged", key=file.url)
            )

    def _url(self, revision: str, name: str) -> str:
        return f"{self.endpoint}/{self.need.repository}/resolve/{revision}/{name}"

    def _open(self, method: str, url: str, headers: dict[str, str] | None = None) -> httpx.Response:
        """Return the answer with its body still to be read; the caller closes it.

        Raises LlmbError, AskAgain.
        """
        import httpx

        try:
            request = self.client.build_request(method, url, headers=headers)
            answer = http.send(self.client, request, is_known=self._has_answered, hints=_HINTS)
        except httpx.InvalidURL as error:
            message = f"{self.endpoint} is not a valid address: {error}"
            raise LlmbError(
                message, hint="check HF_ENDPOINT", code="address-invalid", key="HF_ENDPOINT"
            ) from error
        self._has_answered = True
        if answer.status_code >= 400:
            answer.close()
            raise self._refusal(answer)
        return answer

    def _pause(self, seconds: float, reason: str) -> None:
        end = time.monotonic() + seconds
        while (remaining := end - time.monotonic()) > 0:
            self.context.progress.advance(0)  # raises StoppedError once the user has interrupted
            self.context.stop.wait(min(remaining, 0.2))

    def _refusal(self, answer: httpx.Response) -> LlmbError:
        secret, status, url = self.need.secret, answer.status_code, answer.request.url
        repository = f"{self.endpoint}/{self.need.repository}"
        if status in (401, 403):
            if secret is None:
                return LlmbError(
                    f"{repository} is not public",
                    hint="report it to the plugin's author: the plugin names no token",
                    code="credentials-missing",
                    key=repository,
                )
            if not self.token:
                return LlmbError(
                    f"{repository} requires {secret}",
                    hint=f"export {secret}=..., or add it to {secrets.SECRETS_FILE}",
                    code="credentials-missing",
                    key=secret,
                )
            hint = f"accept the repository's terms at {repository} with the account of that token"
            message = f"{repository} rejects the token in {secret} (HTTP {status})"
            return LlmbError(message, hint=hint, code="credentials-refused", key=secret)
        if status == 404:
            hint = "report it to the plugin's author"
            return LlmbError(
                f"{url}: the hub has no such file", hint=hint, code="file-missing", key=str(url)
            )
        message = f"{url}: the hub answers HTTP {status}"
        return LlmbError(
            message, hint=f"{_AGAIN} later", code="host-unusable", key=str(url), value=status
        )


def _header(answers: list[httpx.Response], name: str) -> str | None:
    return next((answer.headers[name] for answer in answers if name in answer.headers), None)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _matches(file: HubFile, path: Path) -> bool:
    """Return True if the file has the hub's size and digest. Other ETags are not compared."""
    size = _size(path)
    if file.size and size != file.size:
        return False
    kinds = {
        64: hashlib.sha256(),
        40: hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False),
    }
    digest = kinds.get(len(file.etag))
    if digest is None:
        return True
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest() == file.etag
