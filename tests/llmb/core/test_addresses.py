# SPDX-License-Identifier: Apache-2.0
"""Tests of the checks of addresses and names: RFC 1123 for hosts, sbatch's own characters for
names.
"""

import socket
import threading
from typing import Any

import pytest

from llmb.core.addresses import host_fault, name_fault, unresolved_fault, url_fault

EXAMPLE = "https://HOST/api"


@pytest.mark.parametrize(
    "text",
    [
        "https://host/api/v1", "https://runai.example.com:8443/api", "https://10.0.0.1/x", "https://[::1]:8080/x",
        "https://a-b.example.com.",
    ],
)  # fmt: skip
def test_urls(text: str) -> None:
    assert url_fault(text, EXAMPLE) is None


@pytest.mark.parametrize(
    "text",
    [
        "", "host", "http://host", "ftp://host", "https:/host", "https://", "https:///api", "https://ho st/",
        "https://ho_st/", "https://-host/", "https://host:port/", "https://host:70000/", "https://host:0/",
        "https://user:word@host/", "https://10.0.0.300/", "https://[::1/", "https://a..b/",
    ],
)  # fmt: skip
def test_what_is_no_url(text: str) -> None:
    assert url_fault(text, EXAMPLE)


def test_other_schemes() -> None:
    assert url_fault("http://host", EXAMPLE, schemes=("https", "http")) is None


@pytest.mark.parametrize("text", ["localhost", "a.b.c", "1a", "10.1.2.3", "x" * 63])
def test_hosts(text: str) -> None:
    assert host_fault(text) is None


@pytest.mark.parametrize(
    "text", ["", "a b", "a_b", "-a", "a-", "a..b", ".", "1.2.3", "1.2.3.4.5", "x" * 64, "ä.de"]
)
def test_what_is_no_host(text: str) -> None:
    assert host_fault(text)


@pytest.mark.parametrize("text", ["batch", "gpu-long", "a_b.c", "team@x", "h100:8", "1"])
def test_names(text: str) -> None:
    assert name_fault(text, "a partition") is None


@pytest.mark.parametrize("text", ["", " ", "a b", "-a", "a,b", "a;b", "$USER", "a'b", "ä", "a\tb"])
def test_what_is_no_name(text: str) -> None:
    assert name_fault(text, "a partition")


def test_several_names() -> None:
    assert name_fault("a,b", "a partition", several=True) is None


def test_a_path_is_no_name() -> None:
    fault = "/lustre/me is a path: write the name of a partition"
    assert name_fault("/lustre/me", "a partition") == fault


def test_a_host_that_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(host: str, _port: None) -> list[Any]:
        if host == "nowhere.invalid":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return []

    monkeypatch.setattr(socket, "getaddrinfo", find)
    url, proxy = "https://nowhere.invalid/api/v1", {"HTTPS_PROXY": "http://proxy"}
    fault = "the host nowhere.invalid is not found (Name or service not known): check its name"
    assert unresolved_fault(url, {}) == fault
    assert unresolved_fault(url, proxy) is None, "the proxy finds hosts"
    assert unresolved_fault("https://localhost/api/v1", {}) is None
    assert unresolved_fault("work:/work:claim", {}) is None


def test_a_name_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: answered.wait(60))
    assert unresolved_fault("https://host/api", {}, within=0.01) is None
    answered.set()
