# SPDX-License-Identifier: Apache-2.0
"""HTTP: this machine's proxies and certificates, retries, and errors with host, reason and fix."""

from __future__ import annotations

import contextlib
import ipaddress
import random
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from socket import gaierror
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from sqshpull import files
from sqshpull.errors import ALLOW_HTTP, CA_BUNDLE, PullError, PullInputError

if TYPE_CHECKING:
    import httpx  # takes long, so functions import it

T = TypeVar("T")
Pause = Callable[[float, str], None]  # seconds, and the reason

CONNECT_SECONDS, READ_SECONDS = 15.0, 30.0
BUSY = frozenset({408, 429, 500, 502, 503, 504})  # answers after which a later attempt may succeed
ATTEMPTS = 6  # in a row without progress
LONGEST_PAUSE = 30.0  # seconds, of the pauses that we choose
PATIENCE = 300.0  # seconds, the longest pause that a server may ask for
PROGRESS = 1 << 20  # bytes received after which the attempts are counted from one again

_NETWORK = "the network and the proxy (HTTPS_PROXY, NO_PROXY)"
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")  # never reached through a proxy
_LARGEST = 16 << 20  # bytes that ``read_all`` accepts
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SHORT = 1 << 16  # bytes that are read sooner than a new connection is made
_PORTS = {"http": 80, "https": 443}
_HINTS = {
    "dns": f"check the spelling of the name, {_NETWORK}",
    "refused": f"check the host, the port, {_NETWORK}",
    "certificate": f"name your site's certificates: {CA_BUNDLE}, or SSL_CERT_FILE",
    "tls": f"if the registry has no TLS, {ALLOW_HTTP}",
    "other": f"check {_NETWORK}",
}


class TransientError(Exception):
    """An attempt failed with ``error``, and another may succeed.

    ``pause`` is the seconds that the server asks to wait.
    """

    def __init__(self, error: PullError, pause: float | None = None) -> None:
        super().__init__(error.message)
        self.error, self.pause = error, pause


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """A complete answer of ``host``."""

    host: str
    status: int
    body: bytes


def persist(call: Callable[[], T], pause: Pause, *, received: Callable[[], int] = lambda: 0) -> T:
    """Return the result of ``call``, which is repeated as long as it raises TransientError.

    Raises its error after ATTEMPTS in a row. They are counted from one again whenever ``received``,
    in bytes, has grown by PROGRESS: a long download may be cut often.
    """
    attempt, received_before = 0, received()
    while True:
        try:
            return call()
        except TransientError as again:
            has_progress = received() - received_before >= PROGRESS
            attempt = 1 if has_progress else attempt + 1
            received_before = received()
            if (again.pause or 0.0) > PATIENCE:
                text = f", and asks to wait {again.pause:.0f} s"
                raise _extended(again.error, text) from again
            if attempt >= ATTEMPTS:
                raise _extended(again.error, f", after {attempt} attempts") from again
            seconds = pause_after(attempt) if again.pause is None else again.pause
            pause(seconds, again.error.message)


def pause_after(attempt: int) -> float:
    """Return the seconds to wait: doubling, and spread so that many clients do not coincide."""
    return random.uniform(0.5, 1.0) * min(2.0 ** (attempt - 1), LONGEST_PAUSE)


def _extended(error: PullError, text: str) -> PullError:
    error.message += text
    error.args = (error.message,)
    return error


def retry_after(value: str | None, now: float | None = None) -> float | None:
    """Return the seconds that a Retry-After header asks for, as a number or a date."""
    if value is None:
        return None
    if value.isascii() and value.strip().isdigit():
        return float(value)
    from email.utils import parsedate_to_datetime

    try:
        date = parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError):  # not a date, or not one of the calendar
        return None
    return max(0.0, date - (time.time() if now is None else now))


def make_client(
    *,
    headers: Mapping[str, str],
    environ: Mapping[str, str],
    ca_bundle: Path | None = None,
    read_seconds: float = READ_SECONDS,
) -> httpx.Client:
    """Return a client that uses the proxies of the environment, except for loopback.

    Raises PullInputError for wrong settings.
    """
    import httpx

    try:
        return httpx.Client(
            verify=_certificates(ca_bundle, environ),
            timeout=httpx.Timeout(read_seconds, connect=CONNECT_SECONDS, pool=None),
            limits=httpx.Limits(max_connections=None),
            headers=dict(headers),
            mounts={f"all://{host}": None for host in _LOOPBACK},
        )
    except (ValueError, ImportError, httpx.InvalidURL) as error:
        message = f"the proxy that the environment names cannot be used: {error}"
        raise PullInputError(message, hint=_HINTS["other"], code="proxy-invalid") from error


def _certificates(ca_bundle: Path | None, environ: Mapping[str, str]) -> ssl.SSLContext:
    """Return the trusted certificates: of SSL_CERT_FILE and SSL_CERT_DIR, else the system's.

    Those of ``ca_bundle`` come in addition.
    """
    import httpx

    file, folder = environ.get("SSL_CERT_FILE"), environ.get("SSL_CERT_DIR")
    name, key, place = "SSL_CERT_FILE", "SSL_CERT_FILE", file
    try:
        context = ssl.create_default_context(cafile=file or None, capath=folder or None)
        if not file and not folder and not context.cert_store_stats()["x509_ca"]:
            # the certificates that httpx brings
            context = httpx.create_ssl_context(trust_env=False)
            # and a folder, from which certificates are only read when needed
            context.load_default_certs()
        if ca_bundle is not None:
            name, key, place = CA_BUNDLE, "ca_bundle", str(files.expand(ca_bundle))
            context.load_verify_locations(place)
    except OSError as error:
        message = f"{name}: no certificates can be read from {place}: {error.strerror or error}"
        hint = "set it to a file of PEM certificates"
        raise PullInputError(
            message, hint=hint, code="certificates-unreadable", key=key, value=place
        ) from error
    return context


