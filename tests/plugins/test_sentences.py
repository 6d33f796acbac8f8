# SPDX-License-Identifier: Apache-2.0
"""Tests that the sentences of plugins' commands wrap in a terminal, and that pipes get one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(sys.executable).with_name("llmb-run")
CONFIG = "schema_version: 2\ncluster_type: local\ngpu_type: cpu\n"
WIDTH = 40


@pytest.fixture
def environ(home: Path) -> dict[str, str]:
    (home / "cluster_config.yaml").write_text(CONFIG)
    return {"PATH": os.environ["PATH"], "HOME": str(home), "COLUMNS": str(WIDTH)}


def on_terminal(environ: dict[str, str], *argv: str | Path) -> list[str]:
    """Return the lines of standard error of a program, which is a terminal there."""
    controller, terminal = os.openpty()
    program = subprocess.Popen(
        argv, cwd=environ["HOME"], env=environ, stdout=subprocess.DEVNULL, stderr=terminal
    )
    os.close(terminal)
    pieces = []
    try:
        while piece := os.read(controller, 4096):
            pieces.append(piece)
    except OSError:  # Linux reports EIO when the last writer closes a terminal
        pass
    finally:
        os.close(controller)
    assert program.wait(60) == 0
    return b"".join(pieces).decode().splitlines()


def test_sentences_of_plugins_wrap_on_a_terminal(environ: dict[str, str]) -> None:
    lines = on_terminal(environ, RUN, "nodes", "suspects", "--install", environ["HOME"])
    assert len(lines) > 1
    assert max(map(len, lines)) <= WIDTH
    piped = subprocess.run(
        [RUN, "nodes", "suspects", "--install", environ["HOME"]],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert piped.stderr.splitlines() == [" ".join(lines)]


def test_notes_are_indented_and_their_commands_stay_whole(environ: dict[str, str]) -> None:
    note = "note: n7: its clock is low, so ask it now: llmb-run nodes check --nodelist n7 --quick"
    program = f"from llmb import api; api.say({note!r})"
    lines = on_terminal(environ, sys.executable, "-c", program)
    assert lines == [
        "note: n7: its clock is low, so ask it",
        "      now:",
        "      llmb-run nodes check --nodelist n7 --quick",
    ]
