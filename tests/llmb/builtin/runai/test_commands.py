# SPDX-License-Identifier: Apache-2.0
"""The whole commands against a control plane on loopback, as a user of Run:ai types them."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb_testing.runai import ControlPlane, Trouble

Site = Any  # the class is in conftest.py
ONE = ("single", "-w", "nemotron4", "-s", "15b", "--dtype", "bf16", "--scale", "16")


def jobs(site: Site) -> list[dict[str, Any]]:
    done = site.llmb("jobs", "list", "--session", "all", "--format", "json")
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


@pytest.fixture
def nodes_of_eight(paper: ControlPlane, site_at: Callable[..., Site]) -> Site:
    """An install directory of a cluster as they are."""
    return site_at(paper, gpu_types={"h100": {"gpus_per_node": 8}})


def test_a_dry_run_needs_no_credentials_and_no_network(
    nodes_of_eight: Site, paper: ControlPlane
) -> None:
    site = nodes_of_eight
    site.environ = {}
    done = site.llmb(*ONE, "--dry-run", "--format", "json")
    assert done.returncode == 0, done.stderr
    (job,) = json.loads(done.stdout)["jobs"]
    lines = ["#!/bin/bash", "#RUNAI POST /workloads/distributed", "#RUNAI {"]
    assert job["script"].splitlines()[:3] == lines
    assert '-<id>"' in job["script"]
    assert paper.requests == []


@pytest.mark.parametrize(
    ("secrets", "is_missing"), [({"HF_TOKEN": {"name": "hub", "key": "token"}}, False), ({}, True)]
)
def test_a_dry_run_asks_for_secrets_where_pods_get_them(
    secrets: dict[str, Any],
    is_missing: bool,
    paper: ControlPlane,
    site_at: Callable[..., Site],
    wording: Callable[..., None],
) -> None:
    site = site_at(paper, gpu_types={"h100": {"gpus_per_node": 8}}, runai={"secrets": secrets})
    done = site.llmb(
        "single",
        "-w",
        "llama3.1",
        "-s",
        "8b",
        "--scale",
        "8",
        "--set",
        "tokenizer=hub",
        "--dry-run",
    )
    assert done.returncode == 0, done.stderr
    assert "export" not in done.stderr
    assert ("HF_TOKEN" in done.stderr) is is_missing
    wording("single", done.stderr)


def test_without_credentials_nothing_is_submitted(
    nodes_of_eight: Site, paper: ControlPlane, wording: Callable[..., None]
) -> None:
    site = nodes_of_eight
    site.environ = {}
    done = site.llmb(*ONE)
    assert done.returncode == 1
    wording("single", done.stderr)
    assert paper.workloads == []
    assert jobs(site) == []


def test_the_secret_is_also_taken_from_the_secrets_file(
    nodes_of_eight: Site, paper: ControlPlane, home: Path
) -> None:
    site = nodes_of_eight
    site.environ = {}
    secrets = home / ".config/llmb/secrets"
    secrets.parent.mkdir(parents=True)
    secrets.write_text("APP_ID=me\nAPP_SECRET=s3cret\n")
    secrets.chmod(0o600)
    assert site.llmb(*ONE).returncode == 0
    assert len(paper.workloads) == 1
    texts = [path.read_text() for path in site.install.rglob("*") if path.is_file()]
    assert not any("s3cret" in text for text in texts)


def test_a_list_is_followed_to_its_end(
    nodes_of_eight: Site, paper: ControlPlane, tmp_path: Path, wording: Callable[..., None]
) -> None:
    site = nodes_of_eight
    paper.phases = ("Running", "Completed")
    (tmp_path / "jobs.txt").write_text("pretrain_nemotron4_15b:\n('bf16', [16, 32], 2)\n")
    done = site.llmb("submit-all", tmp_path / "jobs.txt", "--wait", "--format", "json")
    assert done.returncode == 3  # they left no log, so there is no result
    found = json.loads(done.stdout)["results"]
    assert [(one["status"], one["max_iteration"]) for one in found] == [("Failed", None)] * 4
    wording("results", "\n".join({one["reason"] for one in found}))
    assert [(job["state"], job["reason"]) for job in jobs(site)] == [("COMPLETED", "")] * 4
    assert {job["scheduler_id"] for job in jobs(site)} == {
        workload.id for workload in paper.workloads
    }
    assert sorted(workload.body["spec"]["numWorkers"] for workload in paper.workloads) == [
        1,
        1,
        3,
        3,
    ]


def test_a_run_is_cancelled_by_the_workload_s_id(nodes_of_eight: Site, paper: ControlPlane) -> None:
    site = nodes_of_eight
    assert site.llmb(*ONE, "--repeats", "2").returncode == 0
    done = site.llmb("jobs", "cancel", paper.workloads[0].id)
    assert done.returncode == 0, done.stderr
    assert sorted(workload.phase for workload in paper.workloads) == ["Pending", "Stopped"]
    assert sorted(job["state"] for job in jobs(site)) == ["CANCELLED", "PENDING"]


def test_a_run_that_failed_is_retried_under_another_name(
    nodes_of_eight: Site, paper: ControlPlane
) -> None:
    site = nodes_of_eight
    paper.phases = ("Failed",)
    assert site.llmb(*ONE).returncode == 0
    assert jobs(site)[0]["state"] == "FAILED"
    assert site.llmb("jobs", "retry", "--failed").returncode == 0
    first, second = (workload.name for workload in paper.workloads)
    assert second == f"{first}-2"
    assert "attempt-2/launch_" in paper.workloads[1].body["spec"]["args"]


def test_a_policy_s_refusal_is_shown_and_the_rest_is_not_tried(
    nodes_of_eight: Site, paper: ControlPlane, wording: Callable[..., None]
) -> None:
    paper.issues = lambda body: [
        {"field": "spec.compute.gpuDevicesRequest", "details": "at most 4"}
    ]
    done = nodes_of_eight.llmb(*ONE)
    assert done.returncode == 1
    wording("single", next(line for line in done.stderr.splitlines() if "at most 4" in line))
    assert jobs(nodes_of_eight)[0]["state"] == "FAILED"


def test_when_run_ai_is_silent_what_was_seen_last_is_shown(
    nodes_of_eight: Site,
    paper: ControlPlane,
    llmb_here: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = nodes_of_eight
    assert site.llmb(*ONE).returncode == 0
    assert jobs(site)[0]["state"] == "PENDING"
    paper.trouble(Trouble(path="/workloads.*", answer=503, times=99))
    monkeypatch.setattr("llmb_runai.rest.ATTEMPTS", 1)
    for name, value in site.environ.items():
        monkeypatch.setenv(name, value)
    done = llmb_here("jobs", "list", "--install", site.install)
    assert "PENDING" in done.stdout
    assert "HTTP 503" in done.stderr


def test_waiting_says_that_run_ai_refuses_the_access_key(
    nodes_of_eight: Site,
    paper: ControlPlane,
    llmb_here: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    wording: Callable[..., None],
) -> None:
    """The key is replaced while llmb sleeps for the third time."""
    site, keys, sleeps = nodes_of_eight, paper.keys, list[float]()
    assert site.llmb(*ONE).returncode == 0
    for name, value in site.environ.items():
        monkeypatch.setenv(name, value)
    paper.keys = {}

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        if len(sleeps) == 3:
            paper.keys = keys
            paper.workloads[0].script = ["Completed"]

    monkeypatch.setattr(time, "sleep", sleep)
    lines = llmb_here("jobs", "wait", "--install", site.install).stderr.splitlines()
    first = next(number for number, line in enumerate(lines) if "HTTP 401" in line)
    assert sum("HTTP 401" in line for line in lines) == 1
    wording("jobs wait", "\n".join([lines[first][9:], lines[first + 1]]))


def test_a_tiny_job_needs_an_environment_or_an_image_of_its_own(
    nodes_of_eight: Site, wording: Callable[..., None]
) -> None:
    tiny = (
        "single",
        "-w",
        "llama3.1",
        "-s",
        "tiny",
        "--scale",
        "2",
        "--dry-run",
        "--format",
        "json",
    )
    done = nodes_of_eight.llmb(*tiny)
    assert done.returncode == 2
    wording("single", done.stderr)
    done = nodes_of_eight.llmb(*tiny, "--image", "registry.example/torch:2")
    assert done.returncode == 0, done.stderr
    script = json.loads(done.stdout)["jobs"][0]["script"]
    assert "python3 -m llmb_workloads.torch_pretrain" in script
    assert "torch.distributed" not in script  # the script starts the ranks itself
