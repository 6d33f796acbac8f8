# SPDX-License-Identifier: Apache-2.0
"""The microbenchmarks on a real Slurm: ranks of one, two and four nodes, results, verdicts,
comparison, report.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import llmb_microbench
from llmb_testing.plugin_writer import copy_plugin

# torch may be installed first
pytestmark = [pytest.mark.slow, pytest.mark.local_install, pytest.mark.timeout(1800)]

LIST = """\
mybench_all_reduce: {scales: [2, 4], dtypes: [fp32], defaults: {params: {message_size: 64K, max_steps: 9}}}
mybench_gemm: {scales: [1], dtypes: [bf16], defaults: {params: {matrix_size: 256, max_steps: 9}}}
"""
PUBLISHED = """\
tables:
  - {{release: "1", source: "this test", window: 2-8, steps: 9, size: all_reduce, dtype: fp32, gpu: h100,
     parameters: {{message_size: 64K}}, metric: busbw, values: {{2: {two}, 4: {four}}}}}
"""


def test_a_list_becomes_results_verdicts_a_comparison_and_a_report(
    kit: Any, site_at: Callable[..., Any], torch_install: Path, tmp_path: Path
) -> None:
    copy_plugin(
        Path(llmb_microbench.__file__).parent, tmp_path / "plugins", "mybench", "tables: []\n"
    )
    found = {"PYTHONPATH": str(tmp_path / "plugins")}
    venv = {"venv_path": str(torch_install / "venvs" / "torch")}
    workloads = {"installed": ["mybench"], "config": {"mybench": venv}}
    # four nodes share this machine
    site = site_at(kit, workloads=workloads, environment={"OMP_NUM_THREADS": "1"})
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text(LIST)
    done = site.llmb("submit-all", jobs, **found)
    assert done.returncode == 0, done.stderr
    site.comes_to_rest(900)
    assert (done := site.llmb("jobs", "wait", **found)).returncode == 0, done.stderr
    results = json.loads(site.llmb("results", "--format", "json", **found).stdout)["results"]
    assert [(one["status"], one["steps"], one["verdict"]) for one in results] == [
        ("Success", 9, "NO_REFERENCE")
    ] * 3
    two, four = (one["metrics"] for one in results[:2])
    for metrics, factor in ((two, 1.0), (four, 1.5)):  # 2 (n - 1) / n
        assert metrics["busbw"]["mean"] == pytest.approx(
            factor * metrics["algbw"]["mean"], rel=1e-4
        )
    assert "gloo" in Path(results[0]["path"]).read_text()

    published = PUBLISHED.format(two=two["busbw"]["mean"], four=four["busbw"]["mean"] * 2)
    (tmp_path / "plugins" / "mybench" / "published.yaml").write_text(published)
    done = site.llmb("results", "--format", "json", **found)
    assert done.returncode == 3
    verdicts = [(one["verdict"], one["ratio"]) for one in json.loads(done.stdout)["results"]]
    # The pretended GPUs are CPUs, which no figure of an H100 judges.
    assert verdicts == [("INVALID", None), ("INVALID", None), ("NO_REFERENCE", None)]
    done = site.llmb("compare", "--scaling", "--format", "json", **found)
    assert "busbw" in done.stdout, done.stderr
    report = tmp_path / "report.html"
    done = site.llmb("report", "-o", report, **found)
    assert "GB/s" in report.read_text(), done.stderr
