# SPDX-License-Identifier: Apache-2.0
"""HTTP clients with this machine's proxies and certificates.

Errors have the host, the reason and the fix.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from socket import gaierror
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from llmb.core import files
from llmb.core.backoff import AskAgain, retry_after
from llmb.errors import LlmbError, UsageError

if TYPE_CHECKING:
    import httpx  # takes long, so functions import it

Hints = Mapping[str, str] | None

CONNECT_SECONDS, READ_SECONDS = 15.0, 30.0
BUSY = frozenset({408, 429, 500, 502, 503, 504})  # answers after which a later attempt may succeed
NETWORK = "the network and the proxy (HTTPS_PROXY, NO_PROXY)"  # to check when a connection fails

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")  # never reached through a proxy
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SHORT = 1 << 16  # bytes that are read sooner than a new connection is made
_PORTS = {"http": 80, "https": 443}
_HINTS = {
    "dns": f"check the spelling of the name, {NETWORK}",
    "refused": f"check the host, the port, {NETWORK}",
    "certificate": "set SSL_CERT_FILE to your site's certificates",
    "other": f"check {NETWORK}",
}


def make_client(
    *,
    headers: Mapping[str, str],
    environ: Mapping[str, str],
    ca_bundle: Path | None = None,
    read_seconds: float = READ_SECONDS,
    connect_seconds: float = CONNECT_SECONDS,
) -> httpx.Client:
    """A client that uses the proxies of the environment, except for loopback.

    ``ca_bundle`` is a file of certificates to trust in addition. Raises UsageError for wrong
    settings.
    """
    import httpx

    try:
        return httpx.Client(
            verify=_certificates(ca_bundle, environ),
            timeout=httpx.Timeout(read_seconds, connect=connect_seconds, pool=None),
            limits=httpx.Limits(max_connections=None),
            headers=dict(headers),
            mounts={f"all://{host}": None for host in _LOOPBACK},
        )
    except (ValueError, ImportError, httpx.InvalidURL) as error:
        message = f"the proxy that the environment names cannot be used: {error}"
        raise UsageError(message, hint=_HINTS["other"], code="proxy-invalid") from error


def _certificates(ca_bundle: Path | None, environ: Mapping[str, str]) -> ssl.SSLContext:
    """Return the trusted certificates.

    They are of SSL_CERT_FILE and SSL_CERT_DIR, else of the system, and of ``ca_bundle``.
    """
    import httpx

    file, folder = environ.get("SSL_CERT_FILE"), environ.get("SSL_CERT_DIR")
    name, place = "SSL_CERT_FILE", file
    try:
        context = ssl.create_default_context(cafile=file or None, capath=folder or None)
        if not file and not folder and not context.cert_store_stats()["x509_ca"]:
            # the certificates that httpx brings
            context = httpx.create_ssl_context(trust_env=False)
            # and a folder, from which certificates are only read when needed
            context.load_default_certs()
        if ca_bundle is not None:
            name, place = "ca_bundle", str(files.expand(ca_bundle))
            context.load_verify_locations(place)
    except OSError as error:
        message = f"{name}: no certificates can be read from {place}: {error.strerror or error}"
        hint = "set it to a file of PEM certificates"
        raise UsageError(
            message, hint=hint, code="certificates-unreadable", key=name, value=place
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
    client: httpx.Client,
    request: httpx.Request,
    *,
    is_known: bool,
    name: str = "",
    hints: Hints = None,
) -> httpx.Response:
    """Return the answer to ``request``, its body still to be read. The caller closes it.

    Raises AskAgain for a host that is busy or cuts the connection, LlmbError for one that cannot be
    reached. If the host ``is_known`` to answer, also a failed connection is worth another attempt.
    ``name`` and ``hints`` are for messages, as in ``unreachable``. The hints are also for ``busy``
    and ``limited`` (HTTP 429).
    """
    name = name or request.url.netloc.decode()
    with raises(request.url, is_known=is_known, name=name, hints=hints):
        response = client.send(request, stream=True)
    status = response.status_code
    if status in _REDIRECTS and "Location" not in response.headers:
        discard(response)
        raise _odd(name, f"redirects to no place (HTTP {status})")
    if status not in BUSY:
        return response
    discard(response)
    reason, text = (
        ("limited", "receives too many requests") if status == 429 else ("busy", "has a problem")
    )
    hint = (hints or {}).get(reason, "try again later")
    fault = LlmbError(
        f"{name} {text} (HTTP {status})", hint=hint, code="host-busy", key=name, value=status
    )
    raise AskAgain(fault, retry_after(response.headers.get("Retry-After")))


def _odd(name: str, what: str) -> LlmbError:
    hint = "check the name of the host, and any proxy in front of it"
    return LlmbError(f"{name} {what}", hint=hint, code="host-unusable", key=name)


def discard(response: httpx.Response) -> None:
    """Close an answer. Its connection is kept if the rest of the body is short."""
    import httpx

    with contextlib.suppress(httpx.HTTPError, ValueError):  # also a length that is no number
        if int(response.headers.get("Content-Length", _SHORT)) < _SHORT:
            response.read()
    response.close()


@contextlib.contextmanager
def raises(
    url: httpx.URL, *, is_known: bool, name: str = "", hints: Hints = None
) -> Iterator[None]:
    """Raise failures of the connection to ``url`` as LlmbError, or as AskAgain if they may pass."""
    import httpx

    shown = name or url.netloc.decode()
    try:
        yield
    except httpx.TooManyRedirects as error:
        raise _odd(shown, "redirects without an end") from error
    except httpx.InvalidURL as error:
        raise _odd(shown, f"redirects to an address that is none: {error}") from error
    except httpx.DecodingError as error:
        message = f"the answer of {shown} cannot be decoded: {error}"
        raise LlmbError(message, hint="try again", code="answer-damaged", key=shown) from error
    except httpx.TransportError as error:
        fault = unreachable(error, url, name=name, hints=hints)
        raise (AskAgain(fault) if may_pass(error, is_known=is_known) else fault) from error


def may_pass(error: httpx.TransportError, *, is_known: bool) -> bool:
    """Return True if another attempt may succeed.

    It may after a cut, and after a failed connection if the host ``is_known``.
    """
    import httpx

    if not isinstance(
        error,
        httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError | httpx.UnsupportedProtocol,
    ):
        return True
    return is_known and not any(
        isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error)
    )


def unreachable(
    error: httpx.TransportError, url: httpx.URL, *, name: str = "", hints: Hints = None
) -> LlmbError:
    """Return the error ``host-unreachable``: host, proxy if one is used, reason and fix.

    ``value`` is the reason: dns, refused, certificate, tls, timeout, cut or other. ``hints`` maps
    reasons to fixes.
    """
    import httpx

    name = name or url.netloc.decode()
    reason, text = "other", str(error) or type(error).__name__
    for cause in _causes(error):
        if isinstance(cause, gaierror):
            reason, text = "dns", "its name cannot be resolved (DNS)"
        elif isinstance(cause, ConnectionRefusedError):
            reason, text = "refused", "connection refused"
        elif isinstance(cause, ssl.SSLCertVerificationError):
            reason, text = (
                "certificate",
                f"its certificate is not trusted (TLS): {cause.verify_message}",
            )
        elif isinstance(cause, ssl.SSLError):
            reason, text = "tls", f"TLS fails: {cause.reason or cause}"
    if isinstance(error, httpx.TimeoutException):
        reason, text = "timeout", "no answer in time"
    elif isinstance(error, httpx.ReadError | httpx.RemoteProtocolError):
        reason, text = "cut", f"the connection was cut: {text}"
    fixes = {**_HINTS, **(hints or {})}
    return LlmbError(
        f"{name} cannot be reached{_through_proxy(url)}: {text}",
        hint=fixes.get(reason, fixes["other"]),
        code="host-unreachable",
        key=name,
        value=reason,
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _through_proxy(url: httpx.URL) -> str:
    """The proxy of requests to ``url`` for a message, with its port and without its password."""
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    host = url.netloc.decode()
    if not proxy or proxy_bypass(host) or without_port(host) in _LOOPBACK:
        return ""
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    place = parts.netloc.rpartition("@")[2]
    usual = _PORTS.get(parts.scheme)
    return f" through the proxy {place}" + (
        f":{usual}" if usual and re.search(r":\d+$", place) is None else ""
    )
