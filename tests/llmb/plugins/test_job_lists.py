# SPDX-License-Identifier: Apache-2.0
"""Job lists in formats of plugins: of a stranger's, of NVIDIA's launcher, and of none."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.errors import UsageError
from llmb.plan.joblist import read_job_list

ACME = """
from llmb.api import JobEntry, JobList, Settings, hookimpl

@hookimpl
def llmb_job_list(name, text):
    if not text.startswith("acme "):
        return None
    size = text.split()[1]
    return JobList(entries=(JobEntry(settings=Settings(workload=size), sweeps={"scale": (16,)}, place=name),))
"""


def test_a_list_of_a_plugin(
    install: Callable[..., str],
    cluster: Callable[..., Path],
    llmb_here: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    install("acme", ACME)
    folder = cluster(slurm={"gpu": {"gres": 8}})
    for text in ("acme nemotron4_15b\n", "nemotron4_15b:\n('fp8', [16], 1)\n"):
        (tmp_path / "jobs.txt").write_text(text)
        done = llmb_here(
            "submit", tmp_path / "jobs.txt", "-d", "--format", "json", "--install", folder
        )
        (job,) = json.loads(done.stdout)["jobs"]
        assert (job["workload"], job["scale"]) == ("pretrain_nemotron4", 16)


def test_without_a_plugin_the_format_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "jobs.txt").write_text("nemotron4_15b:\n('fp8', [16], 1)\n")
    with pytest.raises(UsageError) as raised:
        read_job_list(tmp_path / "jobs.txt")
    assert (raised.value.code, raised.value.key) == ("joblist-unknown", "joblist")
