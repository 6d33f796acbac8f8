# SPDX-License-Identifier: Apache-2.0
"""Tests of running mksquashfs: an unsuitable one is detected before anything is fetched."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sqshpull.build import choose_builder
from sqshpull.errors import PullError
from sqshpull.settings import PullSettings
from sqshpull.squashfs import require_space, squash_fault, squashing
from sqshpull.tar import FILE, Attributes, header

Path_ = Callable[..., None]


@pytest.fixture
def programs_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path_:
    """Makes these scripts the only programs on PATH, but for the shell's own."""

    def put(**scripts: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        for name, text in scripts.items():
            (folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))

    return put


def test_the_installed_one_is_suitable(programs: None) -> None:
    assert squash_fault(PullSettings()) is None
    assert choose_builder(PullSettings()) == "stream"


def test_none(programs_are: Path_, fails: Any) -> None:
    programs_are()
    with fails("program-missing") as caught:
        choose_builder(PullSettings())
    assert caught.value.key == "mksquashfs"


def test_an_old_one(programs_are: Path_, fails: Any) -> None:
    programs_are(mksquashfs="echo 'mksquashfs version 4.4 (2019/08/29)'")
    with fails("program-outdated") as caught:
        choose_builder(PullSettings(builder="stream"))
    assert (caught.value.key, caught.value.value) == ("mksquashfs", "4.4")


def test_enroot_replaces_an_old_one(programs_are: Path_) -> None:
    programs_are(mksquashfs="echo 'mksquashfs version 4.4 (2019/08/29)'", enroot="exit 1")
    assert choose_builder(PullSettings()) == "enroot"


def test_srun_means_enroot(programs_are: Path_) -> None:
    programs_are(srun="exit 1")
    assert choose_builder(PullSettings(via="srun")) == "enroot"


@pytest.mark.parametrize(("builder", "missing"), [("enroot", "enroot"), ("stream", "mksquashfs")])
def test_an_explicit_builder_is_not_replaced(
    programs_are: Path_, builder: str, missing: str
) -> None:
    programs_are()
    with pytest.raises(PullError) as caught:
        choose_builder(PullSettings(builder=builder))  # type: ignore[arg-type]  # parametrize gives text
    assert (caught.value.code, caught.value.key) == ("program-missing", missing)


def test_an_unsupported_compression(programs_are: Path_, fails: Any) -> None:
    script = """
case $1 in
    -version) echo 'mksquashfs version 4.6.1 (2023/03/25)' ;;
    *) echo 'FATAL ERROR: Compressor "zstd" is not supported!' >&2; exit 1 ;;
esac"""
    programs_are(mksquashfs=script)
    for settings in (PullSettings(), PullSettings(level=22)):
        with fails("compression-unsupported") as caught:
            choose_builder(settings)
        assert caught.value.key == "zstd"
        assert "FATAL ERROR: Compressor" in caught.value.message, "what mksquashfs prints"


def test_an_early_end_is_explained(tmp_path: Path, programs_are: Path_, fails: Any) -> None:
    programs_are(
        mksquashfs="echo 'FATAL ERROR: Write failed because No space left on device' >&2; exit 1"
    )

    log = tmp_path / "log"
    log.write_text("FATAL ERROR: of an earlier attempt\n")
    with (
        fails("disk-full") as caught,
        squashing(tmp_path / "x", PullSettings(), Attributes(), log) as write,
    ):
        while True:
            write(bytes(1 << 20))
    assert "earlier" not in caught.value.message


def test_a_failing_writer_ends_it(tmp_path: Path, programs: None) -> None:
    class OddError(Exception):
        pass

    def fail(write: Callable[[bytes], None]) -> None:
        write(header(b"file", FILE, 5, Attributes()))
        raise OddError

    with (
        pytest.raises(OddError),
        squashing(tmp_path / "x", PullSettings(), Attributes(), tmp_path / "log") as write,
    ):
        fail(write)


def test_an_incomplete_stream_fails(tmp_path: Path, programs: None) -> None:
    log = tmp_path / "log"
    with (
        pytest.raises(PullError) as caught,
        squashing(tmp_path / "x", PullSettings(), Attributes(), log) as write,
    ):
        write(header(b"file", FILE, 5_000, Attributes()) + b"half")
    assert (caught.value.code, caught.value.key) == ("program-failed", "mksquashfs")


def test_the_space_of_all_folders_on_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3_000_000_000))
    images, cache = tmp_path / "not" / "there", tmp_path
    require_space({images: 2_000_000_000, cache: 1_000_000_000})
    with pytest.raises(PullError) as caught:
        require_space({images: 2_000_000_000, cache: 1_500_000_000})
    assert (caught.value.code, caught.value.value) == ("disk-full", 3_500_000_000)
    assert f"{images}, {cache}: " in caught.value.message


def test_the_space_here(tmp_path: Path) -> None:
    require_space({tmp_path: 1})
    with pytest.raises(PullError):
        require_space({tmp_path: 10**18})
