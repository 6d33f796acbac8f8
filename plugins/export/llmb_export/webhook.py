# SPDX-License-Identifier: Apache-2.0
"""Posts results to a web address, again and again if it is busy. A failure is an answer here."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import threading
import time
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

ANSWER_SECONDS = 10.0  # from the connection to the status
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 900.0  # seconds between attempts
ATTEMPTS = 5
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})


def key_of(body: bytes) -> str:
    """Return the key of a delivery: equal results have an equal key, on every attempt and run."""
    return hashlib.sha256(body).hexdigest()


def body_of(data: Mapping[str, Any]) -> bytes:
    """Return the results as JSON."""
    return json.dumps(data, ensure_ascii=False, sort_keys=True).encode("utf-8", "replace")


def place_of(url: str) -> str:
    """Return scheme, host and port, as a path or a query may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def deliver(
    url: str,
    data: Mapping[str, Any],
    *,
    token: str = "",
    attempts: int = ATTEMPTS,
    pause: Callable[[float], None] = time.sleep,
    answer_seconds: float = ANSWER_SECONDS,
) -> str:
    """Post ``data`` to ``url``. Return why it was not accepted, empty if it was.

    Waits 10 s after the first failure, twice as long after each further one, or as long as the
    server asks, at most 15 minutes.
    """
    body = body_of(data)
    headers = {
        "Content-Type": "application/json",
        "Idempotency-Key": key_of(body),
        "User-Agent": "llmb",
        **({"Authorization": f"Bearer {token}"} if token else {}),
    }
    reason, may_pass, requested = _attempt(url, body, headers, answer_seconds)
    for retry in range(attempts - 1):
        if not may_pass:
            return reason
        pause(min(LONGEST_PAUSE, max(requested or 0.0, FIRST_PAUSE * 2**retry)))
        reason, may_pass, requested = _attempt(url, body, headers, answer_seconds)
    return f"{reason}, after {attempts} attempts" if may_pass and attempts > 1 else reason


_Attempt = tuple[str, bool, float | None]  # reason, whether another may succeed, requested pause


def _attempt(url: str, body: bytes, headers: Mapping[str, str], seconds: float) -> _Attempt:
    """Post once, in a thread that is left alone if the server only trickles."""
    answers: list[_Attempt] = []
    request = Request(url, data=body, headers=dict(headers), method="POST")
    thread = threading.Thread(
        target=lambda: answers.append(_post(request, seconds)), daemon=True, name="webhook"
    )
    thread.start()
    thread.join(seconds + 1)
    return answers[0] if answers else (f"no answer in {seconds:g} s", True, None)


def _post(request: Request, seconds: float) -> _Attempt:
    from llmb.api import retry_after

    try:
        with _opener(request.host).open(request, timeout=seconds):
            return "", False, None
    except HTTPError as error:
        requested = retry_after(error.headers.get("Retry-After"))
        error.close()
        return f"HTTP {error.code}", error.code in _BUSY, requested
    except TimeoutError:
        return f"no answer in {seconds:g} s", True, None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        return f"it cannot be reached: {reason}", True, None


class _NoRedirect(HTTPRedirectHandler):
    """A redirect would be followed without the body, and with the token."""

    def redirect_request(self, *_args: Any, **_keywords: Any) -> None:
        return None


def _opener(host: str) -> Any:
    proxies = [ProxyHandler({})] if _is_loopback(host) else []
    return build_opener(_NoRedirect, *proxies)


def _is_loopback(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
