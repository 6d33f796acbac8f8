# SPDX-License-Identifier: Apache-2.0
"""A longer training with real torch and an invented GPU: how it held out, and its acceptance."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmb_testing import nvml
from llmb_testing.nvml import Change

# torch may be installed first
pytestmark = [
    pytest.mark.slow,
    pytest.mark.local_install,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not nvml.has_compiler(), reason="needs a C compiler"),
]

TRAINING = ("single", "-w", "llama3.1", "-s", "tiny", "--dtype", "fp32", "--scale", "1")
HOT = [
    Change(key="gpus", value=1),
    Change(key="temperature", value=88),
    Change(key="reasons", value=0x20 | 0x4, second=1),
]


def test_drift_time_in_steps_and_heat_of_a_training(
    machine_at: Callable[..., Any], tmp_path: Path
) -> None:
    """Each step lasts longer on purpose, so that the telemetry has samples of it."""
    machine = machine_at("install", trained=("pretrain_llama3.1",))
    variables = nvml.environment(nvml.build(tmp_path / "lib"), tmp_path / "script", HOT)
    config = machine.install / "cluster_config.yaml"
    data = yaml.safe_load(config.read_text())
    data["gpu_type"] = "h100"
    data["environment"] = {**data["environment"], **variables, "SLOW_ON_PURPOSE": "9"}
    config.write_text(yaml.safe_dump(data))
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "nvidia-smi").write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H100 80GB HBM3'\n")
    (commands / "nvidia-smi").chmod(0o755)
    state = {"LLMB_STATE_DIR": str(machine.state), "PATH": f"{commands}:{os.environ['PATH']}"}
    words = [*TRAINING, "--set", "max_steps=100", "--wait", "--format", "json"]
    done = machine.run(*words, "--install", machine.install, **state)
    (row,) = json.loads(done.stdout)["results"]
    assert row["status"] == "Success", done.stderr
    sustained = row["sustained"]
    assert sustained["steps"] == 100
    assert sustained["elapsed_s"] >= sustained["in_steps_s"] > 0
    assert 0.5 < sustained["goodput"] <= 1
    assert (sustained["restarts"], sustained["lost_to_restarts_s"]) == (0, 0)
    assert sustained["hottest_c"] == 88
    (node,) = sustained["slowed_nodes"]
    assert node.endswith(": heat (driver)")
    assert sustained["drift_interval"][0] <= sustained["drift"] <= sustained["drift_interval"][1]
    assert row["sustained_verdict"]["verdict"] != "PASS"  # it was hot
    report = tmp_path / "report.md"
    machine.llmb("report", row["run"], "-o", report)
    explained = machine.llmb("explain", row["run"]).stdout
    assert "88" in explained or "heat" in explained
    assert "## Sustained runs" in report.read_text()


def test_a_baseline_is_the_reference_of_an_acceptance(
    machine_at: Callable[..., Any], tmp_path: Path
) -> None:
    machine = machine_at("install", trained=("pretrain_llama3.1",))
    done = machine.llmb(*TRAINING, "--set", "max_steps=30", "--wait")
    assert done.returncode == 0, done.stderr
    assert machine.llmb("baseline", "accept", "good").returncode == 0
    plan, archive = tmp_path / "plan.yaml", tmp_path / "night.tar.zst"
    job = "{job: pretrain_llama3.1_tiny, dtype: fp32, scale: 1, task: {max_steps: 30}}"
    plan.write_text(f"title: A training\nphases: [{{name: training, jobs: [{job}]}}]\n")
    words = ["accept", plan, "--baseline", "good", "-o", archive, "--format", "json"]
    done = machine.llmb(*words)
    certificate = json.loads(done.stdout)
    assert certificate["baseline"] == "good"
    (item,) = certificate["phases"][0]["items"]
    assert "baseline good" in item["text"]  # a ratio to it, whatever this busy machine's speed is
    assert "loss" not in item["text"]
    verified = machine.llmb("accept", "verify", archive, "--format", "json")
    assert verified.returncode == done.returncode
    assert json.loads(verified.stdout)["phases"] == certificate["phases"]
