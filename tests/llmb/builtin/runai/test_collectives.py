# SPDX-License-Identifier: Apache-2.0
"""The microbenchmarks in pods that really run: a collective of four ranks in two pods, a file of
one.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# torch may be installed first
pytestmark = [pytest.mark.slow, pytest.mark.local_install, pytest.mark.timeout(1800)]

LIST = """\
microbench_all_reduce: {scales: [4], dtypes: [fp32], defaults: {params: {message_size: 64K, max_steps: 5}}}
microbench_storage: {scales: [1], dtypes: [fp32], defaults: {params: {file_size: 4M, max_steps: 5}}}
"""


def test_they_run_from_staged_files_to_results(
    plane: Any, site_at: Callable[..., Any], torch_venv: Path, tmp_path: Path
) -> None:
    plane.gpus = 4
    site = site_at(
        plane,
        gpu_types={"h100": {"gpus_per_node": 2}},
        environment={"OMP_NUM_THREADS": "1"},
        workloads={
            "installed": ["microbench"],
            "config": {"microbench": {"venvs": {"torch": str(torch_venv)}}},
        },
    )
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text(LIST)
    done = site.llmb("submit-all", jobs)
    assert done.returncode == 0, done.stderr
    plane.run_until_idle(900)
    results = json.loads(site.llmb("results", "--format", "json").stdout)["results"]
    assert [(one["status"], one["steps"], one["headline"]) for one in results] == [
        ("Success", 5, "busbw"),
        ("Success", 5, "write_bw"),
    ], results
    metrics = results[0]["metrics"]
    # 2 (n - 1) / n
    assert metrics["busbw"]["mean"] == pytest.approx(1.5 * metrics["algbw"]["mean"], rel=1e-4)
    assert sorted(workload.kind for workload in plane.workloads) == ["distributed", "trainings"]
    first = Path(results[0]["path"]).read_text().splitlines()[0]
    assert "ranks: 4" in first
