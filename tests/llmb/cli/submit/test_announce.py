# SPDX-License-Identifier: Apache-2.0
"""Tests of the message while llmb waits for an interrupted submission."""

import pytest

from llmb.cli.submit.announce import _announce_wait


@pytest.mark.parametrize(
    ("seconds", "lasts"),
    [(0.0, "a moment"), (0.4, "a moment"), (0.99, "a moment"), (1.0, "1 s or more"), (90.0, "90 s or more")],
)
def test_how_long_is_waited(seconds: float, lasts: str, capsys: pytest.CaptureFixture[str]) -> None:
    _announce_wait(seconds)
    assert capsys.readouterr().err == f"waiting {lasts}: an interrupted submission may still arrive\n"
