# SPDX-License-Identifier: Apache-2.0
"""Tests that what is shown of a log cannot move a terminal's cursor."""

from hypothesis import given, strategies as st

from llmb.core.scan import plain, strip_escapes


def test_escapes_go_and_the_text_stays() -> None:
    assert (
        strip_escapes(b"\x1b[1;31merror\x1b[0m: \x1b]0;title\x07no \x1b[2Kspace")
        == b"error: no space"
    )


def test_one_line_of_text() -> None:
    assert plain(b"a\tb\r\nc\x00\x1b d\xff").split(" ") == ["a", "b", "c", "d�"]
    assert plain("a\x1b[31mb\u202ec\ud800") == "ab c?"


def test_long_text_is_cut() -> None:
    assert plain("x" * 20, 10) == "xxxxxxx..."


@given(st.binary() | st.text())
def test_nothing_but_printable_characters_comes_out(data: bytes | str) -> None:
    text = plain(data)
    assert text.isprintable()
    assert len(text) <= 300
