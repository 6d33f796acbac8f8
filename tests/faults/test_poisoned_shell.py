# SPDX-License-Identifier: Apache-2.0
"""Tests of a caller's shell whose PYTHONPATH is for other programs, as the modules of a site set it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.fault("poisoned-shell")

# Modules that llmb uses, its own and Python's: in the folder each one raises.
MODULES = (
    *("click", "dataclasses", "httpx", "jinja2", "json", "msgspec", "packaging", "pluggy"),
    *("psutil", "rich", "shlex", "subprocess", "tempfile", "typing_extensions", "yaml"),
)


@pytest.fixture
def poison(tmp_path: Path) -> dict[str, str]:
    """The variables of such a shell."""
    folder = tmp_path / "poison"
    folder.mkdir()
    for name in MODULES:
        (folder / f"{name}.py").write_text(f"raise ImportError('{name} is of another Python')\n")
    return {"PYTHONPATH": str(folder)}


@pytest.fixture
def local_install(cluster: Callable[..., Path], torchless_venv: Path) -> Path:
    """An install directory for this machine whose jobs log steps and train nothing."""
    environments = {"pretrain_nemotron4": {"venv_path": str(torchless_venv)}}
    workloads = {"installed": ["pretrain_nemotron4"], "config": environments}
    return cluster("local", "cpu", workloads=workloads)


@pytest.mark.parametrize(
    "words", ["list", "config", "jobs list", "docs jobs", "plugins list", "--help"]
)
def test_a_command_uses_its_own_modules(
    llmb_program: str, local_install: Path, poison: dict[str, str], words: str
) -> None:
    environ = {**os.environ, "LLMB_INSTALL": str(local_install), "PYTHONPATH": poison["PYTHONPATH"]}
    done = subprocess.run(
        [llmb_program, *words.split()], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_a_plugin_in_the_path_is_still_found(
    llmb_program: str, cluster: Callable[..., Path], poison: dict[str, str]
) -> None:
    folder = Path(poison["PYTHONPATH"])
    info = folder / "llmb_far-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: llmb-far\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[llmb]\nfar = llmb_far_away\n")
    (folder / "llmb_far_away.py").write_text("import yaml\n")
    environ = {**os.environ, "LLMB_INSTALL": str(cluster()), "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [llmb_program, "plugins", "list"], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "far" in done.stdout


def test_a_local_job_runs_with_its_own_modules(
    llmb_program: str, local_install: Path, poison: dict[str, str], tmp_path: Path
) -> None:
    environ = {**os.environ, "LLMB_STATE_DIR": str(tmp_path / "state")}
    environ |= {"LLMB_INSTALL": str(local_install), "PYTHONPATH": poison["PYTHONPATH"]}
    words = "submit -w nemotron4_tiny --dtype bf16 --scale 1 --max-steps 5 --wait --format json"
    done = subprocess.run(
        [llmb_program, *words.split()], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert json.loads(done.stdout)["summary"]["success_experiments"] == 1


def test_the_installer_uses_its_own_modules(
    cluster: Callable[..., Path], poison: dict[str, str]
) -> None:
    program = str(Path(sys.executable).with_name("llmb-install"))
    environ = {**os.environ, "PYTHONPATH": poison["PYTHONPATH"]}
    for words in (["status"], ["doctor"]):
        done = subprocess.run(
            [program, *words, "--install", str(cluster("local", "cpu", name=words[0]))],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (0, 1), done.stderr
        assert "Traceback" not in done.stderr
        assert "of another Python" not in done.stdout + done.stderr
