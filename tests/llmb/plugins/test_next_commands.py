# SPDX-License-Identifier: Apache-2.0
"""The commands that `plugins new` prints, typed as they are: with an install directory and without."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.check.scaffold import BRIDGE, YAML

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def type_commands(tmp_path: Path) -> Callable[..., list[str]]:
    """Types the printed lines that do not fetch anything, in a folder. Returns the commands."""

    def type_lines(printed: str, cwd: Path = tmp_path) -> list[str]:
        commands = [line.partition(":")[2].strip() for line in printed.splitlines()]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        for command in commands:
            done = subprocess.run(
                ["bash", "-c", command],
                capture_output=True,
                text=True,
                check=False,
                cwd=cwd,
                env={**os.environ, "PATH": path},
            )
            assert done.returncode == 0, f"{command}\n{done.stderr}"
        return commands

    return type_lines


def test_the_printed_commands_make_an_installation_and_preview_a_job(
    llmb_run: Command, type_commands: Callable[..., list[str]], tmp_path: Path
) -> None:
    printed = llmb_run("plugins", "new", "sums", "my folder", "--kind", YAML).stderr
    commands = type_commands(printed)
    assert len(commands) == 4
    assert (tmp_path / "bench/benchmarks/my folder/benchmark.yaml").is_file()
    done = llmb_run("submit", "-w", "sums", "--scale", 1, "--wait", "--install", "bench")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", [YAML, BRIDGE])
def test_the_printed_commands_name_the_install_directory_here(
    kind: str,
    llmb_run: Command,
    type_commands: Callable[..., list[str]],
    cluster: Callable[..., Path],
) -> None:
    folder = cluster("slurm", "h100") if kind == BRIDGE else cluster("local", "cpu")
    printed = llmb_run("plugins", "new", "sums", "--kind", kind, cwd=folder).stderr
    assert "--install" not in printed
    # `llmb-install add` fetches the image
    lines = [line for line in printed.splitlines() if kind == YAML or "add sums" not in line]
    type_commands("\n".join(lines), folder)
    assert (folder / "benchmarks/sums/benchmark.yaml").is_file()
