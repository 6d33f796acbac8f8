# SPDX-License-Identifier: Apache-2.0
"""Many images at once: every fault of every image together."""

import os
from pathlib import Path
from typing import Any

import pytest

from llmb.core.units import bytes_in_words
from llmb.errors import PreflightError, UsageError, describe
from llmb_installer.images.adapter import check_images
from llmb_testing.sample_images import Made
from llmb_testing.scripted_registry import ScriptedRegistry, Status
from sqshpull.settings import RegistrySettings


def failed(wanted: list[tuple[str, str]], home: Path) -> PreflightError:
    with pytest.raises(PreflightError) as caught:
        check_images(wanted, environ=os.environ, home=home, sleep=lambda _: None)
    assert caught.value.exit_code == 1
    assert all(fault.hint and fault.place == "image" for fault in caught.value.faults)
    return caught.value


def test_the_order_is_kept(scripted: ScriptedRegistry, made: Made, home: Path) -> None:
    names = [scripted.add(f"team/tool{number}", "1", made) for number in range(20)]
    found = check_images(
        [(name, "amd64") for name in [*names, names[0]]], environ=os.environ, home=home
    )
    assert [str(checked.reference) for checked in found] == [*names, names[0]]
    assert len(scripted.asked("/team/tool0/manifests/")) == 1


def test_none_is_none(home: Path) -> None:
    assert check_images([], environ=os.environ, home=home) == []


def test_all_faults_together(
    scripted: ScriptedRegistry, made: Made, home: Path, wording: Any
) -> None:
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
    error = failed(wanted, home)
    assert [(fault.code, fault.key) for fault in error.faults] == [
        ("image-missing", f"{host}/team/tool:2"),
        ("image-missing", f"{host}/team/other:1"),
        ("credentials-missing", host),
        ("architecture-missing", fine),
        ("reference-invalid", ""),
        ("host-unreachable", "127.0.0.1:1"),
    ]
    names = {
        host: "registry.example",
        host.upper().replace(".", "_").replace(":", "_"): "REGISTRY_EXAMPLE",
    }
    wording("llmb-install image", describe(error), names)


def test_a_busy_registry(scripted: ScriptedRegistry, made: Made, home: Path) -> None:
    name = scripted.add("team/tool", "1", made)
    scripted.next("/manifests/", *[Status(503)] * 6)
    (fault,) = failed([(name, "amd64")], home).faults
    assert (fault.code, fault.key, fault.value) == ("host-busy", scripted.host, 503)


def test_a_long_pause_is_announced(scripted: ScriptedRegistry, made: Made, home: Path) -> None:
    name, lines = scripted.add("team/tool", "1", made), list[str]()
    scripted.next("/manifests/", Status(429, {"Retry-After": "60"}))
    check_images(
        [(name, "amd64")], environ=os.environ, home=home, sleep=lambda _: None, say=lines.append
    )
    assert [text.startswith(scripted.host) for text in lines] == [True]


def test_a_tag_that_is_listed_but_missing(
    scripted: ScriptedRegistry, made: Made, home: Path, wording: Any
) -> None:
    """It is not a misspelling of itself."""
    name = scripted.add("team/tool", "1", made)
    scripted.next("/manifests/", Status(404))
    error = failed([(name, "amd64")], home)
    assert [fault.code for fault in error.faults] == ["image-missing"]
    wording("llmb-install image", describe(error), {scripted.host: "registry.example"})


def test_a_missing_bundle(home: Path, tmp_path: Path, fails: Any) -> None:
    bundle = tmp_path / "absent.pem"
    with fails("certificates-unreadable") as caught:
        check_images(
            [("registry.example/a:1", "amd64")],
            environ=os.environ,
            home=home,
            settings=RegistrySettings(ca_bundle=bundle),
        )
    assert isinstance(caught.value, UsageError)
    assert (caught.value.key, caught.value.value) == ("ca_bundle", str(bundle))


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (2**31, "2.1 GB")]
)
def test_sizes(number: int, text: str) -> None:
    assert bytes_in_words(number) == text


def test_an_image_that_a_mirror_lacks(
    scripted: ScriptedRegistry, made: Made, home: Path, wording: Any
) -> None:
    """The error names the mirror, not the registry, which was never asked."""
    scripted.add("hub/team/tool", "1.0", made)
    settings = RegistrySettings(registry_mirrors={"nvcr.io": f"{scripted.host}/hub"})
    wanted = [("nvcr.io/team/none:1.0", "amd64"), ("nvcr.io/team/tool:1.1", "amd64")]
    with pytest.raises(PreflightError) as caught:
        check_images(wanted, environ={}, home=home, settings=settings)
    assert [fault.key for fault in caught.value.faults] == [
        f"{scripted.host}/hub/team/none:1.0",
        f"{scripted.host}/hub/team/tool:1.1",
    ]
    wording("llmb-install image", describe(caught.value), {scripted.host: "registry.example"})
