# SPDX-License-Identifier: Apache-2.0
"""Tests that a format of `llmb-run export` is answered with the command that writes it."""

import shlex
import subprocess
from collections.abc import Callable

import pytest

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("results --format openmetrics", "export openmetrics"),
        ("results abc --format=ctrf --node n7", "export ctrf abc --node n7"),
        ("results --format github --full-names", "export github"),
        ("jobs --format prometheus", "export openmetrics"),
        ("results abc --format grafana", "export dashboard"),
        ("openmetrics", "export openmetrics"),
    ],
)
def test_a_format_of_export_is_answered_with_its_command(
    line: str, command: str, llmb_here: Command
) -> None:
    done = llmb_here(*shlex.split(line))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"hint: write: llmb-run {command}"


def test_a_misspelt_format_has_the_nearest_one(llmb_here: Command) -> None:
    done = llmb_here("results", "--format", "csvx")
    assert done.stderr.splitlines()[-1] == "hint: did you mean 'csv'?  llmb-run results --help"
