# SPDX-License-Identifier: Apache-2.0
"""Servers that answer oddly, to llmb's HTTP client and to the one of the hub: an error with the
server's name, and no traceback.
"""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest.mock import Mock

import httpx
import pytest

from llmb.contract.needs import HubAsset
from llmb.core import http
from llmb.core.backoff import AskAgain
from llmb.errors import LlmbError
from llmb_installer.execution.runner import Runner
from llmb_installer.hub import Hub
from llmb_installer.step import BuildContext

pytestmark = pytest.mark.fault("odd-servers")


@dataclass
class Odd:
    """A server whose every answer is the same."""

    url: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def answers(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        self.status, self.headers, self.body = status, dict(headers), body


@pytest.fixture
def odd() -> Iterator[Odd]:
    answer = Odd()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(answer.status)
            length = {"Content-Length": str(len(answer.body))}
            for name, value in {**length, **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(answer.body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        answer.url = f"http://127.0.0.1:{server.server_port}"
        yield answer
        server.shutdown()


GZIP = {"Content-Encoding": "gzip"}
ODD: dict[str, tuple[int, Mapping[str, str], bytes]] = {
    "wrong gzip": (200, GZIP, b"this is no gzip"),
    "wrong gzip of a busy host": (503, GZIP, b"this is no gzip"),
    "a redirect without a place": (302, {}, b""),
    "a redirect to itself": (302, {"Location": "/again"}, b""),
    "a redirect to no address": (302, {"Location": "http://[::1"}, b""),
    "a redirect to another protocol": (302, {"Location": "ftp://127.0.0.1/x"}, b""),
    "a length that is no number": (503, {"Content-Length": "many"}, b""),
}


@pytest.mark.parametrize("name", ODD)
def test_the_client_of_llmb_says_which_server(name: str, odd: Odd) -> None:
    odd.answers(*ODD[name])
    client = http.make_client(headers={}, environ={})
    client.follow_redirects = True
    request = client.build_request("GET", f"{odd.url}/x")

    def ask() -> None:
        try:
            response = http.send(client, request, is_known=False)
            with http.raises(response.url, is_known=True):
                response.read()
        except AskAgain as again:
            raise again.fault from again

    with client, pytest.raises(LlmbError) as raised:
        ask()
    assert "127.0.0.1" in raised.value.message


@pytest.fixture
def hub(odd: Odd, tmp_path: Path) -> Iterator[Hub]:
    context = BuildContext(
        install=tmp_path,
        environ={"HF_ENDPOINT": odd.url},
        home=tmp_path,
        log=tmp_path / "log",
        progress=Mock(),
        runner=Runner(),
    )
    with Hub(HubAsset(repository="a/b", files=("f",)), context) as made:
        yield made


@pytest.mark.parametrize("size", ["many", "-5", "1e9", "9" * 5000, "0x10"])
def test_a_size_that_is_no_number(size: str, odd: Odd, hub: Hub) -> None:
    odd.answers(200, {"X-Linked-Size": size, "X-Repo-Commit": "c"})
    with pytest.raises(LlmbError) as raised:
        hub.look("f")
    assert odd.url in raised.value.message


@pytest.mark.parametrize("name", ["a redirect without a place", "a redirect to itself"])
def test_redirects_of_the_hub(name: str, odd: Odd, hub: Hub) -> None:
    odd.answers(*ODD[name])
    with pytest.raises(LlmbError) as raised:
        hub.look("f")
    assert (raised.value.code, raised.value.key) == ("host-unusable", odd.url[7:])


def test_an_answer_that_is_longer_than_its_size(odd: Odd, hub: Hub, tmp_path: Path) -> None:
    odd.answers(200, {"X-Linked-Size": "3", "X-Repo-Commit": "c"}, b"much longer")
    with pytest.raises(LlmbError, match="longer than 3 bytes"):
        hub.fetch(hub.look("f"), tmp_path / "f")


@pytest.mark.parametrize("place", ["http://hub.invalid", "redirect"])
def test_no_hub_without_tls_off_this_machine(place: str, odd: Odd, hub: Hub) -> None:
    if place == "redirect":
        odd.answers(302, {"Location": "http://hub.invalid/f"})
    else:
        hub.endpoint = place
    with pytest.raises(LlmbError) as raised:
        hub.look("f")
    assert raised.value.code == "address-invalid"
    assert "hub.invalid has no TLS" in raised.value.message


def test_the_address_of_a_client_is_kept() -> None:
    """The check of TLS is by the host alone, with a port or without."""
    assert http.is_loopback(httpx.URL("http://127.0.0.1:99/x").netloc.decode())
    assert http.is_loopback(httpx.URL("http://[::1]:99/x").netloc.decode())
    assert not http.is_loopback(httpx.URL("http://localhost.site.org/x").netloc.decode())
