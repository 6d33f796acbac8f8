# SPDX-License-Identifier: Apache-2.0
"""Tests of the message while llmb waits for an interrupted submission."""

import re
from collections.abc import Callable

import pytest

from llmb.cli.submit.announce import _announce_wait


@pytest.mark.parametrize(
    ("seconds", "lasts"),
    [(0.0, []), (0.4, []), (0.99, []), (1.0, ["1"]), (90.0, ["90"])],
)
def test_how_long_is_waited(
    seconds: float,
    lasts: list[str],
    capsys: pytest.CaptureFixture[str],
    wording: Callable[..., None],
) -> None:
    _announce_wait(seconds)
    printed = capsys.readouterr().err
    assert re.findall(r"\d+", printed) == lasts
    wording("submit-all", printed)
