# SPDX-License-Identifier: Apache-2.0
"""Test of Ctrl-C while plugins are still being loaded: as short an end as in a command, and no traceback."""

from __future__ import annotations

from typing import NoReturn

import pytest

from llmb import cli
from llmb.cli import app


def test_ctrl_c_before_a_command_has_begun(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "load", interrupted)
    with pytest.raises(SystemExit) as left:
        cli.main(["list"])
    assert (left.value.code, capsys.readouterr().err) == (130, "interrupted\n")
