# SPDX-License-Identifier: Apache-2.0
"""Tests of driving mksquashfs: one that cannot do it is found out before anything is fetched."""

from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.errors import LlmbError
from llmb_installer.images.build import choose_builder
from llmb_installer.images.settings import BuildSettings
from llmb_installer.images.squash import squash, squash_fault
from llmb_installer.images.tarheader import FILE, Attributes, header

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


def test_the_one_here_can_do_it(programs: None) -> None:
    assert squash_fault(BuildSettings()) is None
    assert choose_builder(BuildSettings()) == "stream"


def test_there_is_none(programs_are: Path_) -> None:
    programs_are()
    with pytest.raises(LlmbError, match="there is no mksquashfs here") as raised:
        choose_builder(BuildSettings())
    assert "squashfs-tools 4.5 or newer" in (raised.value.hint or "")


def test_one_that_is_too_old(programs_are: Path_) -> None:
    programs_are(mksquashfs="echo 'mksquashfs version 4.4 (2019/08/29)'")
    with pytest.raises(LlmbError, match=r"mksquashfs is 4\.4, which reads no tar stream"):
        choose_builder(BuildSettings(builder="stream"))


def test_enroot_takes_the_place_of_one_that_is_too_old(programs_are: Path_) -> None:
    programs_are(mksquashfs="echo 'mksquashfs version 4.4 (2019/08/29)'", enroot="exit 1")
    assert choose_builder(BuildSettings()) == "enroot"


def test_srun_is_asked_for(programs_are: Path_) -> None:
    programs_are(srun="exit 1")
    assert choose_builder(BuildSettings(via="srun")) == "enroot"


@pytest.mark.parametrize(("builder", "missing"), [("enroot", "enroot"), ("stream", "mksquashfs")])
def test_what_is_asked_for_is_not_replaced(programs_are: Path_, builder: str, missing: str) -> None:
    programs_are()
    with pytest.raises(LlmbError, match=f"there is no {missing} here"):
        choose_builder(BuildSettings(builder=builder))  # type: ignore[arg-type]  # parametrize gives text


def test_one_without_the_compression(programs_are: Path_) -> None:
    script = """
case $1 in
    -version) echo 'mksquashfs version 4.6.1 (2023/03/25)' ;;
    *) echo 'FATAL ERROR: Compressor "zstd" is not supported!' >&2; exit 1 ;;
esac"""
    programs_are(mksquashfs=script)
    with pytest.raises(LlmbError, match="cannot build with -comp zstd") as raised:
        choose_builder(BuildSettings())
    assert 'Compressor "zstd" is not supported!' in raised.value.message
    assert (raised.value.hint or "").startswith("set another compression: gzip is everywhere")
    with pytest.raises(LlmbError) as raised:
        choose_builder(BuildSettings(level=22))
    assert (raised.value.hint or "").startswith("set another level, or none; or set another compression")


def test_one_that_ends_early_says_why(tmp_path: Path, programs_are: Path_) -> None:
    programs_are(mksquashfs="echo 'FATAL ERROR: Write failed because No space left on device' >&2; exit 1")

    def endless(write: Callable[[bytes], None]) -> None:
        while True:
            write(bytes(1 << 20))

    log = tmp_path / "log"
    log.write_text("FATAL ERROR: of an earlier attempt\n")
    with pytest.raises(LlmbError, match=r"is full:\n  FATAL ERROR: Write failed") as raised:
        squash(tmp_path / "x", BuildSettings(), Attributes(), log, endless)
    assert "earlier" not in raised.value.message


def test_what_fails_while_it_is_fed_ends_it(tmp_path: Path, programs: None) -> None:
    class OddError(Exception):
        pass

    def broken(write: Callable[[bytes], None]) -> None:
        write(header(b"file", FILE, 5, Attributes()))
        raise OddError

    with pytest.raises(OddError):
        squash(tmp_path / "x", BuildSettings(), Attributes(), tmp_path / "log", broken)


def test_a_stream_that_stops_in_the_middle_fails(tmp_path: Path, programs: None) -> None:
    with pytest.raises(LlmbError, match="mksquashfs failed"):
        squash(
            tmp_path / "x",
            BuildSettings(),
            Attributes(),
            tmp_path / "log",
            lambda write: write(header(b"file", FILE, 5_000, Attributes()) + b"half"),
        )
