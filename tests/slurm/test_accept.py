# SPDX-License-Identifier: Apache-2.0
"""`llmb-run accept` on a real Slurm: a whole plan with and without a bad node, its certificate, its
archive, and an archive of which a byte was changed.
"""

import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# torch may be installed first
pytestmark = [pytest.mark.slow, pytest.mark.local_install, pytest.mark.timeout(1800)]

# The nodes share this machine, so their speeds differ by much.
PLAN = """\
title: A small plan for pretended nodes
phases:
  - {name: health, check: quick}
  - name: node
    nodes: 1
    jobs:
      - {job: microbench_gemm, dtype: fp32, spread: 0.99, task: {defaults: {params: {matrix_size: 256, max_steps: 5}}}}
  - name: pairs
    nodes: 2
    jobs:
      - {job: microbench_all_reduce, dtype: fp32, spread: 0.99,
         task: {defaults: {params: {message_size: 64K, max_steps: 5}}}}
  - name: collective
    jobs:
      - {job: microbench_all_reduce, dtype: fp32, task: {defaults: {params: {message_size: 64K, max_steps: 5}}}}
  - name: training
    jobs:
      - {job: pretrain_nemotron4_tiny, dtype: fp32, scale: [1, 2, 4], task: {max_steps: 4}}
  - name: sustained
    jobs:
      - {job: pretrain_nemotron4_tiny, dtype: fp32, scale: [1, 2], task: {max_steps: 12}}
"""
# The checks of this site: what a pretended node measures in no time.
CHECKS = """\
measures: {matrix_product: null, host_to_device: null, device_to_host: null, all_reduce: null, disk: null, memory: null}
"""
# The Python of the ranks. On a bad node, the microbenchmarks end at once.
PYTHON = """\
#!/bin/bash
[[ "$SLURMD_NODENAME $*" != {bad}\\ *llmb_microbench* ]] || exit 9
exec {python} "$@"
"""


@pytest.fixture
def site_with(
    kit: Any, site_at: Callable[..., Any], torch_install: Path, tmp_path: Path
) -> Callable[[str], Any]:
    """Creates an install directory whose node ``bad`` runs no microbenchmark."""

    def make(bad: str) -> Any:
        venv = tmp_path / "wrapped"
        (venv / "bin").mkdir(parents=True)
        real = torch_install / "venvs" / "torch"
        # complete: nothing is missing
        (venv / "pyvenv.cfg").write_text("include-system-site-packages = true\n")
        python = venv / "bin" / "python"
        python.write_text(PYTHON.format(bad=bad, python=real / "bin" / "python"))
        python.chmod(0o755)
        names = ["pretrain_nemotron4", "microbench", "node_check"]
        workloads = {
            "installed": names,
            "config": {name: {"venv_path": str(venv)} for name in names},
        }
        site = site_at(
            kit,
            workloads=workloads,
            environment={"OMP_NUM_THREADS": "1"},
            plugins={"llmb-nodes": {"checks": "site-checks.yaml"}},
        )
        (site.install / "site-checks.yaml").write_text(CHECKS)
        (tmp_path / "small.yaml").write_text(PLAN)
        return site

    return make


def names_of(site: Any) -> set[str]:
    """The folders of all runs that the scheduler has."""
    records = site.install.glob("workloads/*/experiments/*/*/llmb-run.json")
    return {path.parent.name for path in records if json.loads(path.read_text())["scheduler_id"]}


