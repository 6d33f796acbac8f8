# SPDX-License-Identifier: Apache-2.0
"""Tests on a real Slurm that options, keys and variables for sbatch reach the job that Slurm
has.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Site = Any  # the class is in conftest.py
Put = Callable[[str], None]

TARGET = ("submit", "-w", "nemotron4", "-s", "tiny", "--dtype", "fp32", "--scale", 1)


@pytest.fixture
def allowed(site: Site) -> Iterator[Site]:
    """The site with the reservation ``night`` of nodes n1 and n2 and the QOS ``high``."""
    kit, user = site.kit, site.kit.location.user
    kit.run(
        "scontrol",
        "create",
        "reservation=night",
        "starttime=now",
        "duration=60",
        f"users={user}",
        "nodes=n[1-2]",
    )
    kit.run("sacctmgr", "--immediate", "add", "qos", "high")
    kit.run("sacctmgr", "--immediate", "modify", "user", user, "set", "qos+=high")
    yield site
    kit.run("scancel", "--full", f"--user={user}")
    kit.run("scontrol", "delete", "reservation=night")
    kit.run("sacctmgr", "--immediate", "modify", "user", user, "set", "qos-=high")
    kit.run("sacctmgr", "--immediate", "delete", "qos", "high")


def shown(site: Site, scheduler_id: str) -> dict[str, str]:
    """The fields of ``scontrol show job``."""
    return dict(re.findall(r"(\w+)=(\S*)", site.kit.run("scontrol", "show", "job", scheduler_id)))


def submitted(site: Site, *arguments: object, **variables: str) -> list[dict[str, str]]:
    """The fields of the jobs that a command submits; they are held."""
    done = site.llmb(*arguments, "--slurm-arg", "hold", "--format", "json", **variables)
    assert done.returncode == 0, done.stderr
    return [shown(site, run["scheduler_id"]) for run in json.loads(done.stdout)]


def test_options_reach_the_job(allowed: Site, fake_python: Put) -> None:
    fake_python("true")
    words = [
        "--nodelist",
        "n1",
        "--exclude",
        "n3,n4",
        "--reservation",
        "night",
        "--qos",
        "high",
        "--nice",
        "5",
    ]
    words += ["--partition", "gpu", "--account", "benchmarks"]
    (job,) = submitted(allowed, *TARGET, *words)
    assert (job["ReqNodeList"], job["ExcNodeList"]) == ("n1", "n[3-4]")
    assert (job["Reservation"], job["QOS"], job["Nice"]) == ("night", "high", "5")
    assert (job["Partition"], job["Account"]) == ("gpu", "benchmarks")


def test_keys_of_a_list_and_variables_of_the_shell_reach_the_jobs(
    allowed: Site, fake_python: Put, tmp_path: Path
) -> None:
    fake_python("true")
    path = tmp_path / "jobs.yaml"
    tasks = "[{nodelist: n1}, {exclude: 'n[3-4]'}]"
    path.write_text(
        f"nemotron4_tiny:\n  dtypes: fp32\n  scales: [1]\n  reservation: night\n  tasks: {tasks}\n"
    )
    first, second = submitted(allowed, "submit", path, SBATCH_QOS="high")
    assert (first["ReqNodeList"], first["Reservation"], first["QOS"]) == ("n1", "night", "high")
    assert (second["ExcNodeList"], second["Reservation"], second["QOS"]) == (
        "n[3-4]",
        "night",
        "high",
    )


@pytest.fixture
def tomorrow(site: Site) -> Iterator[Site]:
    """The site with the reservation ``acc`` of nodes n1 and n2, which begins in a day."""
    kit, user = site.kit, site.kit.location.user
    words = ("starttime=now+1days", "duration=120", f"users={user}", "nodes=n[1-2]")
    kit.run("scontrol", "create", "reservation=acc", *words)
    yield site
    kit.run("scancel", "--full", f"--user={user}")
    kit.run("scontrol", "delete", "reservation=acc")


def test_a_job_may_wait_for_a_reservation_that_has_not_begun(
    tomorrow: Site, fake_python: Put, tmp_path: Path
) -> None:
    fake_python("true")
    done = tomorrow.llmb(*TARGET, "--reservation", "acc", "--format", "json")
    assert done.returncode == 0, done.stderr
    answer = tomorrow.kit.run("scontrol", "show", "reservation", "acc")
    (start,) = re.findall(r"StartTime=(\S+)", answer)
    shown_start = start.replace("T", " ")
    assert f"note: reservation acc begins at {shown_start}; its jobs wait" in done.stderr
    job = shown(tomorrow, json.loads(done.stdout)[0]["scheduler_id"])
    assert (job["JobState"], job["Reservation"]) == ("PENDING", "acc")
    path = tmp_path / "jobs.yaml"
    path.write_text("nemotron4_tiny: {dtypes: fp32, scales: [1], reservation: acc}\n")
    refused = tomorrow.llmb("submit", path, "--slurm-arg", "constraint=nowhere")
    assert refused.returncode == 1, refused.stderr
    assert "with constraint nowhere: Invalid feature specification" in refused.stderr
    assert "Invalid time specified" not in refused.stderr
