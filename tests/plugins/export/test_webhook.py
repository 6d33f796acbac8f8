# SPDX-License-Identifier: Apache-2.0
"""The webhook against real servers: busy, refusing, redirecting, silent, trickling and dead ones."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from llmb_export.webhook import deliver, key_of, place_of

Answer = Callable[[BaseHTTPRequestHandler], None]
DATA = {"schema_version": 1, "results": [{"experiment": "\N{EURO SIGN}"}]}


def never(_seconds: float) -> None:
    pytest.fail("it is not tried again")


class Server(ThreadingHTTPServer):
    """Gives its ``answers`` in turn, the last one again and again, and keeps what it received."""

    daemon_threads = True

    def __init__(self, answers: list[Answer]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = answers
        self.received: list[tuple[Mapping[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook?key=hidden"

    def handle_error(self, *_args: Any) -> None:
        """A client that gave up is no error."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((dict(self.headers), body))
        answers = self.server.answers
        (answers.pop(0) if len(answers) > 1 else answers[0])(self)

    def do_GET(self) -> None:
        self.server.received.append(({}, b"GET"))

    def log_message(self, *_args: Any) -> None:
        pass


def says(status: int, **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def hangs_up(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Ends the servers that never answer."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*answers: Answer) -> Server:
        server = Server(list(answers))
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_delivery(serve: Callable[..., Server]) -> None:
    server = serve(says(204))
    assert deliver(server.url, DATA, token="t0ken", pause=never) == ""
    ((headers, body),) = server.received
    assert json.loads(body) == DATA
    assert headers["Content-Type"] == "application/json"
    assert headers["Authorization"] == "Bearer t0ken"
    assert headers["Idempotency-Key"] == key_of(body)


def test_a_busy_server_gets_the_same_key_again(serve: Callable[..., Server]) -> None:
    pauses: list[float] = []
    server = serve(says(503), hangs_up, says(429, Retry_After="60"), says(500), says(200))
    assert deliver(server.url, DATA, pause=pauses.append) == ""
    assert pauses == [10, 20, 60, 80]
    assert len({headers["Idempotency-Key"] for headers, _ in server.received}) == 1
    assert len(server.received) == 5


def test_equal_results_have_an_equal_key(serve: Callable[..., Server]) -> None:
    server = serve(says(200))
    for data in (DATA, dict(reversed(DATA.items())), {**DATA, "results": []}):
        deliver(server.url, data)
    first, second, other = (headers["Idempotency-Key"] for headers, _ in server.received)
    assert first == second != other


def test_a_server_that_asks_to_wait_for_days(serve: Callable[..., Server]) -> None:
    pauses: list[float] = []
    deliver(serve(says(503, Retry_After="999999")).url, DATA, attempts=2, pause=pauses.append)
    assert pauses == [900]


def test_a_server_that_asks_to_wait_until_a_time(serve: Callable[..., Server]) -> None:
    """RFC 9110, 10.2.3: an HTTP-date, here in 5 minutes."""
    pauses: list[float] = []
    date = formatdate(time.time() + 300, usegmt=True)
    deliver(serve(says(503, Retry_After=date)).url, DATA, attempts=2, pause=pauses.append)
    assert pauses == [pytest.approx(300, abs=60)]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_a_refusal_is_not_repeated(serve: Callable[..., Server], status: int) -> None:
    server = serve(says(status))
    assert str(status) in deliver(server.url, DATA, pause=never)
    assert len(server.received) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(serve: Callable[..., Server], status: int) -> None:
    other = serve(says(200))
    server = serve(says(status, Location=other.url))
    assert str(status) in deliver(server.url, DATA, token="t0ken", pause=never)
    assert other.received == []


def test_a_server_that_is_always_busy(serve: Callable[..., Server]) -> None:
    server, pauses = serve(says(502)), list[float]()
    reason = deliver(server.url, DATA, attempts=3, pause=pauses.append)
    assert "502" in reason
    assert "3" in reason
    assert len(server.received) == 3


def test_a_silent_server(serve: Callable[..., Server], release: threading.Event) -> None:
    server = serve(lambda _handler: release.wait() and None)
    reason = deliver(server.url, DATA, attempts=2, pause=lambda _s: None, answer_seconds=0.2)
    assert reason
    assert len(server.received) == 2


def test_a_server_that_trickles(serve: Callable[..., Server], release: threading.Event) -> None:
    def trickle(handler: BaseHTTPRequestHandler) -> None:
        while not release.is_set():
            handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            time.sleep(0.05)

    assert deliver(serve(trickle).url, DATA, attempts=1, answer_seconds=0.2)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    pauses: list[float] = []
    assert deliver(f"http://127.0.0.1:{port}/", DATA, attempts=3, pause=pauses.append)
    assert len(pauses) == 2


def test_loopback_needs_no_proxy(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert deliver(serve(says(200)).url, DATA, pause=never) == ""


def test_messages_have_no_path_and_no_password() -> None:
    assert place_of("https://user:word@host:8443/services/SECRET?token=x") == "https://host:8443"
