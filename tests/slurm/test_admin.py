# SPDX-License-Identifier: Apache-2.0
"""Tests of actions of administrators on jobs, partitions and accounts: llmb reports them, and loses
nothing.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from llmb.errors import LlmbError
from llmb.run import store

Site = Any  # the class is in conftest.py
Put = Callable[[str], None]
Wording = Callable[..., None]

SLEEP = "import time; print('started', flush=True); time.sleep(600)"
WAIT_FOR_GO = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.05)\n"
ONE = (
    "single",
    "-w",
    "nemotron4",
    "-s",
    "tiny",
    "--dtype",
    "fp32",
    "--scale",
    "1",
    "--set",
    "max_steps=5",
)
LINE = (
    "Training epoch 0, iteration $i/4 | lr: 0.001 | global_batch_size: 4 | global_step: $i |"
    " peak_memory_usage: 1 | memory_allocated: 1 | reduced_train_loss: 7.0 | train_step_timing in"
    " s: 0.5 | consumed_samples: 4"
)
TRAIN = (
    f'for i in 0 1 2 3 4; do echo "{LINE}"; done\necho \'`Trainer.fit` stopped: `max_steps=5`'
    " reached.'"
)


def shown(site: Site, run: str) -> dict[str, Any]:
    done = site.llmb("jobs", "show", run, "--format", "json")
    assert done.returncode == 0, done.stderr
    data: dict[str, Any] = json.loads(done.stdout)
    return data


def listed(site: Site) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(
        site.llmb("jobs", "list", "--session", "all", "--format", "json").stdout
    )
    return rows


@pytest.fixture
def gpu_partition(site: Site) -> Iterator[Callable[[str], object]]:
    """Sets the state of the partition of the jobs. It is up again after the test."""

    def put(state: str) -> object:
        return site.kit.run("scontrol", "update", "partitionname=gpu", f"state={state}")

    yield put
    put("up")


@pytest.fixture
def user_limit(site: Site) -> Iterator[Callable[..., object]]:
    """Sets limits of this user, and removes them after the test."""

    def put(*limits: str) -> object:
        return site.kit.run(
            "sacctmgr", "--immediate", "modify", "user", site.kit.location.user, "set", *limits
        )

    yield put
    site.llmb("jobs", "cancel", "--all")
    site.comes_to_rest()
    put("maxjobs=-1", "maxsubmitjobs=-1")


def test_a_run_that_slurm_refused_is_retried_once_its_cause_is_fixed(
    site: Site, fake_python: Put, wording: Wording
) -> None:
    """Other runs are retried while it is refused again. After its success it is no longer a
    failure.
    """
    fake_python(TRAIN)
    path = site.install / "cluster_config.yaml"
    right = path.read_text()
    wrong = yaml.safe_load(right)
    wrong["slurm"]["account"] = "nobody"
    path.write_text(yaml.safe_dump(wrong))
    assert site.llmb(*ONE, "--no-preflight").returncode == 1
    path.write_text(right)
    assert site.llmb(*ONE, "--no-preflight", "--slurm-arg", "licenses=gold").returncode == 1
    account, license_ = listed(site)
    wording("jobs show", shown(site, account["id"])["fix"])
    explained = site.llmb("explain", license_["id"]).stdout
    retry = f"llmb-run jobs retry --install {site.install} {license_['id']}"
    assert retry in explained
    assert "--slurm-arg licenses=gold" in explained
    done = site.llmb("jobs", "retry", "--failed", "--session", "all", "--wait")
    assert done.returncode == 1, done.stderr
    assert "Invalid license specification" in done.stderr
    assert [(row["state"], row["attempt"]) for row in listed(site)] == [
        ("COMPLETED", 2),
        ("FAILED", 1),
    ]
    assert site.llmb("results", "--session", "all").returncode == 3
    done = site.llmb(
        "jobs", "retry", "--failed", "--session", "all", "--slurm-arg", "licenses=null", "--wait"
    )
    assert done.returncode == 0, done.stderr
    assert site.llmb("results", "--session", "all").returncode == 0
    assert site.kit.run(
        "squeue",
        "--noheader",
        "--states=all",
        f"--name={license_['experiment']}.{license_['id']}-2",
    )


def test_a_job_that_an_administrator_holds_has_that_reason(site: Site, wording: Wording) -> None:
    run = site.submit(SLEEP, slurm_args={"hold": True})
    cluster = site.cluster()
    site.waits_for(run, "JobHeldUser", cluster=cluster)
    wording("jobs show", cluster.poll([run])[run.id].fix)
    site.kit.run("scontrol", "hold", run.scheduler_id)
    state = cluster.poll([run])[run.id]
    assert (state.state, state.reason) == ("PENDING", "JobHeldAdmin")
    wording("jobs show", state.fix)
    site.kit.run("scontrol", "release", run.scheduler_id)
    assert site.reaches(run, "RUNNING", cluster=cluster).fix == ""


def test_a_suspended_job_has_not_ended_and_continues(site: Site) -> None:
    """Suspended only when its ranks run: Slurm never wakes an srun that it stopped while it started
    them.
    """
    run = site.submit(f"print('started', flush=True)\n{WAIT_FOR_GO}")
    site.says(run, "started")
    site.kit.run("scontrol", "suspend", run.scheduler_id)
    assert not site.reaches(run, "SUSPENDED").is_end
    site.kit.run("scontrol", "resume", run.scheduler_id)
    site.reaches(run, "RUNNING")
    (run.work / "go").touch()
    assert site.reaches(run).state == "COMPLETED"


def test_a_job_that_an_administrator_requeues_is_the_same_run(site: Site) -> None:
    """Job scripts forbid it. An administrator who allows it starts the same job again."""
    run = site.submit(WAIT_FOR_GO)
    site.begins(run)
    with pytest.raises(LlmbError, match="disabled"):
        site.kit.run("scontrol", "requeue", run.scheduler_id)
    site.kit.run("scontrol", "update", f"jobid={run.scheduler_id}", "requeue=1")
    site.kit.run("scontrol", "requeue", run.scheduler_id)
    assert not site.reaches(run, "PENDING", "REQUEUED").is_end
    (run.work / "go").touch()
    assert site.reaches(run).state == "COMPLETED"


def test_a_partition_that_goes_down_keeps_its_jobs_and_is_named(
    site: Site, gpu_partition: Callable[[str], object], fake_python: Put, wording: Wording
) -> None:
    # A drained partition starts what it has queued: the job must not end before it is asked about.
    fake_python(f"until [[ -e go ]]; do sleep 0.1; done\n{TRAIN}")
    gpu_partition("down")
    done = site.llmb(*ONE)
    assert done.returncode == 1
    wording("single", done.stderr)
    assert site.llmb(*ONE, "--no-preflight").returncode == 0
    (row,) = listed(site)
    assert (row["state"], row["reason"]) == ("PENDING", "PartitionDown")
    gpu_partition("drain")
    wording("single", site.llmb(*ONE).stderr)
    assert site.llmb(*ONE, "--no-preflight").returncode == 1
    wording("jobs show", shown(site, listed(site)[-1]["id"])["fix"])
    gpu_partition("up")
    (run,) = (run for run in store.all_runs(site.config)[0] if run.id == row["id"])
    (run.work / "go").touch()
    assert site.llmb("jobs", "wait", row["id"]).returncode == 0


def test_a_limit_of_the_account_makes_jobs_wait_or_leaves_them_for_later(
    site: Site, user_limit: Callable[..., object], fake_python: Put
) -> None:
    fake_python("sleep 600")
    user_limit("maxjobs=1", "maxsubmitjobs=2")
    assert site.llmb(*ONE, "--repeats", 2).returncode == 0
    site.one_waits_for(store.all_runs(site.config)[0], "AssocMaxJobsLimit")
    done = site.llmb(*ONE, "--no-preflight")
    assert done.returncode == 1
    assert "AssocMaxSubmitJobLimit" in done.stderr  # Slurm's own word
    assert "--resume" in done.stderr
    assert [run["state"] for run in listed(site)].count("FAILED") == 0


def test_nodes_out_of_service_leave_a_smaller_scale_or_another_partition(
    site: Site, wording: Wording
) -> None:
    for node in ("n1", "n2"):
        site.kit.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=fan")
    try:
        (some,) = site.cluster().preflight([site.launch("", nodes=4)])
        for node in ("n3", "n4"):
            site.kit.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=fan")
        (none,) = site.cluster().preflight([site.launch("", nodes=1)])
    finally:
        site.kit.run("scontrol", "update", "nodename=n[1-4]", "state=resume")
    wording("single", f"{some.hint}\n{none.hint}")
