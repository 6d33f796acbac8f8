# SPDX-License-Identifier: Apache-2.0
"""Tests of a Slurm that hides nearly everything from its users (PrivateData), as a plain user."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmb_testing.slurm.files import ACCOUNT, Shape
from llmb_testing.slurm.kit import SlurmKit

pytestmark = pytest.mark.fault("private-data")

Run = Callable[..., "subprocess.CompletedProcess[str]"]
NOBODY = "nobody"
PATIENCE = 180.0  # seconds until the test gives up
PRIVATE = (
    *("accounts", "events", "jobs", "nodes", "partitions", "reservations", "usage", "users"),
)


@pytest.fixture(scope="module")
def private_kit() -> Iterator[SlurmKit]:
    """A cluster with private data and an account for the user nobody."""
    if os.geteuid() != 0:
        pytest.skip("only root runs a cluster that has other users")
    with SlurmKit(Shape(nodes=1, private=PRIVATE)) as kit:
        kit.run("sacctmgr", "--immediate", "add", "user", NOBODY, f"account={ACCOUNT}")
        for folder in (kit.folder, kit.folder / "etc", kit.folder / "run"):
            folder.chmod(0o755)
        yield kit


@pytest.fixture
def as_nobody(private_kit: SlurmKit) -> Iterator[Run]:
    """Runs a program of llmb as the user nobody, whose home is an install directory for the
    cluster.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("there is no setpriv (util-linux)")
    plain = [setpriv, f"--reuid={NOBODY}", "--regid=65534", "--clear-groups", "--"]
    if subprocess.run([*plain, sys.executable, "-c", "import llmb"], check=False).returncode:
        pytest.skip("the user nobody cannot run this Python")
    home = Path(tempfile.mkdtemp(prefix="nobody-", dir="/tmp"))
    (home / "venv/bin").mkdir(parents=True)
    python = home / "venv/bin/python"
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o755)
    (home / "venv/pyvenv.cfg").write_text("include-system-site-packages = true\n")
    (home / "jobs.txt").write_text("pretrain_nemotron4_tiny:\n('bf16', [1], 2)\n")
    (home / "cluster_config.yaml").write_text(
        "schema_version: 2\ncluster_type: slurm\ngpu_type: h100\n"
        "gpu_types: {h100: {gpus_per_node: 1}}\n"
        "slurm: {container: none, gpu: {partition: gpu, gres: 8}}\n"
        f"workloads: {{config: {{pretrain_nemotron4: {{venv_path: {home}/venv}}}}}}\n"
    )
    for path in (home, *home.rglob("*")):
        shutil.chown(path, NOBODY)

    def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*plain, str(Path(sys.executable).with_name(program)), *words],
            env={
                **os.environ,
                **private_kit.environ,
                "HOME": str(home),
                "USER": NOBODY,
                "LLMB_INSTALL": str(home),
            },
            cwd=home,
            capture_output=True,
            text=True,
            check=False,
        )

    try:
        yield run
    finally:
        shutil.rmtree(home)


def test_a_user_who_sees_no_partitions_submits_and_follows(
    as_nobody: Run, wording: Callable[..., None]
) -> None:
    done = as_nobody("llmb-run", "submit-all", "jobs.txt")
    assert done.returncode == 0, done.stderr
    wording("submit-all", done.stderr.splitlines()[0])
    deadline, rows = time.monotonic() + PATIENCE, list[Any]()
    while time.monotonic() < deadline:
        rows = json.loads(as_nobody("llmb-run", "jobs", "list", "--format", "json").stdout)
        if {row["state"] for row in rows} == {"COMPLETED"}:
            break
    assert [row["state"] for row in rows] == ["COMPLETED"] * 2


def test_what_slurm_itself_would_refuse_is_still_found(as_nobody: Run) -> None:
    refused = as_nobody("llmb-run", "submit-all", "jobs.txt", "--partition", "gone")
    assert refused.returncode != 0
    assert "partition" in refused.stderr
    assert "nothing was submitted" in refused.stderr


def test_the_doctor_says_what_is_hidden(as_nobody: Run) -> None:
    done = as_nobody("llmb-install", "doctor", "--format", "json")
    assert done.stdout, done.stderr
    findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    states = {one["check"]: one["state"] for one in findings}
    assert states["Slurm answers"] == "ok"
    assert (states["partitions"], states["GPUs (GRES)"]) == ("warning", "warning")
