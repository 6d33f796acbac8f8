# SPDX-License-Identifier: Apache-2.0
"""Tests of the words that have a colour."""

import re

import pytest

from llmb.contract.state import ENDS, RUNNING
from llmb.core.colours import paint
from llmb.judge.value import INVALID, WORST

VERDICTS = {*WORST, INVALID}
SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("word", sorted({*ENDS, *VERDICTS, RUNNING}))
def test_each_verdict_and_end_has_a_colour(word: str) -> None:
    assert SEQUENCE.search(paint(f" 1  {word} (n=3)"))
    assert not SEQUENCE.search(paint(f"/runs/{word}/log-{word}.out MODE={word} {word.lower()}"))


@pytest.mark.parametrize("text", ["it Failed to open", "an ok run", "a note: this", "PASSED"])
def test_words_of_sentences_have_none(text: str) -> None:
    assert paint(text) == text
