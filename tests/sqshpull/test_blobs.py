# SPDX-License-Identifier: Apache-2.0
"""Blobs: complete and checked, whatever the registry and the network do."""

import resource
import threading
from pathlib import Path
from typing import Any

import pytest

from llmb_testing.sample_images import Layer, Made, SampleImage, make
from llmb_testing.scripted_registry import Cut, Fault, Hang, Longer, ScriptedRegistry, Status, Wrong
from sqshpull.errors import PullError, PullStoppedError
from sqshpull.http import ATTEMPTS, PROGRESS
from sqshpull.manifests import Blob
from sqshpull.registry import Registry

SIZE = 300_000
CONTENT = bytes(range(250)) * (SIZE // 250)
BLOBS = "/blobs/sha256:"


@pytest.fixture
def large() -> Made:
    """An image of one layer with CONTENT."""
    return make(SampleImage(layers=(Layer(tar=CONTENT, compression="none"),)))


class Fetching:
    """One blob of a faulty registry, a client that does not sleep, and the progress that it
    reported.
    """

    def __init__(
        self, scripted: ScriptedRegistry, registry: Registry, made: Made, path: Path
    ) -> None:
        scripted.add("team/tool", "1", made)
        layer = made.layers[-1]
        self.blob = Blob(media_type="", digest=layer["digest"], size=layer["size"])
        self.scripted, self.registry, self.path = scripted, registry, path
        self.gained: list[int] = []

    def run(self, **keywords: Any) -> None:
        self.registry.fetch_blob("team/tool", self.blob, self.path, self.gained.append, **keywords)

    @property
    def part(self) -> Path:
        return self.path.with_name(f"{self.path.name}.part")

    @property
    def ranges(self) -> list[str | None]:
        """The Range header of each request for the blob."""
        return [request.headers.get("range") for request in self.scripted.asked(BLOBS)]

    def must_be_complete(self) -> None:
        assert self.path.read_bytes() == CONTENT
        assert not self.part.exists()
        assert sum(self.gained) == SIZE


@pytest.fixture
def fetching(scripted: ScriptedRegistry, client: Any, large: Made, tmp_path: Path) -> Fetching:
    """A download of CONTENT."""
    return Fetching(scripted, client(scripted.host), large, tmp_path / "cache" / "blob")


def test_whole(fetching: Fetching) -> None:
    fetching.run()
    fetching.must_be_complete()


def test_an_empty_blob(scripted: ScriptedRegistry, client: Any, tmp_path: Path) -> None:
    empty = make(SampleImage(layers=(Layer(tar=b"", compression="none"),)))
    fetching = Fetching(scripted, client(scripted.host), empty, tmp_path / "blob")
    fetching.run()
    assert fetching.path.read_bytes() == b""


def test_existing_content_is_not_fetched_again(fetching: Fetching) -> None:
    fetching.run()
    fetching.run()
    assert fetching.ranges == [None]
    assert sum(fetching.gained) == 2 * SIZE


@pytest.mark.parametrize("there", [CONTENT[:-1], bytes(SIZE), CONTENT + b"x"])
def test_existing_content_is_checked(fetching: Fetching, there: bytes) -> None:
    fetching.path.parent.mkdir()
    fetching.path.write_bytes(there)
    fetching.run()
    fetching.must_be_complete()


@pytest.mark.parametrize("heeded", [True, False])
def test_a_cut_download_is_continued(fetching: Fetching, slept: list[float], heeded: bool) -> None:
    fetching.scripted.ranges = heeded
    fetching.scripted.next(BLOBS, Cut(100_000), Cut(50_000 if heeded else 150_000))
    fetching.run()
    fetching.must_be_complete()
    assert fetching.ranges == [None, "bytes=100000-", "bytes=150000-"]
    assert len(slept) >= 2


@pytest.mark.parametrize("heeded", [True, False])
def test_an_earlier_part_is_continued(fetching: Fetching, heeded: bool) -> None:
    fetching.scripted.ranges = heeded
    fetching.path.parent.mkdir()
    fetching.part.write_bytes(CONTENT[:200_000])
    fetching.run()
    fetching.must_be_complete()
    assert fetching.ranges == ["bytes=200000-"]


@pytest.mark.parametrize(
    "odd", [Status(416), Status(206, {"Content-Range": "bytes 200000-299999/300000"}), Status(206)]
)
def test_an_odd_answer_to_range_restarts(fetching: Fetching, odd: Status) -> None:
    fetching.scripted.next(BLOBS, Cut(100_000), odd)
    fetching.run()
    fetching.must_be_complete()
    assert fetching.ranges == [None, "bytes=100000-", None]


def test_a_full_disk_keeps_the_part(fetching: Fetching, fails: Any) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
    try:
        with fails("file-unwritable") as caught:
            fetching.run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.key == str(fetching.path)
    assert fetching.part.read_bytes() == CONTENT[:200_000]
    fetching.run()
    assert fetching.path.read_bytes() == CONTENT
    assert fetching.ranges == [None, "bytes=200000-"]


@pytest.mark.parametrize("there", [bytes(200_000), bytes(SIZE), CONTENT + b"x"])
def test_a_wrong_part_is_discarded(fetching: Fetching, there: bytes) -> None:
    fetching.path.parent.mkdir()
    fetching.part.write_bytes(there)
    fetching.run()
    fetching.must_be_complete()


def test_a_whole_part_needs_no_request(fetching: Fetching) -> None:
    fetching.path.parent.mkdir()
    fetching.part.write_bytes(CONTENT)
    fetching.run()
    fetching.must_be_complete()
    assert fetching.ranges == []


@pytest.mark.parametrize("code", [429, 503])
def test_a_busy_registry_says_when(fetching: Fetching, slept: list[float], code: int) -> None:
    fetching.scripted.next(
        BLOBS, Status(code, {"Retry-After": "17"}), Status(code, {"Retry-After": "0"})
    )
    fetching.run()
    fetching.must_be_complete()
    assert sum(slept) == 17.0


def test_pauses_of_our_own_grow(fetching: Fetching, slept: list[float]) -> None:
    fetching.scripted.next(BLOBS, *[Status(500)] * (ATTEMPTS - 1))
    fetching.run()
    fetching.must_be_complete()
    assert 31 / 2 <= sum(slept) <= 31


def test_attempts_end(fetching: Fetching, fails: Any) -> None:
    fetching.scripted.next(BLOBS, *[Status(502)] * ATTEMPTS)
    with fails("host-busy", fetching.scripted.host) as caught:
        fetching.run()
    assert (caught.value.key, caught.value.value) == (fetching.scripted.host, 502)
    assert len(fetching.ranges) == ATTEMPTS


def test_a_pause_that_is_too_long(fetching: Fetching, slept: list[float], fails: Any) -> None:
    fetching.scripted.next(BLOBS, Status(429, {"Retry-After": "21600"}))
    with fails("host-busy", fetching.scripted.host):
        fetching.run()
    assert slept == []


def test_cuts_without_gain_end_and_the_part_stays(fetching: Fetching) -> None:
    fetching.scripted.next(BLOBS, Cut(100_000), *[Cut(0)] * ATTEMPTS)
    with pytest.raises(PullError) as caught:
        fetching.run()
    assert (caught.value.code, caught.value.value) == ("host-unreachable", "cut")
    assert fetching.part.read_bytes() == CONTENT[:100_000]
    fetching.run()
    assert fetching.path.read_bytes() == CONTENT


def test_cuts_with_gain_may_be_many(
    scripted: ScriptedRegistry, client: Any, tmp_path: Path
) -> None:
    content = bytes(PROGRESS * 10)
    made = make(SampleImage(layers=(Layer(tar=content, compression="none"),)))
    fetching = Fetching(scripted, client(scripted.host), made, tmp_path / "blob")
    scripted.next(BLOBS, *[Cut(PROGRESS)] * (ATTEMPTS + 3))
    fetching.run()
    assert fetching.path.read_bytes() == content


@pytest.mark.parametrize("fault", [Wrong(), Longer()])
def test_wrong_content_is_fetched_again(fetching: Fetching, fault: Fault) -> None:
    fetching.scripted.next(BLOBS, fault)
    fetching.run()
    fetching.must_be_complete()


@pytest.mark.parametrize("fault", [Wrong(), Longer()])
def test_content_that_stays_wrong(fetching: Fetching, fault: Fault, fails: Any) -> None:
    fetching.scripted.next(BLOBS, *[fault] * ATTEMPTS)
    with fails("image-damaged", fetching.scripted.host) as caught:
        fetching.run()
    assert caught.value.key == fetching.blob.digest
    assert not fetching.path.exists()


def test_a_silent_registry_is_asked_again(
    scripted: ScriptedRegistry, client: Any, large: Made, tmp_path: Path
) -> None:
    fetching = Fetching(scripted, client(scripted.host, read_seconds=1.0), large, tmp_path / "blob")
    released = threading.Event()
    scripted.next(BLOBS, Hang(100_000, released))
    fetching.run()
    released.set()
    fetching.must_be_complete()
    assert len(fetching.ranges) > 1


def test_a_missing_blob(fetching: Fetching, fails: Any) -> None:
    fetching.scripted.next(BLOBS, Status(404))
    with fails("image-missing", "127.0.0.1") as caught:
        fetching.run()
    assert caught.value.key == fetching.blob.digest


def test_a_redirect_to_another_host_gets_no_credentials(
    fetching: Fetching, large: Made, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetching.scripted.passwords = {"me": "good"}
    name = fetching.scripted.host.replace(".", "_").replace(":", "_")
    monkeypatch.setenv(f"REGISTRY_{name}_USER", "me")
    monkeypatch.setenv(f"REGISTRY_{name}_PASSWORD", "good")
    with ScriptedRegistry() as store:
        store.add("any", "1", large)
        to = {"Location": f"http://{store.host}/v2/any/blobs/{fetching.blob.digest}?signature=x"}
        fetching.scripted.next(
            BLOBS, Status(401, {"WWW-Authenticate": "Basic"}), *[Status(307, to)] * 2
        )
        store.next(BLOBS, Cut(100_000))
        fetching.run()
        fetching.must_be_complete()
        assert [request.headers.get("authorization") for request in store.requests] == [None, None]
        assert [request.headers.get("range") for request in store.requests] == [
            None,
            "bytes=100000-",
        ]
    assert "authorization" in fetching.scripted.asked(BLOBS)[1].headers


def test_redirects_without_end(fetching: Fetching, fails: Any) -> None:
    to = {"Location": f"http://{fetching.scripted.host}/v2/any{BLOBS}x"}
    fetching.scripted.next(BLOBS, *[Status(307, to)] * 20)
    with fails("registry-unusable", fetching.scripted.host):
        fetching.run()


def test_a_token_that_expires_between(fetching: Fetching, monkeypatch: pytest.MonkeyPatch) -> None:
    fetching.scripted.passwords, fetching.scripted.bearer = {"me": "good"}, True
    name = fetching.scripted.host.replace(".", "_").replace(":", "_")
    monkeypatch.setenv(f"REGISTRY_{name}_USER", "me")
    monkeypatch.setenv(f"REGISTRY_{name}_PASSWORD", "good")
    fetching.scripted.next(
        BLOBS,
        Status(401, {"WWW-Authenticate": f'Bearer realm="http://{fetching.scripted.host}/token"'}),
    )
    fetching.scripted.next(BLOBS, Cut(100_000))
    fetching.registry._sleep = lambda _: fetching.scripted.revoke_tokens()
    fetching.run()
    fetching.must_be_complete()
    assert len(fetching.scripted.asked("/token")) == 2


def test_stopping_keeps_the_part(fetching: Fetching) -> None:
    asked = iter([False, False])
    with pytest.raises(PullStoppedError):
        fetching.run(stop=lambda: next(asked, True))
    had = fetching.part.read_bytes()
    assert 0 < len(had) < SIZE
    assert CONTENT.startswith(had)
    fetching.run()
    assert fetching.path.read_bytes() == CONTENT


def test_a_folder_that_cannot_be_written(fetching: Fetching, fails: Any) -> None:
    fetching.path.parent.write_text("a file in its place")
    with fails("file-unwritable"):
        fetching.run()


def test_stopping_within_a_pause(fetching: Fetching, slept: list[float]) -> None:
    fetching.scripted.next(BLOBS, Status(429, {"Retry-After": "200"}))
    with pytest.raises(PullStoppedError):
        fetching.run(stop=lambda: len(slept) == 3)
    assert len(slept) == 3


def test_a_long_pause_is_announced(
    scripted: ScriptedRegistry, client: Any, large: Made, tmp_path: Path, wording: Any
) -> None:
    lines: list[str] = []
    fetching = Fetching(scripted, client(scripted.host, say=lines.append), large, tmp_path / "blob")
    scripted.next(BLOBS, Status(503, {"Retry-After": "1"}), Status(429, {"Retry-After": "60"}))
    fetching.run()
    (announced,) = lines
    wording("sqshpull", announced, {scripted.host: "registry.example"})
