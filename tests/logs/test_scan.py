# SPDX-License-Identifier: Apache-2.0
"""Tests that text is found once, wherever the chunks that are read happen to end."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmb.logs import scan
from llmb.logs.scan import CHUNK, find_all, line_at

NEEDLES = (b"ab", b"xyzxyzw", b"c")


def found(path: Path, start: int = 0, stop: int | None = None) -> list[tuple[int, bytes]]:
    with path.open("rb", buffering=0) as stream:
        return list(find_all(stream, NEEDLES, start, stop))


@pytest.mark.parametrize("shift", range(9))
def test_text_across_the_end_of_a_chunk_is_found_once(tmp_path: Path, shift: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"-" * (CHUNK - shift) + b"xyzxyzw-ab-c" + b"-" * CHUNK)
    at = CHUNK - shift
    assert found(path) == [(at, b"xyzxyzw"), (at + 8, b"ab"), (at + 11, b"c")]


def test_only_the_stretch_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"ab--ab--ab--ab")
    assert found(path, 4, 10) == [(4, b"ab"), (8, b"ab")]
    assert found(path, 5) == [(8, b"ab"), (12, b"ab")]
    assert found(path, 99) == []


@given(st.lists(st.sampled_from([*NEEDLES, b"x", b"\n", b"-"]), max_size=60).map(b"".join), st.integers(1, 9))
def test_any_size_of_chunk_finds_the_same(tmp_path_factory: pytest.TempPathFactory, content: bytes, size: int) -> None:
    path = tmp_path_factory.getbasetemp() / "log"
    path.write_bytes(content)
    whole = found(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "CHUNK", size)
        assert found(path) == whole


def test_the_line_around_a_place(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\rtwo three\r\nfour")
    with path.open("rb", buffering=0) as stream:
        line = line_at(stream, 8)
        assert (line.before, line.after, line.cut) == (b"two ", b"three", False)
        assert line_at(stream, 17).cut
