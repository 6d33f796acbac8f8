# SPDX-License-Identifier: Apache-2.0
"""Tests of `llmb-run docs`."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest

pytestmark = pytest.mark.skipif(
    shutil.which("less") is None, reason="no less: apt-get install less"
)


@pytest.fixture
def shown(llmb_program: str, tmp_path: Path) -> Callable[..., str]:
    """Show a page in a terminal whose pager is less, and return what the terminal gets."""

    def show(**variables: str | None) -> str:
        environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "TERM": "xterm", **variables}
        child = pexpect.spawn(
            llmb_program,
            ["docs", "alternatives"],
            encoding="utf-8",
            env={name: text for name, text in environ.items() if text is not None},
            dimensions=(1000, 80),  # the page fits: with F, less ends by itself
            timeout=60,
        )
        child.expect([pexpect.EOF, r"\(END\)"])
        text = str(child.before)
        child.close(force=True)
        return text

    return show


def test_less_shows_styles_as_styles(shown: Callable[..., str]) -> None:
    text = shown()
    assert "\x1b[1m" in text
    assert "ESC" not in text


def test_the_options_of_the_user_for_less_are_kept(shown: Callable[..., str]) -> None:
    assert "ESC" in shown(LESS="-X")
