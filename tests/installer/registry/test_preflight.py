# SPDX-License-Identifier: Apache-2.0
"""Many images at once: every fault of every one, told together."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from llmb.errors import PreflightError, UsageError, describe
from llmb_installer.registry import RegistrySettings, check_images, no_room
from llmb_installer.registry.room import size
from llmb_testing.sample_images import Made
from llmb_testing.scripted_registry import ScriptedRegistry, Status


def faults(wanted: list[tuple[str, str]], home: Path) -> list[str]:
    with pytest.raises(PreflightError) as caught:
        check_images(wanted, environ=os.environ, home=home, sleep=lambda _: None)
    assert caught.value.exit_code == 1
    assert all(fault.hint for fault in caught.value.faults)
    return [str(fault) for fault in caught.value.faults]


def test_the_order_is_that_of_the_question(scripted: ScriptedRegistry, made: Made, home: Path) -> None:
    names = [scripted.add(f"team/tool{number}", "1", made) for number in range(20)]
    found = check_images([(name, "amd64") for name in [*names, names[0]]], environ=os.environ, home=home)
    assert [str(checked.reference) for checked in found] == [*names, names[0]]
    assert len(scripted.asked("/team/tool0/manifests/")) == 1


def test_none_is_none(home: Path) -> None:
    assert check_images([], environ=os.environ, home=home) == []


def test_all_faults_together(scripted: ScriptedRegistry, made: Made, home: Path) -> None:
    fine = scripted.add("team/tool", "1", made)
    scripted.next("/team/locked/", Status(401, {"WWW-Authenticate": "Basic"}))
    host = scripted.host
    wanted = [
        (fine, "x86_64"),
        (f"{host}/team/tool:2", "x86_64"),
        (f"{host}/team/other:1", "x86_64"),
        (f"{host}/team/locked:1", "x86_64"),
        (fine, "aarch64"),
        ("not a reference", "x86_64"),
        ("127.0.0.1:1/one:1", "x86_64"),
        ("127.0.0.1:1/two:1", "x86_64"),
    ]
    assert faults(wanted, home) == [
        f"image: {host}/team/tool has no tag 2",
        f"image: {host} has no repository team/other",
        f"image: {host} wants credentials for team/locked, and none were found (needed for {host}/team/locked:1)",
        f"image: {fine} is not there for aarch64; it is for x86_64",
        "image: 'not a reference' is not the reference of an image",
        "image: 127.0.0.1:1 cannot be reached: the connection is refused"
        " (needed for 127.0.0.1:1/one:1, 127.0.0.1:1/two:1)",
    ]


def test_a_busy_registry(scripted: ScriptedRegistry, made: Made, home: Path) -> None:
    name = scripted.add("team/tool", "1", made)
    scripted.next("/manifests/", *[Status(503)] * 6)
    assert faults([(name, "amd64")], home) == [f"image: {scripted.host} has trouble of its own (HTTP 503) (6 attempts)"]


def test_a_long_pause_is_told(scripted: ScriptedRegistry, made: Made, home: Path) -> None:
    name, told = scripted.add("team/tool", "1", made), list[str]()
    scripted.next("/manifests/", Status(429, {"Retry-After": "60"}))
    check_images([(name, "amd64")], environ=os.environ, home=home, sleep=lambda _: None, say=told.append)
    assert told == [f"{scripted.host} asks for fewer requests (HTTP 429); asked again in 60 s"]


def test_a_tag_that_is_listed_and_not_given(scripted: ScriptedRegistry, made: Made, home: Path) -> None:
    """It is no misspelling of itself."""
    name = scripted.add("team/tool", "1", made)
    scripted.next("/manifests/", Status(404))
    (said,) = faults([(name, "amd64")], home)
    assert said == f"image: {scripted.host}/team/tool lists the tag 1, and its registry does not give it (HTTP 404)"


def test_a_bundle_that_is_not_there(home: Path, tmp_path: Path) -> None:
    settings = RegistrySettings(ca_bundle=tmp_path / "absent.pem")
    with pytest.raises(UsageError, match=r"ca_bundle: no certificates can be read from .*absent.pem: No such file"):
        check_images([("registry.example/a:1", "amd64")], environ=os.environ, home=home, settings=settings)


def test_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3_000_000_000))
    images, cache = tmp_path / "not" / "there", tmp_path
    assert no_room({images: 2_000_000_000, cache: 1_000_000_000}) == []
    [fault] = no_room({images: 2_000_000_000, cache: 1_500_000_000})
    assert str(fault) == f"disk: {images}, {cache}: 3.5 GB are needed, 3.0 GB are free"
    assert fault.hint
    assert no_room({}) == []


def test_room_here(tmp_path: Path) -> None:
    assert no_room({tmp_path: 1}) == []
    assert len(no_room({tmp_path: 10**18})) == 1


@pytest.mark.parametrize(("number", "text"), [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (2**31, "2.1 GB")])
def test_sizes(number: int, text: str) -> None:
    assert size(number) == text


def test_the_printed_page(scripted: ScriptedRegistry, home: Path) -> None:
    with pytest.raises(PreflightError) as caught:
        check_images([(f"{scripted.host}/a:1", "amd64")], environ=os.environ, home=home)
    assert describe(caught.value) == (
        f"error: image: {scripted.host} has no repository a\nhint: check the name's spelling"
    )


def test_what_a_mirror_lacks_is_told_of_the_mirror(scripted: ScriptedRegistry, made: Made, home: Path) -> None:
    """Not of the registry that was never asked."""
    scripted.add("hub/team/tool", "1.0", made)
    settings = RegistrySettings(registry_mirrors={"nvcr.io": f"{scripted.host}/hub"})
    wanted = [("nvcr.io/team/none:1.0", "amd64"), ("nvcr.io/team/tool:1.1", "amd64")]
    with pytest.raises(PreflightError) as caught:
        check_images(wanted, environ={}, home=home, settings=settings)
    instead = "registry_mirrors has it asked in place of nvcr.io"
    assert {(fault.message, fault.hint) for fault in caught.value.faults} == {
        (f"{scripted.host} has no repository hub/team/none", f"check the name's spelling; {instead}"),
        (f"{scripted.host}/hub/team/tool has no tag 1.1", f"did you mean '1.0'?; {instead}"),
    }
