# SPDX-License-Identifier: Apache-2.0
"""Tests of a caller's shell whose paths of modules and libraries are for other programs, on Slurm."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb_testing.slurm.daemons import path_of

pytestmark = pytest.mark.fault("poisoned-shell")

Site = Any  # the class is in conftest.py


def test_neither_slurms_commands_nor_jobs_get_the_paths(
    site: Site, fake_python: Callable[[str], None], tmp_path: Path
) -> None:
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    (libraries / "libmunge.so.2").write_text("of another system")
    poison = {"LD_LIBRARY_PATH": str(libraries), "PYTHONPATH": str(tmp_path / "modules")}
    # Slurm's own commands fail in such a shell.
    asked = subprocess.run(
        [path_of("sbatch"), "--test-only", "--wrap=true"],
        env={**os.environ, **site.kit.environ, **poison},
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode != 0, asked.stderr
    fake_python("env > environment.txt; echo done")
    jobs = site.install / "jobs.txt"
    jobs.write_text("pretrain_nemotron4_tiny:\n('bf16', [1], 1)\n")
    done = site.llmb("submit-all", jobs, **poison)
    assert done.returncode == 0, done.stderr
    site.comes_to_rest()
    (written,) = site.install.rglob("environment.txt")
    variables = dict(line.split("=", 1) for line in written.read_text().splitlines() if "=" in line)
    assert "LD_LIBRARY_PATH" not in variables
    assert str(tmp_path / "modules") not in variables["PYTHONPATH"]
