# SPDX-License-Identifier: Apache-2.0
"""Tests of the last question before an installation."""

import click
import pytest

from llmb_installer.applying.install import confirm


def test_a_no_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(click, "confirm", lambda *_, **__: False)
    with pytest.raises(click.exceptions.Exit) as ended:
        confirm("Continue?")
    assert ended.value.exit_code == 0
    assert capsys.readouterr().err == "Nothing was changed.\n"
