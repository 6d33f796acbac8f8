# SPDX-License-Identifier: Apache-2.0
"""Nodes that go down: what a submission says of them, and what an acceptance makes of one that is
lost while its jobs run.
"""

import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.plan.config_layers import with_slurm_args

PLAN = """\
title: Two phases
phases:
  - name: node
    nodes: 1
    jobs:
      - {job: microbench_gemm, dtype: fp32}
      - {job: microbench_all_reduce, dtype: fp32}  # one rank alone cannot run it
  - {name: collective, jobs: [{job: microbench_all_reduce, dtype: fp32}]}
"""
# The Python of the ranks. It waits on a node until that goes down, and fails on the others.
PYTHON = """\
#!/bin/bash
[[ "$SLURMD_NODENAME" != n3 ]] || sleep 600
exit 9
"""


@pytest.fixture
def down(kit: Any) -> Iterator[Callable[[], None]]:
    """Takes n3 out of service, until the test has ended."""

    def take() -> None:
        # A node that is only down comes back when its daemon answers.
        for state in ("drain", "down"):
            kit.run("scontrol", "update", "nodename=n3", f"state={state}", "reason=fan")

    yield take
    kit.run("scontrol", "update", "nodename=n3", "state=resume")


@pytest.mark.parametrize("nodelist", ["n3", "n[2-3]"])
def test_a_refusal_names_the_nodes_that_are_down(
    site: Any, down: Callable[[], None], nodelist: str
) -> None:
    cluster = site.cluster()
    cluster = replace(cluster, config=with_slurm_args(cluster.config, {"nodelist": nodelist}))
    launch = site.launch("", nodes=2 if "[" in nodelist else 1)
    assert cluster.preflight([launch]) == []
    down()
    (fault,) = cluster.preflight([launch])
    assert (fault.code, fault.key, fault.value) == ("nodes-out-of-service", "nodelist", "n3")
    assert re.search(r", as n3 is (down|drained) \(fan\)$", fault.message)


def test_a_refusal_for_another_cause_names_no_node(site: Any, down: Callable[[], None]) -> None:
    down()
    cluster = site.cluster()
    options = {"nodelist": "n[1-2]", "exclude": "n1"}
    cluster = replace(cluster, config=with_slurm_args(cluster.config, options))
    faults = cluster.preflight([site.launch("", nodes=2)])
    assert {fault.code for fault in faults} == {"slurm-would-refuse"}


def test_an_interrupted_plan_ends_with_the_command_that_continues_it(
    kit: Any, site_at: Callable[..., Any], llmb_start: Callable[..., Any], tmp_path: Path
) -> None:
    site = site_at(kit)
    python = site.install / "venv" / "bin" / "python"
    python.unlink()
    python.write_text(PYTHON)
    python.chmod(0o755)
    path = site.install / "cluster_config.yaml"
    path.write_text(path.read_text().replace("pretrain_nemotronh", "microbench"))
    plan = tmp_path / "two.yaml"
    plan.write_text(PLAN)
    words = ("accept", plan, "--nodelist", "n[1-4]", "-o", tmp_path / "two.tar.zst")
    process = llmb_start(*words, "--install", site.install, **kit.environ)
    running = ("squeue", "--noheader", "--nodelist=n3", "--states=running", "--format=%i")
    deadline = time.monotonic() + 180
    while not kit.run(*running).strip():
        assert time.monotonic() < deadline, "the job on n3 never began"
        time.sleep(0.1)
    line = ""
    while not re.search("waiting|FAILED", line):  # it follows the jobs
        line = process.stdout.readline()
        assert line, "it ended by itself"
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 130, printed
    assert printed.splitlines()[-1].startswith("Stopped. The jobs keep running. Continue: ")
    assert "Watch again" not in printed
    assert "" not in printed.splitlines()


@pytest.mark.timeout(600)
def test_a_node_that_goes_down_fails_its_phase_and_the_plan_ends(
    kit: Any,
    site_at: Callable[..., Any],
    down: Callable[[], None],
    llmb_start: Callable[..., Any],
    tmp_path: Path,
) -> None:
    site = site_at(kit)
    python = site.install / "venv" / "bin" / "python"
    python.unlink()
    python.write_text(PYTHON)
    python.chmod(0o755)
    path = site.install / "cluster_config.yaml"
    path.write_text(path.read_text().replace("pretrain_nemotronh", "microbench"))
    plan, output = tmp_path / "two.yaml", tmp_path / "two.tar.zst"
    plan.write_text(PLAN)
    words = ("accept", plan, "--nodelist", "n[1-4]", "-o", output)
    process = llmb_start(*words, "--install", site.install, **kit.environ)
    running = ("squeue", "--noheader", "--nodelist=n3", "--states=running", "--format=%i")
    deadline = time.monotonic() + 180
    while not kit.run(*running).strip():
        assert time.monotonic() < deadline, "the job on n3 never began"
        time.sleep(0.1)
    down()
    printed, _ = process.communicate(timeout=400)
    assert process.returncode == 3, printed
    assert "n3 fails node: Slurm would refuse a job with nodelist n3: " in printed
    shown = site.llmb("accept", "show", "two", "--format", "json")
    certificate = json.loads(shown.stdout)
    assert certificate["answer"] == "NOT_ACCEPTED"
    assert set(certificate["left"]) == {"n1", "n2", "n3", "n4"}
    assert ", as n3 is " in certificate["left"]["n3"]
    assert "before: " in certificate["left"]["n3"]
    assert "as n3 is" not in certificate["left"]["n1"]
    assert len(certificate["runs"]) == 4 + 3
    node, collective = certificate["phases"]
    assert (node["status"], collective["status"]) == ("not run", "not run")
    (item,) = [item for item in node["items"] if item["status"] == "not run"]
    assert item["name"] == "microbench_all_reduce-fp32"
    done = site.llmb("accept", "verify", output)
    assert done.returncode == 3, done.stderr
