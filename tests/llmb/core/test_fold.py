# SPDX-License-Identifier: Apache-2.0
"""Tests of folding: nothing is lost, no line is longer than the terminal, no word is broken that
fits.
"""

from hypothesis import given, strategies

from llmb.core.fold import fold

WORDS = strategies.lists(
    strategies.text(alphabet="abc.-/", min_size=1, max_size=12), min_size=1, max_size=30
)


@given(
    words=WORDS,
    width=strategies.integers(min_value=20, max_value=200),
    indent=strategies.sampled_from(["", "    "]),
)
def test_every_word_stays(words: list[str], width: int, indent: str) -> None:
    folded = fold(" ".join(words), width, indent)
    assert folded.split() == words
    assert all(len(line) <= width for line in folded.splitlines())


def test_a_long_word_is_broken_and_not_cut() -> None:
    word = "/" + "x" * 50
    assert fold(word, 20).replace("\n", "") == word


def test_lines_stay_lines_and_columns_stay_aligned() -> None:
    assert fold("a   b\n\n  c", 20) == "a   b\n\n  c"
