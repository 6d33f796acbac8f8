# SPDX-License-Identifier: Apache-2.0
"""HTTP as this site does it (proxy, certificates), and its failures in words: which host, why, and the fix."""

from __future__ import annotations

import contextlib
import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from socket import gaierror
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from llmb.errors import UsageError
from llmb_installer.registry.endpoint import called
from llmb_installer.registry.faults import ImageFaultError
from llmb_installer.registry.retry import AskAgain, retry_after
from llmb_installer.registry.settings import RegistrySettings

if TYPE_CHECKING:
    import httpx

CONNECT_SECONDS, READ_SECONDS = 15.0, 30.0
BUSY = (429, 500, 502, 503, 504)
_LARGEST = 16 << 20  # bytes of a manifest, a config, a token
_SHORT = 1 << 16  # bytes that are sooner read than a new connection is made
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_PORTS = {"http": 80, "https": 443}
_PROXY = "check the network and the proxy: HTTPS_PROXY, NO_PROXY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer of ``host``."""

    host: str
    status: int
    body: bytes


def make_client(settings: RegistrySettings, environ: Mapping[str, str], read_seconds: float) -> httpx.Client:
    """A client that takes proxies from the environment, none for loopback. Raises UsageError for wrong settings."""
    import httpx

    try:
        return httpx.Client(
            verify=_trust(settings, environ),
            timeout=httpx.Timeout(read_seconds, connect=CONNECT_SECONDS, pool=None),
            limits=httpx.Limits(max_connections=None),
            headers={"User-Agent": "llmb-install", "Accept-Encoding": "identity"},
            mounts={f"all://{host}": None for host in _LOOPBACK},
        )
    except (ValueError, ImportError, httpx.InvalidURL) as error:
        raise UsageError(f"the proxy of the environment cannot be used: {error}", hint=_PROXY) from error


def _trust(settings: RegistrySettings, environ: Mapping[str, str]) -> ssl.SSLContext:
    """Whom to trust: SSL_CERT_FILE and SSL_CERT_DIR, else the system; and the setting ca_bundle."""
    import httpx

    file, folder = environ.get("SSL_CERT_FILE"), environ.get("SSL_CERT_DIR")
    name, place = "SSL_CERT_FILE", file
    try:
        context = ssl.create_default_context(cafile=file or None, capath=folder or None)
        if not file and not folder and not context.cert_store_stats()["x509_ca"]:
            context = httpx.create_ssl_context(trust_env=False)  # those that httpx brings
            context.load_default_certs()  # and a folder, of which nothing is read before it is needed
        if settings.ca_bundle is not None:
            name, place = "ca_bundle", str(settings.ca_bundle.expanduser())
            context.load_verify_locations(place)
    except OSError as error:
        message = f"{name}: no certificates can be read from {place}: {error.strerror or error}"
        raise UsageError(message, hint="name a file of PEM certificates") from error
    return context


def send(client: httpx.Client, request: httpx.Request, *, known: bool) -> httpx.Response:
    """The answer to ``request``, its body still to be read; the caller closes it.

    Raises ImageFaultError when its host cannot be reached, AskAgain when it is busy or cuts the connection; where the
    host is ``known`` to answer, failures to connect may pass too.
    """
    import httpx

    try:
        response = client.send(request, stream=True)
    except httpx.TransportError as error:
        raise failure(error, request.url, known=known) from error
    if response.status_code not in BUSY:
        return response
    let_go(response)
    host = called(request.url.netloc.decode())
    what, hint = "has trouble of its own", "try again later"
    if response.status_code == 429:
        what, hint = "asks for fewer requests", "try again later; a registry often allows more to who has logged in"
    fault = ImageFaultError("busy", f"{host} {what} (HTTP {response.status_code})", hint=hint)
    raise AskAgain(fault, retry_after(response.headers.get("Retry-After")))


def let_go(response: httpx.Response) -> None:
    """Be done with an answer, and keep its connection where the rest of it is short."""
    import httpx

    with contextlib.suppress(httpx.TransportError):
        if int(response.headers.get("Content-Length", _SHORT)) < _SHORT:
            response.read()
    response.close()


def failure(error: httpx.TransportError, url: httpx.URL, *, known: bool) -> ImageFaultError | AskAgain:
    """A failed exchange as the fault that it is, or as one that may pass."""
    import httpx

    fault = in_words(error, url)
    trust = any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error))
    lasting = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError, httpx.UnsupportedProtocol))
    return fault if lasting and (trust or not known) else AskAgain(fault)


def in_words(error: httpx.TransportError, url: httpx.URL) -> ImageFaultError:
    """What has failed on the way to ``url``: its host, the proxy where one is used, why, and the fix."""
    import httpx

    why, hint = str(error) or type(error).__name__, _PROXY
    for cause in _causes(error):
        if isinstance(cause, gaierror):
            why, hint = "its name is not known here (DNS)", f"check its spelling; {_PROXY}"
        elif isinstance(cause, ConnectionRefusedError):
            why, hint = "the connection is refused", f"check host and port; {_PROXY}"
        elif isinstance(cause, ssl.SSLCertVerificationError):
            why = f"its certificate is not trusted (TLS): {cause.verify_message}"
            hint = "name your site's certificates: ca_bundle in the answers, or SSL_CERT_FILE"
        elif isinstance(cause, ssl.SSLError):
            why, hint = f"TLS fails: {cause.reason or cause}", "a registry without TLS must be in insecure_registries"
    if isinstance(error, httpx.TimeoutException):
        why = "it does not answer in time"
    elif isinstance(error, (httpx.ReadError, httpx.RemoteProtocolError)):
        why = f"the connection was cut: {why}"
    host = called(url.netloc.decode())
    return ImageFaultError("unreachable", f"{host} cannot be reached{_by_proxy(url)}: {why}", hint=hint)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _by_proxy(url: httpx.URL) -> str:
    """The proxy that requests to ``url`` take, with its port and without its password."""
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    host = url.netloc.decode()
    if not proxy or proxy_bypass(host) or host.rpartition(":")[0] in _LOOPBACK or host in _LOOPBACK:
        return ""
    found = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    place = found.netloc.rpartition("@")[2]
    usual = _PORTS.get(found.scheme)
    return f" by the proxy {place}" + (f":{usual}" if usual and re.search(r":\d+$", place) is None else "")


def read_all(response: httpx.Response) -> Answer:
    """The whole answer; closes the response. Raises AskAgain when it is cut, ImageFaultError when it is too large."""
    import httpx

    body, host = bytearray(), called(response.url.netloc.decode())
    try:
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > _LARGEST:
                raise ImageFaultError("damaged", f"{host} sends far too much", hint="check the registry's name")
    except httpx.TransportError as error:
        raise failure(error, response.url, known=True) from error
    except httpx.DecodingError as error:
        raise ImageFaultError("damaged", f"{host} sends what cannot be read: {error}", hint="try again") from error
    finally:
        response.close()
    return Answer(host=host, status=response.status_code, body=bytes(body))


def speaks_plain_http(client: httpx.Client, host: str) -> bool:
    """Whether ``host`` answers without TLS; one that speaks TLS says 400, redirects, or closes the connection."""
    import httpx

    try:
        return not 300 <= client.get(f"http://{host}/v2/").status_code <= 400
    except httpx.TransportError:
        return False
