# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of the documentation's scene `slurm`: the real Slurm, with a finished run."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmb_testing.documented import blocks, run

pytestmark = [pytest.mark.slow, pytest.mark.local_install, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
HERE = [
    page
    for page in sorted((ROOT / "docs").glob("*.md"))
    if any(block.scene == "slurm" for block in blocks(page))
]


@pytest.mark.parametrize("page", HERE, ids=lambda page: page.stem)
def test_the_commands_of_a_page(
    page: Path,
    kit: Any,
    site_at: Callable[..., Any],
    torch_install: Path,
    tmp_path: Path,
    llmb_program: str,
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    installed = yaml.safe_load((torch_install / "cluster_config.yaml").read_text())["workloads"]
    venv = next(iter(installed["config"].values()))["venv_path"]
    site = site_at(kit, venv=venv, environment={"OMP_NUM_THREADS": "1"})
    done = site.llmb(
        "single", "-w", "llama3.1", "-s", "tiny", "--scale", "1", "--set", "max_steps=4", "--wait"
    )
    assert done.returncode == 0, done.stderr
    path = f"{Path(llmb_program).parent}:{kit.environ.get('PATH', '')}:/usr/local/bin:/usr/bin:/bin"
    variables = {**kit.environ, "LLMB_INSTALL": str(site.install), "PATH": path}
    for block in blocks(page):
        if block.scene == "slurm":
            run(block, tmp_path, variables, {})
