# SPDX-License-Identifier: Apache-2.0
"""Test of an installation from a shell whose PYTHONPATH is for another Python."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.needs import Venv

pytestmark = pytest.mark.fault("poisoned-shell")


@pytest.mark.parametrize("tool", ["venv", "uv"])
def test_environments_are_made_of_their_own_packages(site: Any, tmp_path: Path, tool: str) -> None:
    """Another release of the package, and modules that fail, are in the path."""
    folder = tmp_path / "modules"
    (folder / "small-0.dist-info").mkdir(parents=True)
    metadata = "Metadata-Version: 2.1\nName: small\nVersion: 0\n"
    (folder / "small-0.dist-info" / "METADATA").write_text(metadata)
    for name in ("pip", "yaml", "click", "small", "venv", "ensurepip"):
        (folder / f"{name}.py").write_text(f"raise ImportError('{name} is of another Python')\n")
    site.workload("pretrain_small", Venv(name="small", requirements=("small==1",)))
    site.settings["venv_type"] = tool
    path = os.pathsep.join([str(folder), site.environ["PYTHONPATH"]])
    done = subprocess.run(
        site.argv(),
        env={**site.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = site.run("verify", "--deep", "--install", site.install)
    assert found.returncode == 0, found.stderr
