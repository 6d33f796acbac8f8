# SPDX-License-Identifier: Apache-2.0
"""Tests of what is said while a submission that was cut off is waited for."""

import pytest

from llmb.cli.submit.announce import _tell_settle


@pytest.mark.parametrize(
    ("seconds", "lasts"),
    [(0.0, "a moment"), (0.4, "a moment"), (0.99, "a moment"), (1.0, "1 s or more"), (90.0, "90 s or more")],
)
def test_how_long_is_waited(seconds: float, lasts: str, capsys: pytest.CaptureFixture[str]) -> None:
    _tell_settle(seconds)
    assert capsys.readouterr().err == f"waiting {lasts}: a submission that was cut off may still arrive\n"
