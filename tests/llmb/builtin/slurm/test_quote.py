# SPDX-License-Identifier: Apache-2.0
"""Tests of quoting: bash itself reads every word back."""

import subprocess

import pytest
from hypothesis import given, settings, strategies as st

from llmb.builtin.slurm.sbatch_options import directive, path_pattern
from llmb.errors import UsageError
from llmb.kit.bashscript import bash

VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)


@given(st.lists(VALUES, min_size=1, max_size=20), st.booleans())
@settings(max_examples=40)
def test_bash_reads_back_what_was_quoted(values: list[str], always: bool) -> None:
    words = [bash(value, always=always) for value in values]
    assert not any("\r" in word for word in words)  # sbatch refuses such a script
    program = "printf '%s\\0' " + " ".join(words)
    done = subprocess.run(
        ["bash", "-c", program], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert done.stdout.decode().split("\0")[:-1] == values


def test_a_nul_is_refused() -> None:
    with pytest.raises(UsageError) as raised:
        bash("a\0b")
    assert raised.value.code == "nul-character"


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("/a/b-1.2_c:d,e=f[1-4]", "/a/b-1.2_c:d,e=f[1-4]"),
        ("a b", '"a b"'),
        ('say "x"', '"say \\"x\\""'),
        ("back\\slash", '"back\\\\slash"'),
        ("größe", '"größe"'),
        ("it's", '"it\'s"'),
    ],
)
def test_a_directive(text: str, quoted: str) -> None:
    assert directive(text) == quoted


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\x01"])
def test_a_directive_is_one_line(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        directive(text)
    assert (raised.value.code, raised.value.value) == ("control-character", text)


def test_patterns_are_not_expanded() -> None:
    assert path_pattern("/a/%j/50%") == "/a/%%j/50%%"
