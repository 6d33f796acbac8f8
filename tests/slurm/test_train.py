# SPDX-License-Identifier: Apache-2.0
"""The main job on a real Slurm: a list of three, trained by torch under srun on one, two and four
nodes.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

# torch may be installed first
pytestmark = [pytest.mark.slow, pytest.mark.local_install, pytest.mark.timeout(1800)]

# Each rank imports torch and transformers for seconds of CPU time: more precisions and sizes are in
# tests/integration/test_main_job.py and tests/workloads/.
LIST = """\
pretrain_nemotron4_tiny:
('fp32', [1, 4], 1)
nemotron-h_tiny:
('bf16', 2, 1)
"""
NODES = [1, 4, 2]


def test_a_job_list_becomes_a_table_of_results(
    kit: Any, site_at: Callable[..., Any], torch_install: Path, tmp_path: Path
) -> None:
    installed = yaml.safe_load((torch_install / "cluster_config.yaml").read_text())["workloads"]
    venv = next(iter(installed["config"].values()))["venv_path"]
    # four nodes share this machine
    site = site_at(kit, venv=venv, environment={"OMP_NUM_THREADS": "1"})
    jobs = tmp_path / "jobs.txt"
    jobs.write_text(LIST)
    done = site.llmb("submit-all", jobs, "--set", "max_steps=4")
    assert done.returncode == 0, done.stderr
    site.comes_to_rest(900)
    done = site.llmb("jobs", "wait")
    assert done.returncode == 0, done.stderr
    results = json.loads(site.llmb("results", "--format", "json").stdout)["results"]
    assert [result["status"] for result in results] == ["Success"] * len(NODES), results
    for result, nodes in zip(results, NODES, strict=True):
        assert result["steps"] == 4
        log = Path(result["path"]).read_text()
        assert f"gpus{nodes}_" in result["experiment"]
        assert len(re.findall(r"reduced_train_loss: \S+", log)) == 4
        assert result["tokens_per_second"] == pytest.approx(
            64 * int(re.search(r"gbs(\d+)", result["experiment"])[1]) / result["time_mean_seconds"]  # type: ignore[index]
        )
    listed = json.loads(site.llmb("jobs", "list", "--session", "all", "--format", "json").stdout)
    assert {row["state"] for row in listed} == {"COMPLETED"}
    # Without a start time, sacct omits jobs from before midnight.
    columns = "--format=JobIDRaw,NNodes,JobName%200"
    shown = kit.run(
        "sacct", "--noheader", "--parsable2", "--allocations", "--starttime=now-1days", columns
    )
    by_job = dict(line.split("|", 1) for line in shown.splitlines())
    for row, nodes in zip(listed, NODES, strict=True):
        assert by_job[row["scheduler_id"]] == f"{nodes}|{row['experiment']}.{row['id']}"
