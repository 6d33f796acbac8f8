# SPDX-License-Identifier: Apache-2.0
"""Tests of secrets: which names are, and where their values come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmb import secrets
from llmb.errors import LlmbError


@pytest.fixture
def kept(home: Path) -> Path:
    """The user's file of secrets."""
    path = home / ".config/llmb/secrets"
    path.parent.mkdir(parents=True)
    path.write_text("# mine\nHF_TOKEN=from the file\n\nexport NGC_API_KEY='quoted'\nEMPTY_KEY=\n")
    path.chmod(0o600)
    return path


def test_the_environment_comes_before_the_file(kept: Path) -> None:
    names = ("HF_TOKEN", "NGC_API_KEY", "EMPTY_KEY", "OTHER_KEY")
    assert secrets.find(names, {}) == {"HF_TOKEN": "from the file", "NGC_API_KEY": "quoted"}
    assert secrets.find(names, {"HF_TOKEN": "exported", "MORE": "x"})["HF_TOKEN"] == "exported"


def test_only_what_is_asked_for_is_read(kept: Path) -> None:
    kept.chmod(0o644)
    assert secrets.find((), {}) == {}
    assert secrets.find(("HF_TOKEN",), {"HF_TOKEN": "x"}) == {"HF_TOKEN": "x"}
    with pytest.raises(LlmbError, match="others can read") as raised:
        secrets.find(("HF_TOKEN",), {})
    assert raised.value.hint == f"chmod 600 {kept}"


def test_without_a_file_there_are_none(home: Path) -> None:
    assert secrets.find(("HF_TOKEN",), {}) == {}


def test_a_line_that_is_no_secret_is_named_without_its_text(kept: Path) -> None:
    kept.write_text("HF_TOKEN=x\nhf_abcdef\n")
    with pytest.raises(LlmbError, match="secrets:2 is not of the form NAME=value") as raised:
        secrets.find(("OTHER_KEY",), {})
    assert "abcdef" not in raised.value.message
