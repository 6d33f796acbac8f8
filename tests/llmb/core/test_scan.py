# SPDX-License-Identifier: Apache-2.0
"""Tests that text is found once, wherever the chunks that are read happen to end."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given, strategies as st

from llmb.core import scan
from llmb.core.scan import (
    AHEAD,
    CHUNK,
    REACH,
    Block,
    Hit,
    Needle,
    hits_in,
    needle,
    open_log,
    read_blocks,
)

NEEDLES = (needle(b"ab"), needle(b"xyzxyzw"), needle(b"c"))


def find_all(stream: BinaryIO, needles: Sequence[Needle], start: int = 0) -> list[Hit]:
    return [hit for block in read_blocks(stream, start) for hit in hits_in(block, needles)]


def found(path: Path, start: int = 0) -> list[tuple[int, bytes]]:
    with path.open("rb", buffering=0) as stream:
        return [(hit.offset, hit.text) for hit in find_all(stream, NEEDLES, start)]


@pytest.mark.parametrize("shift", range(9))
def test_text_across_the_end_of_a_chunk_is_found_once(tmp_path: Path, shift: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"-" * (CHUNK - shift) + b"xyzxyzw-ab-c" + b"-" * CHUNK)
    at = CHUNK - shift
    assert found(path) == [(at, b"xyzxyzw"), (at + 8, b"ab"), (at + 11, b"c")]


def test_only_the_stretch_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"ab--ab--ab--ab")
    assert found(path, 5) == [(8, b"ab"), (12, b"ab")]
    assert found(path, 99) == []


@given(
    st.lists(
        st.sampled_from([*(needle.text for needle in NEEDLES), b"x", b"\n", b"-"]), max_size=60
    ).map(b"".join),
    st.integers(1, 9),
)
def test_any_size_of_chunk_finds_the_same(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, size: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "log"
    path.write_bytes(content)
    whole = found(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "CHUNK", size)
        assert found(path) == whole


def only_block(path: Path) -> Block:
    with open_log(path) as stream:
        return next(read_blocks(stream))


def test_the_line_around_a_place(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\rtwo three\r\nfour")
    block = only_block(path)
    line = block.line(8)
    assert (line.before, line.after, line.cut) == (b"two ", b"three", False)
    assert block.line(17).cut
    assert block.behind(16) == b"our"


def test_a_chunk_without_a_mark_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"Global Checkpoint Save : 1s\nGlobal Checkpoint Save : 1.5s\n")
    with open_log(path) as stream:
        assert [
            hit.offset for hit in find_all(stream, [needle("Global Checkpoint Save", b".")])
        ] == [0, 28]
    path.write_bytes(b"Global Checkpoint Save : 1s\n")
    with open_log(path) as stream:
        assert not list(find_all(stream, [needle("Global Checkpoint Save", b".")]))


def test_the_mark_may_be_in_the_next_chunk(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for shift in (1, 5, 30, 60):
        path.write_bytes(
            b"-" * (REACH + CHUNK - shift) + b"Save" + b"x" * 40 + b"1.5s\n" + b"-" * AHEAD
        )
        with open_log(path) as stream:
            assert len(list(find_all(stream, [Needle(b"Save", b".")]))) == 1


@pytest.mark.parametrize("text", ["train_step_timing in s", "`Trainer.fit` stopped", "x", "eee"])
def test_the_marks_are_all_bytes_of_the_text_the_rarest_first(text: str) -> None:
    marks = needle(text).marks
    assert sorted(marks) == sorted(set(text.encode()))
    assert needle("a.b", b"+").marks[:2] == b".+"


def test_a_packed_log_is_unpacked_whatever_its_name(tmp_path: Path) -> None:
    content = b"-" * CHUNK + b"ab" + b"-" * CHUNK
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(content))
    with open_log(path) as stream:
        assert [hit.offset for hit in find_all(stream, NEEDLES)] == [CHUNK]


@pytest.mark.parametrize("end", [3, 12, 20, -9, -1])
def test_a_packed_log_that_is_cut_off(tmp_path: Path, end: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(b"ab" + b"-" * 100)[:end])
    with open_log(path) as stream:
        # Of the last two, the text is complete.
        assert [hit.offset for hit in find_all(stream, NEEDLES)] in (
            [[0]] if end < 0 else [[], [0]]
        )


def test_a_packed_log_that_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "log"
    packed = bytearray(gzip.compress(b"ab" * 5000))
    for place in range(0, len(packed), 3):
        damaged = packed.copy()
        damaged[place] ^= 0x5A
        path.write_bytes(damaged)
        with open_log(path) as stream:
            assert len(list(find_all(stream, NEEDLES))) <= 100_000
