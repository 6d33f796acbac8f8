# SPDX-License-Identifier: Apache-2.0
"""Retries and errors of HTTP: how often, after which pause, and the reason that an error names."""

import socket
import ssl

import httpx
import pytest

from llmb.core import http
from llmb.core.backoff import (
    ATTEMPTS,
    LONGEST_PAUSE,
    PROGRESS,
    AskAgain,
    pause_after,
    persist,
    retry_after,
)
from llmb.errors import LlmbError

URL = httpx.URL("https://api.example/v1")


def fault() -> LlmbError:
    return LlmbError("no", hint="later", code="host-busy")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("0", 0.0),
        (" 7 ", 7.0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 37.0),
        ("Sun, 06 Nov 1994 08:48:37 GMT", 0.0),
        ("soon", None),
        ("-3", None),
        ("", None),
    ],
)
def test_retry_after(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, now=784111740.0) == seconds


def test_pauses_are_bounded() -> None:
    assert all(0 < pause_after(attempt) <= LONGEST_PAUSE for attempt in range(1, 50))


@pytest.mark.parametrize(
    ("attempts", "calls_made"), [(ATTEMPTS, ATTEMPTS), (1, 1), (2, 2), (9, ATTEMPTS)]
)
def test_attempts_without_progress_are_bounded(attempts: int, calls_made: int) -> None:
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise AskAgain(fault(), attempts=attempts)

    with pytest.raises(LlmbError) as caught:
        persist(fail, lambda *_: None, received=lambda: len(calls) * (PROGRESS - 1))
    assert (caught.value.code, len(calls)) == ("host-busy", calls_made)
    assert str(caught.value) == caught.value.message


def test_other_faults_are_not_tried_again() -> None:
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise fault()

    with pytest.raises(LlmbError):
        persist(fail, lambda *_: None)
    assert len(calls) == 1


def tls(kind: type[ssl.SSLError]) -> ssl.SSLError:
    found = kind(1, "x")
    found.reason = "x"
    vars(found)["verify_message"] = "x"
    return found


def caused(error: httpx.TransportError, cause: BaseException) -> httpx.TransportError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "reason", "passes_unknown", "passes_known"),
    [
        (caused(httpx.ConnectError("x"), socket.gaierror(-2, "no such name")), "dns", False, True),
        (caused(httpx.ConnectError("x"), ConnectionRefusedError()), "refused", False, True),
        (
            caused(httpx.ConnectError("x"), tls(ssl.SSLCertVerificationError)),
            "certificate",
            False,
            False,
        ),
        (caused(httpx.ConnectError("x"), tls(ssl.SSLError)), "tls", False, True),
        (httpx.ConnectTimeout("x"), "timeout", False, True),
        (httpx.ReadTimeout("x"), "timeout", True, True),
        (httpx.ReadError("x"), "cut", True, True),
        (httpx.RemoteProtocolError("x"), "cut", True, True),
        (httpx.ProxyError("x"), "other", False, True),
    ],
)
def test_each_reason(
    error: httpx.TransportError, reason: str, passes_unknown: bool, passes_known: bool
) -> None:
    """Another attempt is made after a cut, and after a failed connection to a host that has
    answered before.
    """
    found = http.unreachable(error, URL, hints={reason: "the fix"})
    assert (found.code, found.key, found.value, found.hint) == (
        "host-unreachable",
        "api.example",
        reason,
        "the fix",
    )
    assert [http.may_pass(error, is_known=known) for known in (False, True)] == [
        passes_unknown,
        passes_known,
    ]


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("localhost:1", True),
        ("127.9.9.9", True),
        ("[::1]:5", True),
        ("localhost.x", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert http.is_loopback(host) is loopback
