# SPDX-License-Identifier: Apache-2.0
"""Tests of colours and links in a terminal, and of their absence elsewhere."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest

from llmb_testing.invented_runs import InventedRuns as Night

RUN = str(Path(sys.executable).with_name("llmb-run"))
Command = Callable[..., "subprocess.CompletedProcess[str]"]
GREEN, RED, CYAN = "\x1b[32m", "\x1b[31m", "\x1b[36m"
SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")
PATH = os.environ["PATH"]


@pytest.fixture
def judged_night(empty_night: Night) -> Night:
    empty_night.measured(2.66, "nemotron4_15b", "bf16", 16)
    empty_night.measured(3.2, "nemotron4_15b", "bf16", 64)
    return empty_night


@pytest.fixture
def terminal(judged_night: Night, tmp_path: Path) -> Callable[..., str]:
    """Run llmb-run in a terminal of 200 columns and return what it prints."""

    def run(*words: str, **variables: str) -> str:
        environ = {"PATH": PATH, "HOME": str(tmp_path), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        child = pexpect.spawn(
            RUN,
            [*words, "--install", str(judged_night.folder)],
            encoding="utf-8",
            env={**environ, **variables},
            cwd=str(tmp_path),
            dimensions=(50, 200),
            timeout=120,
        )
        text = str(child.read())
        child.close()
        return text.replace("\r\n", "\n")

    return run


def test_verdicts_and_messages_have_colours_in_a_terminal(terminal: Callable[..., str]) -> None:
    text = terminal("results")
    assert f"{GREEN}PASS\x1b[0m" in text
    assert f"{RED}\x1b[1mFAIL\x1b[0m" in text
    assert f"{CYAN}hint:\x1b[0m" in terminal("reslts")


def test_colours_change_no_column(terminal: Callable[..., str]) -> None:
    assert SEQUENCE.sub("", terminal("results")) == terminal("results", NO_COLOR="1")


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_are_turned_off(variables: dict[str, str], terminal: Callable[..., str]) -> None:
    text = terminal("results", **variables)
    assert "FAIL" in text
    assert "\x1b[" not in text


def test_a_pipe_has_colours_only_if_they_are_forced(
    judged_night: Night, llmb_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("results", "--install", judged_night.folder)
    plain = llmb_here(*words)
    assert "\x1b" not in plain.stdout + plain.stderr
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert SEQUENCE.sub("", llmb_here(*words).stdout) == plain.stdout
    assert f"{GREEN}PASS" in llmb_here(*words).stdout
    for fmt in ("json", "csv", "md"):
        assert "\x1b" not in llmb_here(*words, "--format", fmt).stdout
    json.loads(llmb_here(*words, "--format", "json").stdout)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in llmb_here(*words).stdout


def test_a_file_that_was_written_is_a_link(terminal: Callable[..., str], tmp_path: Path) -> None:
    text = terminal("report", "-o", "night.html")
    target = (tmp_path / "night.html").as_uri()
    assert f"\x1b]8;;{target}\x1b\\night.html\x1b]8;;\x1b\\: 2 runs" in text
    assert (tmp_path / "night.html").exists()
    assert "\x1b" not in (tmp_path / "night.html").read_text("utf-8")
    assert "]8;;" not in terminal("report", "-o", "night.html", TERM="linux")
