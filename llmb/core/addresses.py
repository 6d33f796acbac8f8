# SPDX-License-Identifier: Apache-2.0
"""Checks addresses and names: returns the reason why a text is refused, None for a valid one."""

import re
import socket
import threading
from collections.abc import Mapping
from urllib.parse import urlsplit

_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_NAME = re.compile(r"[\w.@+:/=-]", re.ASCII)


def url_fault(text: str, example: str, schemes: tuple[str, ...] = ("https",)) -> str | None:
    """Return the reason why ``text`` is not the URL of a server. ``example`` is a valid one."""
    text = text.strip()
    if any(blank in text for blank in " \t"):
        return "a URL contains no blanks"
    scheme, separator, location = text.partition("://")
    if scheme not in schemes or not separator:
        return f"a URL starts with {' or '.join(f'{scheme}://' for scheme in schemes)}: {example}"
    if "@" in location.partition("/")[0]:
        return "omit user and password from the URL"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return f"the host or port in the URL is invalid: {example}"
    if not host:
        return f"the host is missing: {example}"
    if port == 0:
        return "the port in the URL is invalid: a port is 1 to 65535"
    if host.startswith("[") or ":" in host:
        return None  # an address of IPv6, which urlsplit has checked
    return host_fault(host)


def unresolved_fault(text: str, environ: Mapping[str, str], *, within: float = 10) -> str | None:
    """Return the reason why this machine does not find the host of the URL ``text``.

    A proxy in ``environ`` finds hosts itself. A name server that has not answered ``within``
    seconds proves nothing, so the host is accepted.
    """
    scheme = text.partition("://")[0]
    has_proxy = any(environ.get(name) for name in (f"{scheme}_proxy", f"{scheme.upper()}_PROXY"))
    if has_proxy or url_fault(text, "", schemes=("https", "http")) is not None:
        return None
    host, faults = urlsplit(text.strip()).hostname, list[str]()

    def resolve() -> None:
        try:
            socket.getaddrinfo(host, None)
        except OSError as error:
            faults.append(f"the host {host} is not found ({error.strerror}): check its name")

    thread = threading.Thread(target=resolve, daemon=True)  # getaddrinfo has no timeout
    thread.start()
    thread.join(within)
    return next(iter(faults), None)


def host_fault(text: str) -> str | None:
    """Return the reason why ``text`` is not the name or address of a host."""
    text = text.strip()
    if not text:
        return "write the name of a host"
    for label in text.removesuffix(".").split("."):
        if not label:
            return f"'{text}' is not the name of a host: a part between two points is empty"
        if not _LABEL.fullmatch(label):
            return (
                f"'{label}' cannot be a part of a host's name: use letters, digits and inner"
                " hyphens, at most 63"
            )
    numbers = text.split(".")
    if all(part.isdecimal() for part in numbers) and (
        len(numbers) != 4 or any(int(part) > 255 for part in numbers)
    ):
        return f"'{text}' is not an address: write four numbers up to 255"
    return None


def name_fault(text: str, of: str, *, several: bool = False) -> str | None:
    """Return the reason why ``text`` cannot be the name ``of`` something in a scheduler.

    With ``several``, the text is names separated by commas.
    """
    text = text.strip()
    if not text:
        return f"write the name of {of}"
    if text.startswith("-"):
        return f"the name of {of} does not start with '-'"
    if text.startswith("/"):
        return f"{text} is a path: write the name of {of}"
    for char in text:
        if not _NAME.fullmatch(char) and not (several and char == ","):
            shown = "a blank" if char.isspace() else f"'{char}'"
            return f"{shown} cannot be in the name of {of}"
    return None
