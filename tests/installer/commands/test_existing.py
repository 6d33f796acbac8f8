# SPDX-License-Identifier: Apache-2.0
"""Tests of commands on an install directory without steps, and on one whose answers cannot be
detected.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb_installer.record import answers_path

Install = Callable[..., "subprocess.CompletedProcess[str]"]
SLURM = {"container": "none", "gpu": {"gres": 8}}


def test_an_installation_without_steps(
    run_install: Install, cluster: Callable[..., Path], wording: Callable[..., None]
) -> None:
    """A configuration that was written by hand: status, verify and remove agree that nothing was
    installed.
    """
    folder = cluster("local", "cpu", workloads={"installed": []})
    status = run_install("status", "--install", folder)
    assert status.returncode == 0
    wording("llmb-install status", status.stdout + status.stderr)
    verified = run_install("verify", "--install", folder)
    assert (verified.returncode, verified.stderr) == (0, "")
    wording("llmb-install verify", verified.stdout)
    removed = run_install("remove", "nemotron4", "--yes", "--install", folder)
    assert removed.returncode == 2
    wording("llmb-install remove", removed.stderr)
    assert (
        json.loads(run_install("status", "--install", folder, "--format", "json").stdout)["steps"]
        == []
    )


def test_remove_without_workloads_repeats_the_folder(
    run_install: Install, wording: Callable[..., None]
) -> None:
    done = run_install("remove", "--install", "some folder")
    assert done.returncode == 2
    wording("llmb-install remove", done.stderr)


def test_a_folder_that_does_not_exist(
    run_install: Install, tmp_path: Path, wording: Callable[..., None]
) -> None:
    done = run_install("status", "--install", tmp_path / "gone")
    assert done.returncode == 2
    wording("llmb-install status", done.stderr)


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "by hand"])
def test_add_names_the_command_that_sets_an_undetected_architecture(
    run_install: Install,
    cluster: Callable[..., Path],
    tmp_path: Path,
    recorded: bool,
    wording: Callable[..., None],
) -> None:
    """Slurm is not on PATH. The hint works; what is still missing there is Python 3.12, which is
    not on PATH either.
    """
    folder, path = cluster("slurm", "h100", slurm=SLURM), str(tmp_path)
    if recorded:
        answers_path(folder).parent.mkdir()
        answers_path(folder).write_text(
            f"cluster_type: slurm\ninstall: {folder}\ngpu_type: h100\nslurm:"
            f" {json.dumps(SLURM)}\nworkloads: []\n"
        )
    done = run_install("add", "nemotron4", "--yes", "--install", folder, PATH=path)
    assert (done.returncode, done.stdout) == (2, "")
    wording("llmb-install add", done.stderr)
    if recorded:
        fixed = run_install(
            "--set", "node_architecture=x86_64", "--install", folder, "--yes", PATH=path
        )
        assert fixed.returncode == 0, fixed.stderr
    else:
        config = folder / "cluster_config.yaml"
        config.write_text(f"{config.read_text()}install: {{node_architecture: x86_64}}\n")
    again = run_install("add", "nemotron4", "--dry-run", "--install", folder, PATH=path)
    assert again.returncode in (0, 1), again.stderr
    assert "node_architecture" not in again.stderr
