# SPDX-License-Identifier: Apache-2.0
"""What stands between us and a registry: names, ports, TLS, proxies; each failure in its own words."""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from llmb.errors import UsageError
from llmb_installer.registry import ImageFaultError, Reference, RegistrySettings, check_image, transport
from llmb_installer.registry.endpoint import Place, may_be_plain, place_of
from llmb_testing.real_registry import Access, RealRegistry
from llmb_testing.sample_images import Made
from llmb_testing.scripted_registry import Cut, ScriptedRegistry, Status

NAME = "registry.example"
INSECURE = RegistrySettings(insecure_registries=(NAME,))


@pytest.fixture
def lead(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """Lets the name registry.example lead to a host:port here, or nowhere."""
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
def deaf_port() -> Iterator[int]:
    """A port of this machine that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def fault(reference: str, home: Path, settings: RegistrySettings | None = None) -> ImageFaultError:
    with pytest.raises(ImageFaultError) as caught:
        check_image(reference, "amd64", environ=os.environ, home=home, settings=settings, sleep=lambda _: None)
    return caught.value


def test_a_name_that_is_not_known(lead: Callable[[str | None], None], home: Path) -> None:
    lead(None)
    found = fault(f"{NAME}/tool:1", home)
    assert (found.kind, str(found)) == ("unreachable", f"{NAME} cannot be reached: its name is not known here (DNS)")


def test_a_port_that_nobody_listens_on(deaf_port: int, home: Path) -> None:
    found = fault(f"127.0.0.1:{deaf_port}/tool:1", home)
    assert found.kind == "unreachable"
    assert str(found) == f"127.0.0.1:{deaf_port} cannot be reached: the connection is refused"


def test_a_registry_without_tls_must_be_named(
    real: Callable[[Access], RealRegistry], lead: Callable[[str | None], None], home: Path
) -> None:
    lead(real("open").host)
    found = fault(f"{NAME}/team/tool:docker", home)
    assert str(found).startswith(f"{NAME} cannot be reached: TLS fails: ")
    assert found.hint == "a registry without TLS must be in insecure_registries"
    check_image(f"{NAME}/team/tool:docker", "amd64", environ={}, home=home, settings=INSECURE)


def test_a_registry_that_is_named_insecure_may_speak_tls(
    real: Callable[[Access], RealRegistry], lead: Callable[[str | None], None], home: Path
) -> None:
    lead(real("token").host)
    found = fault(f"{NAME}/public/tool:docker", home, INSECURE)
    assert "its certificate is not trusted (TLS)" in str(found)


def test_a_redirect_that_leaves_tls_is_not_followed(
    real: Callable[[Access], RealRegistry], made: Made, home: Path
) -> None:
    known = real("token")
    with ScriptedRegistry(certificate=known.certificate) as registry:
        name = registry.add("team/tool", "1", made)
        registry.next("/manifests/", Status(307, {"Location": "http://elsewhere.example/x"}))
        found = fault(name, home, known.settings)
    assert str(found) == f"{registry.host} redirects to elsewhere.example without TLS"


def test_http_goes_by_the_proxy_of_the_environment(
    scripted: ScriptedRegistry, made: Made, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://{scripted.host}")
    scripted.add("team/tool", "1", made)
    check_image(f"{NAME}/team/tool:1", "amd64", environ={}, home=home, settings=INSECURE)
    assert {request.headers["host"] for request in scripted.requests} == {NAME}


def test_a_proxy_that_refuses(deaf_port: int, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:hidden@127.0.0.1:{deaf_port}")
    found = fault(f"{NAME}/team/tool:1", home)
    by = f"{NAME} cannot be reached by the proxy 127.0.0.1:{deaf_port}: the connection is refused"
    assert str(found) == by
    assert "HTTPS_PROXY" in (found.hint or "")


@pytest.mark.parametrize(
    ("proxy", "said"),
    [
        ("http://me:hidden@proxy.example", "proxy.example:80"),
        ("https://proxy.example/", "proxy.example:443"),
        ("proxy.example:3128", "proxy.example:3128"),
    ],
)
def test_a_proxy_is_named_with_its_port(monkeypatch: pytest.MonkeyPatch, proxy: str, said: str) -> None:
    """Docker Hub is named as its users know it, with the host that was asked."""
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    url = httpx.URL("https://registry-1.docker.io/v2/")
    found = transport.in_words(httpx.ConnectTimeout("late"), url)
    named = "docker.io (registry-1.docker.io) cannot be reached"
    assert str(found) == f"{named} by the proxy {said}: it does not answer in time"
    monkeypatch.setenv("NO_PROXY", "registry-1.docker.io")
    assert str(transport.in_words(httpx.ConnectTimeout("late"), url)) == f"{named}: it does not answer in time"


def test_the_proxy_of_the_own_scheme_counts(deaf_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry without TLS is asked through another proxy than one with it."""
    monkeypatch.setenv("HTTPS_PROXY", "http://other.example:1")
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{deaf_port}")
    found = transport.in_words(httpx.ConnectError("no"), httpx.URL(f"http://{NAME}/v2/"))
    assert f"by the proxy 127.0.0.1:{deaf_port}" in str(found)


def test_a_proxy_that_says_no(scripted: ScriptedRegistry, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://{scripted.host}")
    found = fault(f"{NAME}/team/tool:1", home)
    assert str(found).startswith(f"{NAME} cannot be reached by the proxy {scripted.host}: ")


def test_a_proxy_is_not_asked_for_loopback(
    scripted: ScriptedRegistry, made: Made, deaf_port: int, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{deaf_port}")
    check_image(scripted.add("team/tool", "1", made), "amd64", environ={}, home=home)


def test_a_proxy_that_cannot_be_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "gopher://proxy.example:70")
    with pytest.raises(UsageError, match=r"the proxy of the environment cannot be used: .*gopher"):
        check_image(f"{NAME}/tool:1", "amd64", environ={}, home=home)


def test_an_answer_that_is_cut_is_asked_for_again(
    scripted: ScriptedRegistry, made: Made, client: Any, slept: list[float]
) -> None:
    reference = Reference.parse(scripted.add("team/tool", "1", made))
    scripted.next("/manifests/", Cut(20), Status(429, {"Retry-After": "3"}))
    assert client(scripted.host).manifest(reference, "amd64").digest == made.digest
    assert 3.0 < sum(slept) <= 4.0


def test_a_flood_in_place_of_a_manifest(scripted: ScriptedRegistry, made: Made, home: Path) -> None:
    name = scripted.add("team/tool", "1", made)
    scripted.next("/manifests/", Status(200, {}, bytes(17 << 20)))
    assert str(fault(name, home)) == f"{scripted.host} sends far too much"


def test_an_odd_answer(scripted: ScriptedRegistry, made: Made, home: Path) -> None:
    name = scripted.add("team/tool", "1", made)
    scripted.next("/manifests/", Status(418))
    assert str(fault(name, home)) == f"{scripted.host} answers HTTP 418 for {name}"


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
def test_who_may_speak_without_tls(host: str, plain: bool) -> None:
    settings = RegistrySettings(insecure_registries=("named.example", "port.example:81"))
    assert may_be_plain(host, settings) is plain


def test_places() -> None:
    mirrors = {"nvcr.io": "https://mirror.example:5000/ngc/", "ghcr.io": "mirror.example"}
    settings = RegistrySettings(registry_mirrors=mirrors)
    assert place_of("docker.io", settings) == Place(registry="docker.io", host="registry-1.docker.io")
    assert place_of("quay.io", settings) == Place(registry="quay.io", host="quay.io")
    assert place_of("ghcr.io", settings) == Place(registry="mirror.example", host="mirror.example")
    assert place_of("nvcr.io", settings) == Place(
        registry="mirror.example:5000", host="mirror.example:5000", prefix="ngc/"
    )
