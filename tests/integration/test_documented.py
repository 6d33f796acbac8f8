# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of the documentation's scene `local`: an install directory with torch, and a
finished run.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb_testing.documented import blocks, run

pytestmark = [pytest.mark.slow, pytest.mark.local_install, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
HERE = [
    page for page in PAGES if any(block.scene in ("local", "cluster") for block in blocks(page))
]


@pytest.mark.parametrize("page", HERE, ids=lambda page: page.stem)
def test_the_commands_of_a_page(
    page: Path, machine_at: Callable[[str], Any], llmb_program: str, tmp_path: Path, home: Path
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    machine = machine_at("install")
    variables = {
        "PATH": f"{Path(llmb_program).parent}:/usr/local/bin:/usr/bin:/bin",
        "LLMB_STATE_DIR": str(machine.state),
    }
    few = ("--set", "max_steps=4", "--repeats", "3", "--wait")
    done = machine.llmb("single", "-w", "llama3.1", "-s", "tiny", "--scale", "1", *few)
    assert done.returncode == 0, done.stderr
    names = ("k3x9", "p0aa", "b7")
    words = {name: job["id"] for name, job in zip(names, machine.jobs(), strict=True)}
    words["EXPERIMENT"] = machine.job(0)["experiment"]
    (tmp_path / "other.json").write_text(machine.llmb("results", "--format", "json").stdout)
    installs = {"local": machine.install, "cluster": tmp_path / "examples/slurm-h100"}
    for block in blocks(page):
        if block.scene in installs:
            run(block, tmp_path, {**variables, "LLMB_INSTALL": str(installs[block.scene])}, words)
