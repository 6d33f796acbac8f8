# SPDX-License-Identifier: Apache-2.0
"""Tests of what a job removes from its nodes, run by bash with stand-ins of enroot, squeue and
srun.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from llmb.builtin.slurm.container import remove_old, remove_own
from llmb.contract.launch import Launch, Program
from llmb.contract.schema import ClusterConfig
from llmb_installer.cluster_types import all_types

LAUNCH = Launch(
    name="x", nodes=2, ranks_per_node=2, time_limit=60, program=Program(module="m"), image="i:1"
)
# The options of srun are omitted; enroot and squeue answer as the real ones do (squeue 22.05,
# enroot 3.5 and 4.0).
PROGRAMS = {
    "srun": 'while [[ $1 == -* ]]; do shift; done\nexec "$@"\n',
    "enroot": (
        'if [[ $1 == list ]]; then cat "$NODE/containers"; else echo "${@: -1}" >> "$NODE/removed";'
        " fi\n"
    ),
    "squeue": (
        "case $* in *--jobs=11*) echo RUNNING ;; *--jobs=12*) ;; *--jobs=14*)\necho"
        ' "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1'
        ' ;;\n*) echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1 ;; esac\n'
    ),
}


@pytest.fixture
def node(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    for name, text in PROGRAMS.items():
        path = tmp_path / "bin" / name
        path.write_text(f"#!/bin/bash\n{text}")
        path.chmod(0o755)
    for job, place in {
        "11": "a_1",
        "12": "a_2",
        "13": "a_3/attempt-2",
        "14": "a_4",
        "20": "a_5",
    }.items():
        folder = tmp_path / "workloads/w/experiments/a" / place
        folder.mkdir(parents=True)
        (folder / "scheduler_id").write_text(f"{job}\ncluster c\n")
    (tmp_path / "tmp").mkdir()
    return tmp_path


def run(node: Path, lines: str, job: str = "20") -> str:
    environ = {
        "PATH": f"{node}/bin:{os.environ['PATH']}",
        "NODE": str(node),
        "SLURM_JOB_ID": job,
        "TMPDIR": f"{node}/tmp",
        "SLURMD_NODENAME": "n3",
    }
    return subprocess.run(
        ["bash", "-c", lines], env=environ, capture_output=True, check=True, text=True
    ).stdout


def test_containers_of_killed_runs_of_llmb_are_removed_and_no_others(
    node: Path, wording: Callable[..., None]
) -> None:
    """11 runs, 12 and 13 have ended, of 14 Slurm does not tell, 99 is somebody else's job, 20 is
    this one.
    """
    names = [
        "pyxis_11.0",
        "pyxis_12.0",
        "pyxis_13_13.1",
        "pyxis_14.0",
        "pyxis_99.0",
        "pyxis_20.0",
        "pyxis_mine",
        "my",
    ]
    (node / "containers").write_text("\n".join(names) + "\n")
    config = ClusterConfig(
        cluster_type="slurm", gpu_type="h100", llmb_install=node, kind=all_types()["slurm"]
    )
    printed = run(node, "\n".join(remove_old(LAUNCH, config)))
    assert (node / "removed").read_text().split() == ["pyxis_12.0", "pyxis_13_13.1"]
    wording("jobs logs", printed.splitlines()[0])


def test_caches_of_killed_runs_are_removed_too(node: Path) -> None:
    for name in ("llmb-11.0", "llmb-12.0", "llmb-20.0", "llmb-12", "other-12.0"):
        (node / "tmp" / name).mkdir()
    (node / "containers").write_text("")
    config = ClusterConfig(
        cluster_type="slurm", gpu_type="h100", llmb_install=node, kind=all_types()["slurm"]
    )
    run(node, "\n".join(remove_old(LAUNCH, config)))
    assert sorted(path.name for path in (node / "tmp").iterdir()) == [
        "llmb-11.0",
        "llmb-12",
        "llmb-20.0",
        "other-12.0",
    ]


def test_a_runs_own_caches_are_removed_at_its_end(node: Path) -> None:
    job = uuid4().hex  # /tmp is shared with others here
    for name in (f"llmb-{job}.0", f"llmb-{job}.1", "llmb-12.0"):
        (node / "tmp" / name).mkdir()
    run(node, remove_own(LAUNCH), job)
    assert [path.name for path in (node / "tmp").iterdir()] == ["llmb-12.0"]