def test_a_sound_cluster_is_accepted_and_its_archive_verified(
    site_with: Callable[[str], Any], tmp_path: Path
) -> None:
    site = site_with("none")
    archive, page = tmp_path / "small.tar.zst", tmp_path / "small.html"
    plan = ["accept", tmp_path / "small.yaml", "--nodelist", "n[1-4]"]
    done = site.llmb(*plan, "--dry-run", "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [(row["phase"], row["jobs"], row["gpus"]) for row in rows] == [
        ("health", 1, 4),
        ("node", 4, 1),
        ("pairs", 2, 2),
        ("collective", 1, 4),
        ("training", 1, 4),
        ("sustained", 1, 2),
    ]
    assert all(row["gpu_hours"] > 0 for row in rows)
    assert not (site.install / "workloads").exists()

    done = site.llmb(*plan, "--by", "Acme", "-o", archive, "--report", page, "--format", "json")
    assert done.returncode == 0, done.stderr
    certificate = json.loads(done.stdout)
    assert certificate["answer"] == "ACCEPTED"
    assert [phase["status"] for phase in certificate["phases"]] == ["passed"] * 6
    assert len(certificate["runs"]) == 10
    assert certificate["line"].startswith("ACCEPTED small: kit, 4 nodes, 4 h100, ")
    assert certificate["line"].endswith(
        f"by Acme, archive sha256 {certificate['archive']['sha256']}"
    )

    # The archive alone gives the same answer, and is the first page of the report.
    done = site.llmb("accept", "verify", archive, "--sha256", certificate["archive"]["sha256"])
    assert "llmb_install" not in done.stderr  # of the cluster that wrote it
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ACCEPTED\n")
    report = site.llmb("report", archive).stdout
    first = next(line for line in report.splitlines() if line.startswith("## "))
    assert first == "## ACCEPTED: A small plan for pretended nodes"

    html = page.read_text()
    assert html.index("ACCEPTED: A small plan") < html.index('<section id="results"')
    assert html.count("ACCEPTED: A small plan") == 2  # a section, and the list of sections

    data = bytearray(archive.read_bytes())
    changed = tmp_path / "changed.tar.zst"
    for place in (0, 4, len(data) // 2, len(data) - 41, len(data) - 40, len(data) - 1):
        changed.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        done = site.llmb("accept", "verify", changed)
        assert done.returncode == 1, place
        assert done.stdout == ""


def test_a_bad_node_is_named_and_a_plan_that_was_stopped_runs_nothing_twice(
    site_with: Callable[[str], Any], llmb_start: Callable[..., Any], tmp_path: Path
) -> None:
    site = site_with("n3")
    archive = tmp_path / "small.tar.zst"
    words = ["accept", tmp_path / "small.yaml", "--nodelist", "n[1-4]", "-o", archive]
    process = llmb_start(*words, "--install", site.install, **site.kit.environ)
    deadline = time.monotonic() + 180
    while len(names_of(site)) < 5:
        assert time.monotonic() < deadline, "the jobs of the second phase never came"
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    stopped = names_of(site)
    assert len(stopped) == 5

    done = site.llmb(*words, "--format", "json")
    assert done.returncode == 3, done.stderr
    assert stopped < names_of(site)
    certificate = json.loads(done.stdout)
    assert certificate["answer"] == "NOT_ACCEPTED"
    # Once each: a check, four nodes, the bad one again, a pair and one with a node of it, three.
    assert len(certificate["runs"]) == len(names_of(site)) == 1 + 4 + 1 + 2 + 3
    assert set(certificate["left"]) == {"n3"}
    assert certificate["left"]["n3"].startswith("node: microbench_gemm-fp32: Failed: ")
    statuses = {phase["name"]: phase["status"] for phase in certificate["phases"]}
    assert statuses == {
        **dict.fromkeys(["health", "pairs", "collective", "training", "sustained"], "passed"),
        "node": "failed",
    }
    later = [phase for phase in certificate["phases"] if phase["name"] not in ("health", "node")]
    assert all("n3" not in item["nodes"] for phase in later for item in phase["items"])
    done = site.llmb("accept", "verify", archive)
    assert done.returncode == 3, done.stderr
    assert re.search("^n3 failed: node: ", done.stdout, re.MULTILINE)
    # It is complete: the same command begins another one, and its name shows this one.
    done = site.llmb("accept", "show", "small", "--format", "json")
    assert (done.returncode, json.loads(done.stdout)["runs"]) == (3, certificate["runs"])
