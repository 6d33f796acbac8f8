# SPDX-License-Identifier: Apache-2.0
"""The main job on Run:ai's API: a list, trained by torch one rank alone, and four in two pods."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# torch may be installed first
pytestmark = [pytest.mark.slow, pytest.mark.local_install, pytest.mark.timeout(1800)]

LIST = """\
pretrain_llama3.1_tiny:
('fp32', [1, 4], 1)
"""


def test_a_job_list_becomes_a_table_of_results(
    plane: Any, site_at: Callable[..., Any], torch_venv: Path, tmp_path: Path
) -> None:
    plane.gpus = 4
    types = {"h100": {"gpus_per_node": 2}}
    site = site_at(plane, venv=torch_venv, gpu_types=types, environment={"OMP_NUM_THREADS": "1"})
    jobs = tmp_path / "jobs.txt"
    jobs.write_text(LIST)
    done = site.llmb("submit-all", jobs, "--set", "max_steps=4")
    assert done.returncode == 0, done.stderr
    plane.run_until_idle(900)
    done = site.llmb("results", "--format", "json")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    assert [(result["status"], result["steps"]) for result in results] == [("Success", 4)] * 2, (
        results
    )
    assert sorted(workload.kind for workload in plane.workloads) == ["distributed", "trainings"]
    for result in results:
        log = Path(result["path"]).read_text()
        assert len(re.findall(r"reduced_train_loss: \S+", log)) == 4
        assert result["tokens_per_second"] == pytest.approx(
            64 * int(re.search(r"gbs(\d+)", result["experiment"])[1]) / result["time_mean_seconds"]  # type: ignore[index]
        )
    listed = json.loads(site.llmb("jobs", "list", "--session", "all", "--format", "json").stdout)
    assert {row["state"] for row in listed} == {"COMPLETED"}
    assert {row["scheduler_id"] for row in listed} == {workload.id for workload in plane.workloads}
