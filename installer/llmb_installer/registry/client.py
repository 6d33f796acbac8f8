# SPDX-License-Identifier: Apache-2.0
"""The client of one registry: manifests, configurations and blobs, each checked against its digest."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmb.errors import LlmbError
from llmb.system import http, retry
from llmb_installer.registry import access, blobs, manifests, reference as references
from llmb_installer.registry.reference import Reference, RegistrySettings, shown_host

if TYPE_CHECKING:
    import httpx

Sleep = Callable[[float], None]

_MOST_REDIRECTS = 5
_LONG, _PIECE = 5.0, 1.0  # seconds: pauses that are announced, and the pieces they are slept in
_DEEPEST = 3  # indexes within indexes
_HINTS = {
    "certificate": "name your site's certificates: ca_bundle in the answers, or SSL_CERT_FILE",
    "tls": "a registry without TLS must be listed in insecure_registries",
    "limited": "try again later; registries often allow more requests to users who are logged in",
}


class Registry:
    """The registry ``name`` (``nvcr.io``), a context manager that closes it; several threads may share it.

    Every method raises LlmbError. A request that may succeed later is repeated after a pause, of which ``say`` is
    informed when it is long. ``read_seconds`` is how long the registry may be silent.
    """

    def __init__(
        self,
        name: str,
        *,
        environ: Mapping[str, str],
        home: Path,
        settings: RegistrySettings | None = None,
        sleep: Sleep = time.sleep,
        say: Callable[[str], None] = lambda text: None,
        read_seconds: float = http.READ_SECONDS,
    ) -> None:
        self._settings = settings or RegistrySettings()
        self._allows_plain = partial(references.allows_plain_http, settings=self._settings)
        self._endpoint = references.endpoint_of(name, self._settings)
        self._sleep, self._say = sleep, say
        self._client = http.make_client(
            headers={"User-Agent": "llmb-install", "Accept-Encoding": "identity"},
            environ=environ,
            ca_bundle=self._settings.ca_bundle,
            read_seconds=read_seconds,
        )
        self._access = access.Access(
            self._endpoint.registry, environ, home, lambda: f"{self._base_url()}/v2/", self._ask, self._allows_plain
        )
        self._base: str | None = None
        self._finding_base = threading.Lock()
        self._known: set[str] = set()  # hosts that have answered

    def __enter__(self) -> Registry:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def manifest(self, reference: Reference, architecture: str) -> manifests.Manifest:
        """The image for ``architecture``, in the machine's name or the registry's (x86_64 or amd64)."""
        name, version, index = manifests.architecture_name(architecture), reference.version, None
        accept = {"Accept": ", ".join(manifests.MEDIA_TYPES)}
        for _ in range(_DEEPEST):
            digest, what = version if ":" in version else None, f"the manifest of {reference}"
            body = self._get(reference, f"manifests/{version}", what, digest, headers=accept)
            data = manifests.parse_json(body, what)
            listed = manifests.read_index(data, reference)
            if listed is None:
                break
            version, index = manifests.choose(listed, name, reference).digest, index or _digest(body)
        else:
            raise manifests.unusable(reference, "is an index of indexes of indexes", "check the reference")
        config, layers = manifests.read_manifest(data, reference)
        found = str(self.config(reference, config).get("architecture") or "")
        if found != name:
            raise manifests.no_architecture(reference, name, [found])
        return manifests.Manifest(
            reference=reference,
            digest=_digest(body),
            index_digest=index,
            architecture=name,
            config=config,
            layers=layers,
        )

    def config(self, reference: Reference, config: manifests.Descriptor) -> dict[str, Any]:
        """The image's configuration: ``config`` has Env, WorkingDir, Entrypoint, Cmd, User."""
        what = f"the configuration of {reference}"
        return manifests.parse_json(self._get(reference, f"blobs/{config.digest}", what, config.digest), what)

    def tags(self, repository: str) -> list[str] | None:
        """The first tags of a repository; None where it does not exist."""
        answer = retry.persist(lambda: _read_all(self.open(repository, "tags/list?n=1000", {})), self._pause)
        if answer.status != 200:
            return None
        tags = manifests.parse_json(answer.body, f"the tags of {repository}").get("tags")
        return [str(tag) for tag in tags] if isinstance(tags, list) else []

    def fetch_blob(
        self,
        repository: str,
        descriptor: manifests.Descriptor,
        path: Path,
        on_bytes: Callable[[int], None],
        *,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Download the blob to ``path`` and check its sha256; a file that exists is used if it is right.

        The file grows as ``path.part``, which a later call continues; only one process may write there. ``on_bytes``
        gets the bytes received, a negative number where some are discarded; their sum is the blob's size. Raises
        StoppedError once ``stop()`` is true.
        """
        download = blobs.Download(
            descriptor=descriptor,
            path=path,
            part=path.with_name(f"{path.name}.part"),
            on_bytes=on_bytes,
            stop=stop,
            open=lambda headers: self.open(repository, f"blobs/{descriptor.digest}", headers),
        )

        def pause(seconds: float, why: str) -> None:
            self._pause(seconds, why, download.check_stop)

        download.run(pause)

    def open(self, repository: str, what: str, headers: Mapping[str, str]) -> httpx.Response:
        """The answer with its body still to be read; the caller closes it. Raises AskAgain too."""
        repository = f"{self._endpoint.prefix}{repository}"
        url = f"{self._base_url()}/v2/{repository}/{what}"
        sent, is_new = self._access.header(repository), False
        while True:
            response = self._follow(url, {**headers, **({"Authorization": sent} if sent else {})})
            is_own = f"{response.url.scheme}://{response.url.netloc.decode()}" == self._base
            if response.status_code not in (401, 403) or not is_own:
                return response
            http.discard(response)
            if is_new or response.status_code == 403:
                raise self._access.denied(repository, response.status_code)
            challenges = response.headers.get_list("WWW-Authenticate")
            sent, is_new = self._access.renew(repository, challenges, sent), True

    def _get(
        self,
        reference: Reference,
        path: str,
        what: str,
        digest: str | None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """The content at ``path`` in the repository of ``reference``, ``what`` for messages, with this digest."""
        kind, _, version = path.partition("/")

        def ask() -> bytes:
            answer = _read_all(self.open(reference.repository, path, headers or {}))
            if answer.status == 404 and kind == "manifests":
                raise self._missing(reference, version)
            if answer.status != 200:
                shown = reference if kind == "manifests" else what
                hint = "check the reference, and any proxy in front of the registry"
                raise self._unusable(f"answers HTTP {answer.status} for {shown}", hint)
            if digest is not None and _digest(answer.body) != digest:
                message, hint = f"{what} does not match its digest", "a proxy may have changed it"
                raise retry.AskAgain(LlmbError(message, hint=hint, code="image-damaged", key=what))
            return answer.body

        return retry.persist(ask, self._pause)

    def _missing(self, reference: Reference, version: str) -> LlmbError:
        asked = references.mirrored(reference, self._settings)
        mirror_of = reference.registry if asked != reference else None
        return manifests.missing(asked, lambda: self.tags(reference.repository), version=version, mirror_of=mirror_of)

    def _pause(self, seconds: float, why: str, check_stop: Callable[[], None] = lambda: None) -> None:
        """Sleep, in pieces that let the user interrupt."""
        if seconds >= _LONG:
            self._say(f"{why}; next attempt in {seconds:.0f} s")
        while seconds > 0:
            check_stop()
            self._sleep(min(seconds, _PIECE))
            seconds -= _PIECE

    def _unusable(self, why: str, hint: str) -> LlmbError:
        host = self._endpoint.host
        return LlmbError(f"{shown_host(host)} {why}", hint=hint, code="registry-unusable", key=host)

    def _follow(self, url: str, headers: Mapping[str, str]) -> httpx.Response:
        """GET ``url`` and what it redirects to; the Authorization header is not sent to another host."""
        request = self._client.build_request("GET", url, headers=headers)
        for _ in range(_MOST_REDIRECTS):
            response = self._send(request)
            if response.next_request is None:
                return response
            http.discard(response)
            following = response.next_request
            if request.url.scheme == "https" != following.url.scheme:
                why = f"redirects to {following.url.host} without TLS"
                raise self._unusable(why, "report it to the registry's administrator")
            request = following
        raise self._unusable(f"redirects more than {_MOST_REDIRECTS} times", "check the registry's name")

    def _send(self, request: httpx.Request) -> httpx.Response:
        host = request.url.netloc.decode()
        response = http.send(self._client, request, known=host in self._known, name=shown_host(host), hints=_HINTS)
        self._known.add(host)
        return response

    def _ask(self, method: str, url: str, parameters: Mapping[str, str], headers: Mapping[str, str]) -> http.Answer:
        import httpx

        address = httpx.URL(url).copy_merge_params(parameters) if method == "GET" else url
        form = parameters if method == "POST" else None
        return _read_all(self._send(self._client.build_request(method, address, headers=headers, data=form)))

    def _base_url(self) -> str:
        """``https://HOST``; ``http://HOST`` where that is allowed and the host has no TLS."""
        import httpx

        with self._finding_base:
            if self._base is None:
                host, scheme = self._endpoint.host, "https"
                if self._allows_plain(host):
                    with contextlib.suppress(httpx.TransportError):
                        status = self._client.get(f"http://{host}/v2/").status_code
                        # A host with TLS answers 400, redirects, or closes the connection.
                        scheme = "https" if 300 <= status <= 400 else "http"
                self._base = f"{scheme}://{host}"
            return self._base


def _read_all(response: httpx.Response) -> http.Answer:
    return http.read_all(response, shown_host(response.url.netloc.decode()))


def _digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"