def is_loopback(host: str) -> bool:
    """Return True if ``host``, with or without a port, is this machine."""
    name = without_port(host)
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def without_port(host: str) -> str:
    return host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host


def send(
    client: httpx.Client, request: httpx.Request, *, has_answered: bool, name: str
) -> httpx.Response:
    """Return the answer to ``request``, its body still to be read; the caller closes it.

    Raises TransientError for a host that is busy or cuts the connection, PullError for one that
    cannot be reached. If the host ``has_answered`` before, a failed connection
    is worth another attempt too.
    """
    with connection_errors(request.url, has_answered=has_answered, name=name):
        response = client.send(request, stream=True)
    status = response.status_code
    if status in _REDIRECTS and "Location" not in response.headers:
        discard(response)
        raise _odd(name, f"redirects to no place (HTTP {status})")
    if status not in BUSY:
        return response
    discard(response)
    text, hint = "has a problem", "try again later"
    if status == 429:
        text = "receives too many requests"
        hint += "; registries often allow more requests to users who are logged in"
    error = PullError(
        f"{name} {text} (HTTP {status})", hint=hint, code="host-busy", key=name, value=status
    )
    raise TransientError(error, retry_after(response.headers.get("Retry-After")))


def _odd(name: str, what: str) -> PullError:
    hint = "check the name of the host, and any proxy in front of it"
    return PullError(f"{name} {what}", hint=hint, code="host-unusable", key=name)


def discard(response: httpx.Response) -> None:
    """Close an answer. Its connection is kept if the rest of the body is short."""
    import httpx

    with contextlib.suppress(httpx.HTTPError, ValueError):  # also a length that is no number
        if int(response.headers.get("Content-Length", _SHORT)) < _SHORT:
            response.read()
    response.close()


def read_all(response: httpx.Response, name: str) -> HttpAnswer:
    """Return the complete answer and close ``response``.

    Raises TransientError for an answer that is cut, PullError for one that is too large.
    """

    body = bytearray()
    try:
        with connection_errors(response.url, has_answered=True, name=name):
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > _LARGEST:
                    message = f"the answer of {name} is larger than {_LARGEST:,} bytes"
                    hint = "check the name of the host"
                    raise PullError(message, hint=hint, code="answer-damaged", key=name)
    finally:
        response.close()
    return HttpAnswer(host=name, status=response.status_code, body=bytes(body))


@contextlib.contextmanager
def connection_errors(url: httpx.URL, *, has_answered: bool, name: str) -> Iterator[None]:
    """Raise failures of the connection to ``url`` as PullError, or as TransientError."""
    import httpx

    try:
        yield
    except httpx.InvalidURL as error:
        raise _odd(name, f"redirects to an address that is none: {error}") from error
    except httpx.DecodingError as error:
        message = f"the answer of {name} cannot be decoded: {error}"
        raise PullError(message, hint="try again", code="answer-damaged", key=name) from error
    except httpx.TransportError as error:
        fault = unreachable(error, url, name)
        may_pass = _may_pass(error, has_answered=has_answered)
        raise (TransientError(fault) if may_pass else fault) from error


def _may_pass(error: httpx.TransportError, *, has_answered: bool) -> bool:
    """Return True after a cut, and after a failed connection to a host that has answered before."""
    import httpx

    if not isinstance(
        error,
        httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError | httpx.UnsupportedProtocol,
    ):
        return True
    return has_answered and not any(
        isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error)
    )


def unreachable(error: httpx.TransportError, url: httpx.URL, name: str) -> PullError:
    """Return the error ``host-unreachable``: the host, the proxy if any, the reason and the fix.

    ``value`` is the reason: dns, refused, certificate, tls, timeout, cut or other.
    """
    import httpx

    reason, text = "other", str(error) or type(error).__name__
    for cause in _causes(error):
        if isinstance(cause, gaierror):
            reason, text = "dns", "its name cannot be resolved (DNS)"
        elif isinstance(cause, ConnectionRefusedError):
            reason, text = "refused", "connection refused"
        elif isinstance(cause, ssl.SSLCertVerificationError):
            reason = "certificate"
            text = f"its certificate is not trusted (TLS): {cause.verify_message}"
        elif isinstance(cause, ssl.SSLError):
            reason, text = "tls", f"TLS fails: {cause.reason or cause}"
    if isinstance(error, httpx.TimeoutException):
        reason, text = "timeout", "no answer in time"
    elif isinstance(error, httpx.ReadError | httpx.RemoteProtocolError):
        reason, text = "cut", f"the connection was cut: {text}"
    message = f"{name} cannot be reached{_through_proxy(url)}: {text}"
    hint = _HINTS.get(reason, _HINTS["other"])
    return PullError(message, hint=hint, code="host-unreachable", key=name, value=reason)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _through_proxy(url: httpx.URL) -> str:
    """Return the proxy of ``url`` for a message, with its port and without its password."""
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    host = url.netloc.decode()
    if not proxy or proxy_bypass(host) or without_port(host) in _LOOPBACK:
        return ""
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    place = parts.netloc.rpartition("@")[2]
    usual_port = _PORTS.get(parts.scheme)
    has_port = re.search(r":\d+$", place) is not None
    port = f":{usual_port}" if usual_port and not has_port else ""
    return f" through the proxy {place}{port}"
