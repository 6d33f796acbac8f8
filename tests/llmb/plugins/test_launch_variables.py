# SPDX-License-Identifier: Apache-2.0
"""Variables of launchers in plugins: a stranger's, wrong ones, and NVIDIA's without its plugin."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import llmb_exemplar

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Install = Callable[..., str]

HEAD = """
from llmb.api import LaunchVariable, hookimpl

def variable(name, **fields):
    return LaunchVariable(name=name, program="Acme's launcher", **fields)

@hookimpl
def llmb_variables():
"""
ACME = (
    HEAD
    + """    return [
        variable("ACME_GPUS", sets="scales", read="counts", option="--scale {}"),
        variable("ACME_STEPS", sets="max_steps", read="count", option="--max-steps {}"),
        variable("ACME_QUEUE", note="omit it: --partition NAME"),
    ]
"""
)
LIST = """\
pretrain_nemotron4_15b:
  scales: [16]
  defaults: {env: {%s: 7}}
"""


def job_of(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    (job,) = json.loads(done.stdout)["jobs"]
    return dict(job)


@pytest.fixture
def dry(llmb_here: Command, cluster: Callable[..., Path]) -> Command:
    """Runs a submission as a dry run on a cluster of H100s."""
    folder = cluster(slurm={"gpu": {"gres": 8}})
    return lambda *words: llmb_here(*words, "-d", "--format", "json", "--install", folder)


def test_variables_of_a_stranger_are_settings(
    install: Install, dry: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("acme", ACME)
    monkeypatch.setenv("ACME_GPUS", "16")
    monkeypatch.setenv("ACME_QUEUE", "night")
    done = dry("submit", "-w", "nemotron4_15b", "--env", "ACME_STEPS=9")
    job = job_of(done)
    assert (job["scale"], job["max_steps"], job["env"].get("ACME_STEPS")) == (16, 9, None)
    assert "note: from the environment: ACME_GPUS=16" in done.stderr
    assert "note: not used: ACME_QUEUE (omit it: --partition NAME)" in done.stderr
    (tmp_path / "jobs.yaml").write_text(LIST % "ACME_STEPS")
    assert job_of(dry("submit", tmp_path / "jobs.yaml"))["max_steps"] == 7
    (tmp_path / "jobs.yaml").write_text(LIST % "ACME_QUEUE")
    refused = dry("submit", tmp_path / "jobs.yaml")
    assert refused.returncode == 2
    assert "jobs.yaml:3" in refused.stderr
    assert "ACME_QUEUE configures Acme's launcher and would have no effect" in refused.stderr
    assert "hint: omit it: --partition NAME" in refused.stderr


def test_without_its_plugin_a_variable_is_one_of_the_job(
    dry: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(llmb_exemplar, "llmb_variables")
    for name in ("JOB_TOTAL_GPUS", "MAX_STEPS", "ADDITIONAL_SLURM_PARAMS", "HIDDEN_SIZE"):
        monkeypatch.setenv(name, "3")
    done = dry("submit", "-w", "nemotron4", "-s", "15b", "--scale", "16", "--env", "HIDDEN_SIZE=3")
    job = job_of(done)
    assert (job["scale"], job["max_steps"], job["env"]["HIDDEN_SIZE"]) == (16, 50, "3")
    assert "environment" not in done.stderr
    (tmp_path / "jobs.yaml").write_text(LIST % "MAX_STEPS")
    job = job_of(dry("submit", tmp_path / "jobs.yaml"))
    assert (job["max_steps"], job["env"]["MAX_STEPS"]) == (50, "7")
    missing = dry("submit", "-w", "nemotron4", "-s", "15b")
    assert missing.returncode == 2
    assert "the GPU count is missing\nhint: --scale N\n" in missing.stderr


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('variable("ACME_STEPS", sets="max_step")', "did you mean 'max_steps'?"),
        ('variable("ACME_STEPS", sets="max_steps", read="number")', "'number'"),
        ('variable("ACME_STEPS")', "neither sets nor note"),
        ('variable("acme steps", note="omit it")', "'acme steps'"),
        ('"ACME_STEPS"', "a variable"),
        ('variable("JOB_TOTAL_GPUS", note="omit it")', "already has the variable 'JOB_TOTAL_GPUS'"),
    ],
)
def test_a_wrong_variable_is_named_and_costs_its_plugin_alone(
    row: str,
    reason: str,
    install: Install,
    dry: Command,
    llmb_here: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install("acme", f"{HEAD}    return [{row}]\n")
    monkeypatch.setenv("JOB_TOTAL_GPUS", "16")
    done = dry("submit", "-w", "nemotron4", "-s", "15b")
    assert job_of(done)["scale"] == 16
    assert "plugin acme:entry" in done.stderr
    assert reason in done.stderr
    checked = llmb_here("plugins", "check", "-w", "acme")
    assert (checked.returncode, reason in checked.stderr) == (1, True)
    listed = llmb_here("plugins", "list", "--format", "json").stdout
    (acme,) = (plugin for plugin in json.loads(listed) if plugin["plugin"] == "acme:entry")
    assert (acme["status"], acme["kind"]) == ("in part", "variables of launchers")
    assert reason in acme["reason"]
