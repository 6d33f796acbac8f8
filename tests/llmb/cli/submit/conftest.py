# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the commands that submit."""

import pytest

from llmb.cli import app
from llmb.errors import LlmbError, describe


@pytest.fixture
def codes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The codes of the errors that commands within this process end with."""
    found: list[str] = []

    def described(error: LlmbError) -> str:
        found.append(error.code)
        return describe(error)

    monkeypatch.setattr(app, "describe", described)
    return found
