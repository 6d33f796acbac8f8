# SPDX-License-Identifier: Apache-2.0
"""What is between us and a registry: names, ports, TLS, proxies; each failure has its own
reason.
"""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from llmb_testing.real_registry import Access, RealRegistry
from llmb_testing.sample_images import Made
from llmb_testing.scripted_registry import Cut, ScriptedRegistry, Status
from sqshpull import http
from sqshpull.errors import PullError, PullInputError
from sqshpull.reference import (
    Endpoint,
    ImageReference,
    allows_plain_http,
    endpoint_of,
    shown_host,
)
from sqshpull.registry import look_up
from sqshpull.settings import PullUser, RegistrySettings

NAME = "registry.example"
INSECURE = RegistrySettings(insecure_registries=(NAME,))


@pytest.fixture
def lead(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """Makes the name registry.example resolve to a host:port here, or not at all."""
    real = socket.getaddrinfo

    def to(target: str | None) -> None:
        def look_up(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
            if host not in (NAME, NAME.encode()):
                return real(host, port, *rest, **more)
            if target is None:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            address, _, number = target.partition(":")
            return real(address, int(number), *rest, **more)

        monkeypatch.setattr(socket, "getaddrinfo", look_up)

    return to


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of this machine on which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def fault(home: Path, fails: Any) -> Callable[..., PullError]:
    """The error of checking an image, its code and text compared; the hosts are hidden in the
    text.
    """

    def check(
        code: str, reference: str, *hosts: str, settings: RegistrySettings | None = None
    ) -> PullError:
        with fails(code, *hosts) as caught:
            look_up(
                reference,
                "amd64",
                user=PullUser(environ=os.environ, home=home),
                settings=settings,
                sleep=lambda _: None,
            )
        found: PullError = caught.value
        return found

    return check


def test_an_unknown_name(lead: Callable[[str | None], None], fault: Any) -> None:
    lead(None)
    assert fault("host-unreachable", f"{NAME}/tool:1").value == "dns"


def test_a_closed_port(closed_port: int, fault: Any) -> None:
    host = f"127.0.0.1:{closed_port}"
    found = fault("host-unreachable", f"{host}/tool:1", host)
    assert (found.key, found.value) == (host, "refused")


def test_a_registry_without_tls_must_be_named(
    real: Callable[[Access], RealRegistry], lead: Callable[[str | None], None], home: Path
) -> None:
    lead(real("open").host)
    with pytest.raises(PullError) as caught:
        look_up(f"{NAME}/team/tool:docker", "amd64", user=PullUser(environ={}, home=home))
    assert (caught.value.code, caught.value.key, caught.value.value) == (
        "host-unreachable",
        NAME,
        "tls",
    )
    assert "--insecure" in str(caught.value.hint)
    look_up(
        f"{NAME}/team/tool:docker", "amd64", user=PullUser(environ={}, home=home), settings=INSECURE
    )


def test_a_registry_that_is_named_insecure_may_speak_tls(
    real: Callable[[Access], RealRegistry], lead: Callable[[str | None], None], home: Path
) -> None:
    lead(real("token").host)
    with pytest.raises(PullError) as caught:
        look_up(
            f"{NAME}/public/tool:docker",
            "amd64",
            user=PullUser(environ={}, home=home),
            settings=INSECURE,
        )
    assert (caught.value.code, caught.value.value) == ("host-unreachable", "certificate")


def test_a_redirect_that_leaves_tls_is_not_followed(
    real: Callable[[Access], RealRegistry], made: Made, fault: Any
) -> None:
    known = real("token")
    with ScriptedRegistry(certificate=known.certificate) as registry:
        name = registry.add("team/tool", "1", made)
        registry.next("/manifests/", Status(307, {"Location": "http://elsewhere.example/x"}))
        assert (
            fault("registry-unusable", name, registry.host, settings=known.settings).key
            == registry.host
        )


def test_http_goes_by_the_proxy_of_the_environment(
    scripted: ScriptedRegistry, made: Made, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://{scripted.host}")
    scripted.add("team/tool", "1", made)
    look_up(f"{NAME}/team/tool:1", "amd64", user=PullUser(environ={}, home=home), settings=INSECURE)
    assert {request.headers["host"] for request in scripted.requests} == {NAME}


def test_a_proxy_that_refuses(
    closed_port: int, fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy is named without its password."""
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:hidden@127.0.0.1:{closed_port}")
    found = fault("host-unreachable", f"{NAME}/team/tool:1", f"127.0.0.1:{closed_port}")
    assert (found.key, found.value) == (NAME, "refused")
    assert f"proxy 127.0.0.1:{closed_port}" in found.message


@pytest.mark.parametrize(
    ("proxy", "shown"),
    [
        ("http://me:hidden@proxy.example", "proxy.example:80"),
        ("https://proxy.example/", "proxy.example:443"),
        ("proxy.example:3128", "proxy.example:3128"),
    ],
)
def test_a_proxy_is_named_with_its_port(
    monkeypatch: pytest.MonkeyPatch, proxy: str, shown: str
) -> None:
    """Docker Hub is named by its usual name, with the host that was asked."""
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    url = httpx.URL("https://registry-1.docker.io/v2/")
    found = http.unreachable(httpx.ConnectTimeout("late"), url, shown_host(url.host))
    assert found.key == "docker.io (registry-1.docker.io)"
    assert f"proxy {shown}:" in found.message
    monkeypatch.setenv("NO_PROXY", "registry-1.docker.io")
    assert "proxy" not in http.unreachable(httpx.ConnectTimeout("late"), url, "x").message


def test_each_scheme_has_its_proxy(closed_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry without TLS is asked through another proxy than one with it."""
    monkeypatch.setenv("HTTPS_PROXY", "http://other.example:1")
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{closed_port}")
    found = http.unreachable(httpx.ConnectError("no"), httpx.URL(f"http://{NAME}/v2/"), NAME)
    assert f"proxy 127.0.0.1:{closed_port}:" in found.message


def test_a_proxy_that_denies(
    scripted: ScriptedRegistry, fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://{scripted.host}")
    found = fault("host-unreachable", f"{NAME}/team/tool:1", scripted.host)
    assert (found.key, found.value) == (NAME, "other")
    assert f"proxy {scripted.host}" in found.message


def test_a_proxy_is_not_asked_for_loopback(
    scripted: ScriptedRegistry,
    made: Made,
    closed_port: int,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port}")
    look_up(scripted.add("team/tool", "1", made), "amd64", user=PullUser(environ={}, home=home))


def test_an_unsupported_proxy(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "gopher://proxy.example:70")
    with pytest.raises(PullInputError) as caught:
        look_up(f"{NAME}/tool:1", "amd64", user=PullUser(environ={}, home=home))
    assert caught.value.code == "proxy-invalid"
    assert "gopher" in caught.value.message


def test_a_cut_answer_is_asked_for_again(
    scripted: ScriptedRegistry, made: Made, client: Any, slept: list[float]
) -> None:
    reference = ImageReference.parse(scripted.add("team/tool", "1", made))
    scripted.next("/manifests/", Cut(20), Status(429, {"Retry-After": "3"}))
    assert client(scripted.host).manifest(reference, "amd64").digest == made.digest
    assert 3.0 < sum(slept) <= 4.0


def test_a_flood_instead_of_a_manifest(scripted: ScriptedRegistry, made: Made, fault: Any) -> None:
    name = scripted.add("team/tool", "1", made)
    scripted.next("/manifests/", Status(200, {}, bytes(17 << 20)))
    assert fault("answer-damaged", name, scripted.host).key == scripted.host


def test_an_odd_answer(scripted: ScriptedRegistry, made: Made, fault: Any) -> None:
    name = scripted.add("team/tool", "1", made)
    scripted.next("/manifests/", Status(418))
    assert fault("registry-unusable", name, scripted.host).key == scripted.host


@pytest.mark.parametrize(
    ("host", "plain"),
    [
        ("localhost", True),
        ("localhost:5000", True),
        ("127.0.0.1:5000", True),
        ("127.9.9.9", True),
        ("[::1]:5000", True),
        ("[::1]", True),
        ("10.0.0.1", False),
        ("nvcr.io", False),
        ("localhost.example", False),
        ("named.example", True),
        ("named.example:80", True),
        ("port.example:81", True),
        ("port.example:82", False),
        ("port.example", False),
    ],
)
def test_hosts_without_tls(host: str, plain: bool) -> None:
    settings = RegistrySettings(insecure_registries=("named.example", "port.example:81"))
    assert allows_plain_http(host, settings) is plain


def test_endpoints() -> None:
    mirrors = {"nvcr.io": "https://mirror.example:5000/ngc/", "ghcr.io": "mirror.example"}
    settings = RegistrySettings(registry_mirrors=mirrors)
    assert endpoint_of("docker.io", settings) == Endpoint(
        registry="docker.io", host="registry-1.docker.io"
    )
    assert endpoint_of("quay.io", settings) == Endpoint(registry="quay.io", host="quay.io")
    assert endpoint_of("ghcr.io", settings) == Endpoint(
        registry="mirror.example", host="mirror.example"
    )
    assert endpoint_of("nvcr.io", settings) == Endpoint(
        registry="mirror.example:5000", host="mirror.example:5000", prefix="ngc/"
    )
