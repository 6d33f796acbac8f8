# SPDX-License-Identifier: Apache-2.0
"""Test of the umask that a job takes from its run's folder, by a real bash."""

import subprocess
from pathlib import Path

import pytest

from llmb.kit.bashscript import UMASK


@pytest.mark.fault("users")
@pytest.mark.parametrize(
    ("mode", "umask"),
    [(0o2775, "0002"), (0o755, "0022"), (0o750, "0027"), (0o700, "0077"), (0o777, "0000")],
)
def test_a_job_writes_with_the_permissions_of_its_folder(
    mode: int, umask: str, tmp_path: Path
) -> None:
    folder = tmp_path / "a run's folder"
    folder.mkdir()
    folder.chmod(mode)
    text = f"umask 0047\nllmb_run=$1\n{UMASK}umask"
    done = subprocess.run(
        ["bash", "-euc", text, "_", folder], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == umask
