# SPDX-License-Identifier: Apache-2.0
"""The client of one registry: manifests, configurations and blobs, each checked by its digest.

A blob goes to a file that appears only when it is complete. A later run continues a download that
was interrupted. Nothing is flushed to the disk: what a crash leaves is checked before it is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqshpull import http, manifests, reference as references
from sqshpull.errors import PullError, PullStoppedError, os_errors
from sqshpull.manifests import Blob, ImageManifest
from sqshpull.parallel import run_bounded
from sqshpull.reference import ImageReference, shown_host
from sqshpull.settings import PullUser, RegistrySettings
from sqshpull.sign_in import SignIn

if TYPE_CHECKING:
    import httpx

Sleep = Callable[[float], None]

_USER_AGENT = "sqshpull"
_MOST_REDIRECTS = 5
_ANNOUNCED_PAUSE, _PIECE = 5.0, 1.0  # seconds: announced pauses, and the pieces they are slept in
_DEEPEST = 3  # indexes within indexes
_CHUNK = 1 << 20  # bytes
_MOST_DAMAGED = 2  # complete downloads with a wrong digest after which we give up
_LOOK_UPS = 8  # images that are looked up at a time


class Registry:
    """The registry ``name`` (``nvcr.io``), a context manager that closes its connections.

    Several threads may share it. Every method raises PullError. A request that may succeed later is
    repeated after a pause, and ``say`` gets a line if it is long. ``read_seconds`` is the longest
    silence of the registry.
    """

    def __init__(
        self,
        name: str,
        *,
        user: PullUser | None = None,
        settings: RegistrySettings | None = None,
        sleep: Sleep = time.sleep,
        say: Callable[[str], None] = lambda text: None,
        read_seconds: float = http.READ_SECONDS,
    ) -> None:
        self._settings, user = settings or RegistrySettings(), user or PullUser()
        self._allows_plain = partial(references.allows_plain_http, settings=self._settings)
        self._endpoint = references.endpoint_of(name, self._settings)
        self._sleep, self._say = sleep, say
        self._client = http.make_client(
            headers={"User-Agent": _USER_AGENT, "Accept-Encoding": "identity"},
            environ=user.environ,
            ca_bundle=self._settings.ca_bundle,
            read_seconds=read_seconds,
        )
        self._sign_in = SignIn(
            self._endpoint.registry,
            user,
            lambda: f"{self._base_url()}/v2/",
            self._ask,
            self._allows_plain,
        )
        self._base: str | None = None
        self._finding_base = threading.Lock()
        self._answered_hosts: set[str] = set()

    def __enter__(self) -> Registry:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def manifest(self, reference: ImageReference, architecture: str) -> ImageManifest:
        """Return the image for ``architecture``, x86_64 or amd64."""
        name, version, index = manifests.architecture_name(architecture), reference.version, None
        accept = {"Accept": ", ".join(manifests.MEDIA_TYPES)}
        for _ in range(_DEEPEST):
            digest, title = version if ":" in version else None, f"the manifest of {reference}"
            body = self._get(reference, f"manifests/{version}", title, digest, headers=accept)
            data = manifests.parse_json(body, title)
            images = manifests.read_index(data, reference)
            if images is None:
                break
            version = manifests.choose(images, name, reference).digest
            index = index or _digest(body)
        else:
            raise manifests.unusable(
                reference, "is an index of indexes of indexes", "check the reference"
            )
        config, layers = manifests.read_manifest(data, reference)
        config_architecture = str(self.config(reference, config).get("architecture") or "")
        if config_architecture != name:
            raise manifests.no_architecture(reference, name, [config_architecture])
        return ImageManifest(
            reference=reference,
            digest=_digest(body),
            index_digest=index,
            architecture=name,
            config=config,
            layers=layers,
        )

    def config(self, reference: ImageReference, config: Blob) -> dict[str, Any]:
        """Return the image's configuration: ``config`` has Env, WorkingDir, Entrypoint, Cmd."""
        title = f"the configuration of {reference}"
        body = self._get(reference, f"blobs/{config.digest}", title, config.digest)
        return manifests.parse_json(body, title)

    def tags(self, repository: str) -> list[str] | None:
        """Return the first tags of a repository, None if it does not exist."""
        answer = http.persist(
            lambda: _read_all(self.open(repository, "tags/list?n=1000", {})), self._pause
        )
        if answer.status != 200:
            return None
        tags = manifests.parse_json(answer.body, f"the tags of {repository}").get("tags")
        return [str(tag) for tag in tags] if isinstance(tags, list) else []

    def fetch_blob(
        self,
        repository: str,
        blob: Blob,
        path: Path,
        on_bytes: Callable[[int], None],
        *,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Download a blob to ``path`` and check its sha256. A file that is right is used.

        The file grows as ``path.part``, which a later call continues. Only one process may write
        there. ``on_bytes`` gets the bytes received, a negative number when some are discarded: the
        sum is the blob's size. Raises PullStoppedError once ``stop()`` is true.
        """
        download = BlobDownload(
            blob=blob,
            path=path,
            part=path.with_name(f"{path.name}.part"),
            on_bytes=on_bytes,
            stop=stop,
            open=lambda headers: self.open(repository, f"blobs/{blob.digest}", headers),
        )

        def pause(seconds: float, reason: str) -> None:
            self._pause(seconds, reason, download.check_stop)

        download.run(pause)

    def open(self, repository: str, path: str, headers: Mapping[str, str]) -> httpx.Response:
        """Return the answer with its body still to be read; the caller closes it.

        Raises TransientError too.
        """
        repository = f"{self._endpoint.prefix}{repository}"
        url = f"{self._base_url()}/v2/{repository}/{path}"
        sent, is_new = self._sign_in.header(repository), False
        while True:
            response = self._follow(url, {**headers, **({"Authorization": sent} if sent else {})})
            is_registry = f"{response.url.scheme}://{response.url.netloc.decode()}" == self._base
            if response.status_code not in (401, 403) or not is_registry:
                return response
            http.discard(response)
            if is_new or response.status_code == 403:
                raise self._sign_in.denied(repository, response.status_code)
            challenges = response.headers.get_list("WWW-Authenticate")
            sent, is_new = self._sign_in.renew(repository, challenges, sent), True

    def _get(
        self,
        reference: ImageReference,
        path: str,
        title: str,
        digest: str | None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Return the content at ``path`` with this digest; ``title`` is its name in messages."""
        kind, _, version = path.partition("/")

        def ask() -> bytes:
            answer = _read_all(self.open(reference.repository, path, headers or {}))
            if answer.status == 404 and kind == "manifests":
                raise self._missing(reference, version)
            if answer.status != 200:
                shown = reference if kind == "manifests" else title
                hint = "check the reference, and any proxy in front of the registry"
                raise self._unusable(f"answers HTTP {answer.status} for {shown}", hint)
            if digest is not None and _digest(answer.body) != digest:
                message, hint = f"{title} does not match its digest", "a proxy may have changed it"
                raise http.TransientError(
                    PullError(message, hint=hint, code="image-damaged", key=title)
                )
            return answer.body

        return http.persist(ask, self._pause)

    def _missing(self, reference: ImageReference, version: str) -> PullError:
        asked = references.mirrored(reference, self._settings)
        mirror_of = reference.registry if asked != reference else None
        return manifests.missing(
            asked, lambda: self.tags(reference.repository), version=version, mirror_of=mirror_of
        )

    def _pause(
        self, seconds: float, reason: str, check_stop: Callable[[], None] = lambda: None
    ) -> None:
        """Sleep, in pieces that let the user interrupt."""
        if seconds >= _ANNOUNCED_PAUSE:
            self._say(f"{reason}; next attempt in {seconds:.0f} s")
        while seconds > 0:
            check_stop()
            self._sleep(min(seconds, _PIECE))
            seconds -= _PIECE

    def _unusable(self, reason: str, hint: str) -> PullError:
        host = self._endpoint.host
        message = f"{shown_host(host)} {reason}"
        return PullError(message, hint=hint, code="registry-unusable", key=host)

    def _follow(self, url: str, headers: Mapping[str, str]) -> httpx.Response:
        """GET ``url`` and its redirects. Another host does not get the Authorization header."""
        request = self._client.build_request("GET", url, headers=headers)
        for _ in range(_MOST_REDIRECTS):
            response = self._send(request)
            if response.next_request is None:
                return response
            http.discard(response)
            following = response.next_request
            if request.url.scheme == "https" != following.url.scheme:
                reason = f"redirects to {following.url.host} without TLS"
                raise self._unusable(reason, "report it to the registry's administrator")
            request = following
        raise self._unusable(
            f"redirects more than {_MOST_REDIRECTS} times", "check the registry's name"
        )

    def _send(self, request: httpx.Request) -> httpx.Response:
        host = request.url.netloc.decode()
        response = http.send(
            self._client, request, has_answered=host in self._answered_hosts, name=shown_host(host)
        )
        self._answered_hosts.add(host)
        return response

    def _ask(
        self, method: str, url: str, parameters: Mapping[str, str], headers: Mapping[str, str]
    ) -> http.HttpAnswer:
        import httpx

        address = httpx.URL(url).copy_merge_params(parameters) if method == "GET" else url
        form = parameters if method == "POST" else None
        return _read_all(
            self._send(self._client.build_request(method, address, headers=headers, data=form))
        )

    def _base_url(self) -> str:
        """Return ``https://HOST``, ``http://HOST`` if that is allowed and the host has no TLS."""
        import httpx

        with self._finding_base:
            if self._base is None:
                host, scheme = self._endpoint.host, "https"
                if self._allows_plain(host):
                    with contextlib.suppress(httpx.HTTPError):
                        status = self._client.get(f"http://{host}/v2/").status_code
                        # A host with TLS answers 400, redirects, or closes the connection.
                        scheme = "https" if 300 <= status <= 400 else "http"
                self._base = f"{scheme}://{host}"
            return self._base


@dataclass(slots=True, kw_only=True)
class BlobDownload:
    """The download of one blob to ``path`` by way of ``part``, the file that grows.

    ``open`` asks for the blob with further headers (Range).
    """

    blob: Blob
    path: Path
    part: Path
    on_bytes: Callable[[int], None]
    stop: Callable[[], bool]
    open: Callable[[Mapping[str, str]], httpx.Response]
    received: int = 0
    damaged: int = 0
    hash: Any = field(default_factory=hashlib.sha256)

    def run(self, pause: http.Pause) -> None:
        """Complete the download. Raises PullError, also for a full disk, and PullStoppedError."""
        hint = "free space or fix the permissions there; what was fetched is kept"
        with os_errors(
            f"{self.path} cannot be written", hint=hint, code="file-unwritable", key=str(self.path)
        ):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists():
                if self.path.stat().st_size == self.blob.size and self._take(self.path):
                    return
                self.path.unlink()
                self._restart()
            elif self.part.exists():
                self._take(self.part)
            else:
                self._restart()
            http.persist(self._continue, pause, received=lambda: self.received)
            self.part.replace(self.path)

    def check_stop(self) -> None:
        """Raise PullStoppedError once the user has interrupted."""
        if self.stop():
            raise PullStoppedError(f"the download of {self.path} was interrupted")

    def _take(self, path: Path) -> bool:
        """Count the content of ``path`` as received. Return True if that is the whole blob."""
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                self.hash.update(chunk)
                self._count(len(chunk))
        return self._matches()

    def _continue(self) -> None:
        if self.received < self.blob.size:
            self._receive()
        if not self._matches():
            self._restart()
            self.damaged += 1
            raise self._damage("does not match its digest")

    def _receive(self) -> None:
        """Add the rest of the blob to the part, also from a server without Range."""
        response = self.open({"Range": f"bytes={self.received}-"} if self.received else {})
        name = shown_host(response.url.netloc.decode())
        try:
            skip = self._bytes_to_skip(response)
            with (
                self.part.open("r+b") as stream,
                http.connection_errors(response.url, has_answered=True, name=name),
            ):
                stream.seek(self.received)
                for chunk in response.iter_raw():
                    self.check_stop()
                    new = chunk[skip:]
                    skip -= len(chunk) - len(new)
                    if self.received + len(new) > self.blob.size:
                        raise self._damage("is longer than its manifest says")
                    stream.write(new)
                    self.hash.update(new)
                    self._count(len(new))
        finally:
            response.close()
        if self.received < self.blob.size:
            raise self._damage(f"ended after {self.received} of {self.blob.size} bytes")

    def _bytes_to_skip(self, response: httpx.Response) -> int:
        """Return the bytes at the start of the answer that were received before.

        Raises PullError, TransientError.
        """
        status, digest = response.status_code, self.blob.digest
        if status == 200:
            return self.received
        content_range = re.match(r"bytes (\d{1,18})-", response.headers.get("Content-Range", ""))
        if status == 206 and content_range and int(content_range[1]) <= self.received:
            return self.received - int(content_range[1])
        host = shown_host(response.url.host)
        if status == 404:
            message = f"{host} does not have the blob {digest} of the image"
            hint = "report it to its publisher"
            raise PullError(message, hint=hint, code="image-missing", key=digest)
        if status in (206, 416):
            self._restart()
        message = f"{host} answers HTTP {status} for {digest}"
        raise http.TransientError(
            PullError(message, hint="try again later", code="host-busy", key=host, value=status)
        )

    def _count(self, size: int) -> None:
        self.received += size
        self.on_bytes(size)

    def _matches(self) -> bool:
        return self.blob.digest == f"sha256:{self.hash.hexdigest()}"

    def _restart(self) -> None:
        self._count(-self.received)
        self.hash = hashlib.sha256()
        self.part.write_bytes(b"")

    def _damage(self, reason: str) -> Exception:
        message = f"the blob {self.blob.digest} {reason}"
        hint = "a proxy may have changed it, or the registry's copy is damaged"
        error = PullError(message, hint=hint, code="image-damaged", key=self.blob.digest)
        return error if self.damaged >= _MOST_DAMAGED else http.TransientError(error)


def look_up(
    reference: str,
    architecture: str,
    *,
    user: PullUser | None = None,
    settings: RegistrySettings | None = None,
    sleep: Sleep = time.sleep,
) -> ImageManifest:
    """Return what the registry has for ``reference`` and ``architecture``; fetch no layer.

    Raises PullError, PullInputError for an invalid reference.
    """
    parsed = ImageReference.parse(reference)
    with Registry(parsed.registry, user=user, settings=settings, sleep=sleep) as registry:
        return registry.manifest(parsed, architecture)


def look_up_all(
    images: Sequence[tuple[str, str]],
    *,
    user: PullUser | None = None,
    settings: RegistrySettings | None = None,
    sleep: Sleep = time.sleep,
    say: Callable[[str], None] = lambda text: None,
) -> dict[tuple[str, str], ImageManifest | PullError]:
    """Look up every (reference, architecture) at once: its manifest, or the error.

    ``say`` gets a line for each long pause. Raises PullError for wrong settings.
    """
    parsed: dict[tuple[str, str], ImageReference] = {}
    results: dict[tuple[str, str], ImageManifest | PullError] = {}
    for image in images:
        try:
            parsed[image] = ImageReference.parse(image[0])
        except PullError as error:
            results[image] = error
    with contextlib.ExitStack() as stack:
        registries = {
            name: stack.enter_context(
                Registry(name, user=user, settings=settings, sleep=sleep, say=say)
            )
            for name in {reference.registry: None for reference in parsed.values()}
        }

        def look_up_one(image: tuple[str, str]) -> None:
            reference = parsed[image]
            try:
                results[image] = registries[reference.registry].manifest(reference, image[1])
            except PullError as error:
                results[image] = error

        run_bounded(parsed, look_up_one, workers=_LOOK_UPS)
    return results


def _read_all(response: httpx.Response) -> http.HttpAnswer:
    return http.read_all(response, shown_host(response.url.netloc.decode()))


def _digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"
