# SPDX-License-Identifier: Apache-2.0
"""The client of one registry: manifests, configs and blobs, each checked against its digest."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from llmb_installer.registry import blobs, manifests, transport
from llmb_installer.registry.access import Access
from llmb_installer.registry.endpoint import called, may_be_plain, mirrored, place_of
from llmb_installer.registry.faults import ImageFaultError
from llmb_installer.registry.manifests import Descriptor, Manifest, architecture_name
from llmb_installer.registry.not_there import not_there
from llmb_installer.registry.reference import Reference
from llmb_installer.registry.retry import AskAgain, Sleep, persist
from llmb_installer.registry.settings import RegistrySettings
from llmb_installer.registry.transport import Answer

if TYPE_CHECKING:
    import httpx

_MOST_REDIRECTS = 5
_LONG, _PIECE = 5.0, 1.0  # seconds of a pause that is told, and of its pieces
_DEEPEST = 3  # indexes within indexes


def _never() -> bool:
    return False


def _nothing(text: str) -> None:
    pass


class Registry:
    """The registry ``name`` (``nvcr.io``); as a context manager, closed in the end. Threads may share it.

    Whatever asks it raises ImageFaultError; what may pass is tried again after a pause, of which ``say`` tells when it
    is long. ``read_seconds`` is how long the registry may be silent.
    """

    def __init__(
        self,
        name: str,
        *,
        environ: Mapping[str, str],
        home: Path,
        settings: RegistrySettings | None = None,
        sleep: Sleep = time.sleep,
        say: Callable[[str], None] = _nothing,
        read_seconds: float = transport.READ_SECONDS,
    ) -> None:
        self._settings = settings or RegistrySettings()
        self._place = place_of(name, self._settings)
        self._sleep, self._say = sleep, say
        self._client = transport.make_client(self._settings, environ, read_seconds)
        self._access = Access(
            self._place.registry, environ, home, lambda: f"{self._base_url()}/v2/", self._ask, self._may_be_plain
        )
        self._base: str | None = None
        self._finding_base = threading.Lock()
        self._known: set[str] = set()  # hosts that have answered

    def __enter__(self) -> Registry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def manifest(self, reference: Reference, architecture: str) -> Manifest:
        """The image for ``architecture``, by the machine's name or the registry's (x86_64 or amd64)."""
        name, version, index = architecture_name(architecture), reference.version, None
        for _ in range(_DEEPEST):
            body = self._manifest_body(reference, version)
            listed = manifests.read_index(_data(body, reference), reference)
            if listed is None:
                return self._image(reference, name, body, index)
            version, index = manifests.choose(listed, name, reference).digest, index or _digest(body)
        raise manifests.unusable(reference, "is an index of indexes of indexes", "check the reference")

    def config(self, manifest: Manifest) -> dict[str, Any]:
        """The image's configuration: ``config`` has Env, WorkingDir, Entrypoint, Cmd, User."""
        return self._config(manifest.reference, manifest.config)

    def tags(self, repository: str) -> list[str] | None:
        """The first tags of a repository; None when there is no such repository."""
        answer = persist(lambda: self._read(repository, "tags/list?n=1000", {}), self._pause)
        if answer.status != 200:
            return None
        tags = manifests.parse_json(answer.body, f"the tags of {repository}").get("tags")
        return [str(tag) for tag in tags] if isinstance(tags, list) else []

    def fetch_blob(
        self,
        repository: str,
        descriptor: Descriptor,
        path: Path,
        on_bytes: Callable[[int], None],
        *,
        stop: Callable[[], bool] = _never,
    ) -> None:
        """Have the blob at ``path``, whole and its sha256 checked; what is there already is used.

        It grows in ``path.part``, from which a later call goes on; nobody else may be writing there. ``on_bytes`` gets
        the bytes gained, less than none when some had to be thrown away; their sum is the blob's size. Once ``stop``
        says so, raises StoppedError.
        """
        download = blobs.Download(
            descriptor=descriptor,
            path=path,
            on_bytes=on_bytes,
            stop=stop,
            open=lambda headers: self.open(repository, f"blobs/{descriptor.digest}", headers),
        )

        def pause(seconds: float, why: str) -> None:
            self._pause(seconds, why, download.heed_stop)

        download.run(pause)

    def open(self, repository: str, what: str, headers: Mapping[str, str]) -> httpx.Response:
        """The answer with its body still to be read; the caller closes it. Raises AskAgain too."""
        repository = f"{self._place.prefix}{repository}"
        url = f"{self._base_url()}/v2/{repository}/{what}"
        sent, fresh = self._access.header(repository), False
        while True:
            response = self._follow(url, {**headers, **({"Authorization": sent} if sent else {})})
            if response.status_code not in (401, 403) or not self._is_own(response.url):
                return response
            transport.let_go(response)
            if fresh or response.status_code == 403:
                raise self._access.denied(repository, response.status_code)
            challenges = response.headers.get_list("WWW-Authenticate")
            sent, fresh = self._access.answer(repository, challenges, sent), True

    def _image(self, reference: Reference, architecture: str, body: bytes, index: str | None) -> Manifest:
        config, layers = manifests.read_manifest(_data(body, reference), reference)
        there = str(self._config(reference, config).get("architecture") or "")
        if there != architecture:
            raise manifests.no_architecture(reference, architecture, [there])
        return Manifest(
            reference=reference,
            digest=_digest(body),
            index_digest=index,
            architecture=architecture,
            config=config,
            layers=layers,
        )

    def _manifest_body(self, reference: Reference, version: str) -> bytes:
        def ask() -> bytes:
            accept = {"Accept": ", ".join(manifests.MEDIA_TYPES)}
            answer = self._read(reference.repository, f"manifests/{version}", accept)
            if answer.status == 404:
                asked = mirrored(reference, self._settings)  # that is where it is not
                instead = reference.registry if asked != reference else None
                raise not_there(asked, version, lambda: self.tags(reference.repository), instead_of=instead)
            self._must_be(200, answer, f"{reference}")
            _check(answer.body, version if ":" in version else None, f"the manifest of {reference}")
            return answer.body

        return persist(ask, self._pause)

    def _config(self, reference: Reference, config: Descriptor) -> dict[str, Any]:
        def ask() -> bytes:
            answer = self._read(reference.repository, f"blobs/{config.digest}", {})
            self._must_be(200, answer, f"the configuration of {reference}")
            _check(answer.body, config.digest, f"the configuration of {reference}")
            return answer.body

        return manifests.parse_json(persist(ask, self._pause), f"the configuration of {reference}")

    def _pause(self, seconds: float, why: str, heed_stop: Callable[[], None] = lambda: None) -> None:
        """Sleep, in pieces that let the user interrupt."""
        if seconds >= _LONG:
            self._say(f"{why}; asked again in {seconds:.0f} s")
        while seconds > 0:
            heed_stop()
            self._sleep(min(seconds, _PIECE))
            seconds -= _PIECE

    def _must_be(self, status: int, answer: Answer, what: str) -> None:
        if answer.status != status:
            message = f"{called(self._place.host)} answers HTTP {answer.status} for {what}"
            raise ImageFaultError("unusable", message, hint="check the reference, and what stands before the registry")

    def _read(self, repository: str, what: str, headers: Mapping[str, str]) -> Answer:
        return transport.read_all(self.open(repository, what, headers))

    def _follow(self, url: str, headers: Mapping[str, str]) -> httpx.Response:
        """GET ``url`` and where it redirects to; another host does not get the Authorization header."""
        request = self._client.build_request("GET", url, headers=headers)
        for _ in range(_MOST_REDIRECTS):
            response = self._send(request)
            if response.next_request is None:
                return response
            transport.let_go(response)
            following = response.next_request
            if request.url.scheme == "https" != following.url.scheme:
                message = f"{called(self._place.host)} redirects to {following.url.host} without TLS"
                raise ImageFaultError("unusable", message, hint="tell who runs the registry")
            request = following
        message = f"{called(self._place.host)} redirects more than {_MOST_REDIRECTS} times"
        raise ImageFaultError("unusable", message, hint="check the registry's name")

    def _send(self, request: httpx.Request) -> httpx.Response:
        host = request.url.netloc.decode()
        response = transport.send(self._client, request, known=host in self._known)
        self._known.add(host)
        return response

    def _ask(self, method: str, url: str, parameters: Mapping[str, str], headers: Mapping[str, str]) -> Answer:
        import httpx

        address = httpx.URL(url).copy_merge_params(parameters) if method == "GET" else url
        form = parameters if method == "POST" else None
        request = self._client.build_request(method, address, headers=headers, data=form)
        return transport.read_all(self._send(request))

    def _base_url(self) -> str:
        """``https://HOST``; where TLS may be missing, what HOST speaks."""
        with self._finding_base:
            if self._base is None:
                host = self._place.host
                plain = self._may_be_plain(host) and transport.speaks_plain_http(self._client, host)
                self._base = f"{'http' if plain else 'https'}://{host}"
            return self._base

    def _may_be_plain(self, host: str) -> bool:
        return may_be_plain(host, self._settings)

    def _is_own(self, url: httpx.URL) -> bool:
        return f"{url.scheme}://{url.netloc.decode()}" == self._base


def _data(body: bytes, reference: Reference) -> dict[str, Any]:
    return manifests.parse_json(body, f"the manifest of {reference}")


def _digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def _check(body: bytes, digest: str | None, what: str) -> None:
    if digest is not None and _digest(body) != digest:
        message = f"{what} is not what its digest says"
        raise AskAgain(ImageFaultError("damaged", message, hint="a proxy on the way may change it"))
