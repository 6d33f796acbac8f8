# SPDX-License-Identifier: Apache-2.0
"""Tests of llmb-run on a real Slurm with a fake training program: submit, follow, cancel,
pre-submission checks.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmb.builtin.slurm.refusals import Refusal
from llmb.errors import PreflightError, describe
from llmb.kit.advice import advice
from llmb.plan.config_layers import with_slurm_args

Site = Any  # the class is in conftest.py
Put = Callable[[str], None]
Wording = Callable[..., None]

ONE = ("single", "-w", "nemotron4", "-s", "tiny", "--dtype", "fp32", "--scale")
LINE = (
    "Training epoch 0, iteration $i/4 | lr: 0.001 | global_batch_size: 4 | global_step: $i |"
    " peak_memory_usage: 1 | memory_allocated: 1 | reduced_train_loss: 7.0 | train_step_timing in"
    " s: 0.5 | consumed_samples: 4"
)
TRAIN = (
    f'for i in 0 1 2 3 4; do echo "{LINE}"; done\necho \'`Trainer.fit` stopped: `max_steps=5`'
    " reached.'"
)


def jobs(site: Site) -> list[dict[str, Any]]:
    done = site.llmb("jobs", "list", "--session", "all", "--format", "json")
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def test_submit_follow_and_measure(site: Site, fake_python: Put) -> None:
    fake_python(TRAIN)
    done = site.llmb(
        *ONE, 1, "--set", "max_steps=5", "--wait", "--format", "json", "--env", "note=a 'b' $c"
    )
    assert done.returncode == 0, done.stderr + done.stdout
    (result,) = json.loads(done.stdout)["results"]
    assert (result["status"], result["steps"]) == ("Success", 5)
    (row,) = jobs(site)
    assert (row["state"], row["scheduler_id"].isdecimal()) == ("COMPLETED", True)


def test_the_script_of_a_dry_run_is_the_one_submitted(site: Site, fake_python: Put) -> None:
    fake_python(TRAIN)
    flags = (
        *ONE,
        2,
        "--set",
        "max_steps=5",
        "--slurm-arg",
        'comment=it\'s a "comment"',
        "--slurm-arg",
        "nice=5",
    )
    shown = json.loads(site.llmb(*flags, "--dry-run", "--format", "json").stdout)["jobs"][0][
        "script"
    ]
    assert site.llmb(*flags).returncode == 0
    (row,) = jobs(site)
    (path,) = site.install.glob("workloads/*/experiments/*/*/launch_*")
    assert path.read_text() == shown.replace("<id>", row["id"]).replace(
        "<timestamp>", path.parent.name.split("_")[-1]
    )
    job = site.kit.run("scontrol", "show", "job", row["scheduler_id"])
    assert 'Comment=it\'s a "comment"' in job
    assert "Nice=5" in job
    assert "Requeue=0" in job
    assert site.llmb("jobs", "wait").returncode == 0


def test_cancel_ends_running_and_pending_jobs(site: Site, fake_python: Put) -> None:
    fake_python("sleep 600")
    for _ in range(2):
        assert site.llmb(*ONE, 4).returncode == 0
    assert site.llmb("jobs", "cancel", "--all").returncode == 0
    assert site.llmb("jobs", "wait").returncode in (0, 3)
    assert [row["state"] for row in jobs(site)] == ["CANCELLED", "CANCELLED"]


def test_a_failure_has_its_exit_code_and_cause(site: Site, fake_python: Put) -> None:
    printed = "RuntimeError: CUDA out of memory. torch.OutOfMemoryError: CUDA out of memory"
    fake_python(f"echo '{printed}'; exit 9")
    done = site.llmb(*ONE, 2, "--wait", "--format", "json")
    assert done.returncode == 3, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert result["status"] == "Failed"
    (row,) = jobs(site)
    assert (
        json.loads(site.llmb("jobs", "show", row["id"], "--format", "json").stdout)["exit_code"]
        == 9
    )
    assert printed in result["reason"]


def change(site: Site, **slurm: Any) -> None:
    path = site.install / "cluster_config.yaml"
    data = yaml.safe_load(path.read_text())
    data["slurm"] |= slurm
    path.write_text(yaml.safe_dump(data))


@pytest.mark.parametrize(
    ("slurm", "options"),
    [
        ({"gpu": {"partition": "gpuu"}}, {}),
        ({"gpu": {"partition": "closed"}}, {}),
        ({"gpu": {"partition": "short", "gres": 8}}, {}),
        ({"gpu": {"gres": 9}}, {}),
        ({"gpu": {"gres": "a100:8"}}, {}),
        ({"gpu": {"gres": 0}}, {}),
        ({"account": "nobody"}, {}),
        ({"reservation": "noon"}, {}),
        ({"constraint": "fast"}, {}),
        ({"mpi": "open"}, {}),
        ({"container": "pyxis", "mpi": "pmi2"}, {}),
        ({}, {"licenses": "gold"}),
    ],
    ids=[
        "unknown partition",
        "closed partition",
        "short partition",
        "too many GPUs",
        "other GPUs",
        "no GPUs",
        "account",
        "reservation",
        "constraint",
        "MPI plugin",
        "no pyxis",
        "license",
    ],
)
def test_preflight_names_cause_and_fix(
    site: Site, slurm: dict[str, Any], options: dict[str, str], wording: Wording
) -> None:
    change(site, **slurm)
    cluster = site.cluster()
    cluster = replace(cluster, config=with_slurm_args(cluster.config, options))
    launch = site.launch("", nodes=4, time_limit=1200, image="nvcr.io/nvidia/nemo:25.04.01")
    wording("single", describe(PreflightError(cluster.preflight([launch]))))


def test_preflight_passes_a_good_launch_and_reports_all_faults_of_another(
    site: Site, fake_python: Put, wording: Wording
) -> None:
    assert site.cluster().preflight([site.launch("", nodes=4)]) == []
    change(site, account="nobody", gpu={"partition": "none"}, mpi="open")
    (site.install / "venv/bin/python").unlink()
    done = site.llmb(*ONE, 4)
    assert done.returncode == 1
    wording("single", done.stderr)
    assert jobs(site) == []


@pytest.mark.parametrize(
    "option", [("nodelist", "n1"), ("exclude", "n[1-3]"), ("exclude", "n[1-4]")]
)
def test_options_that_leave_too_few_nodes_are_named(site: Site, option: tuple[str, str]) -> None:
    name, value = option
    cluster = site.cluster()
    cluster = replace(cluster, config=with_slurm_args(cluster.config, {name: value}))
    (fault,) = cluster.preflight([site.launch("", nodes=4)])
    assert "Requested node configuration is not available" in fault.message
    assert str(fault.hint).startswith(f"check --{name} {value}: as many nodes")


def test_a_refusal_for_nodes_without_a_list_of_nodes_has_slurms_own_fix() -> None:
    reason = "Requested node configuration is not available"
    refusal = Refusal(what="of 4 nodes", reason=reason, partition="gpu")
    assert refusal.fault.hint == advice("slurm_refused", reason)


def test_each_option_that_slurm_refuses_is_reported(site: Site, wording: Wording) -> None:
    change(
        site, account="nobody", reservation="noon", constraint="fast", nodelist="n9", qos="normal"
    )
    faults = site.cluster().preflight(
        [site.launch("", nodes=4), site.launch("", nodes=2, name="smaller")]
    )
    wording("single", describe(PreflightError(faults)))


def test_an_option_that_this_slurm_does_not_have(site: Site, wording: Wording) -> None:
    change(site, args={"no-such-option": "x"})
    (fault,) = site.cluster().preflight([site.launch("")])
    wording("single", describe(PreflightError([fault])))


def test_an_option_of_llmb_can_be_omitted(site: Site) -> None:
    omitted = (
        "--slurm-arg",
        "exclusive=null",
        "--slurm-arg",
        "mem=false",
        "--slurm-arg",
        "overcommit=true",
    )
    shown = json.loads(site.llmb(*ONE, 1, *omitted, "--dry-run", "--format", "json").stdout)[
        "jobs"
    ][0]["script"]
    assert "#SBATCH --overcommit\n" in shown
    assert "--exclusive" not in shown
    assert "--mem" not in shown


def test_a_node_out_of_service_is_named_with_its_reason(site: Site, wording: Wording) -> None:
    site.kit.run("scontrol", "update", "nodename=n3", "state=drain", "reason=broken fan")
    try:
        faults = site.cluster().preflight(
            [site.launch("", nodes=4), site.launch("", nodes=3, name="smaller")]
        )
    finally:
        site.kit.run("scontrol", "update", "nodename=n3", "state=resume")
    wording("single", describe(PreflightError(faults)))


def test_a_secret_that_is_not_set_is_reported_before_submission(
    site: Site, wording: Wording
) -> None:
    faults = site.cluster().preflight([site.launch("", secrets=("HF_TOKEN",))])
    wording("single", describe(PreflightError(faults)))
    assert (
        site.cluster(environ={"HF_TOKEN": "x"}).preflight([site.launch("", secrets=("HF_TOKEN",))])
        == []
    )


def test_without_preflight_slurm_itself_refuses(site: Site, fake_python: Put) -> None:
    fake_python(TRAIN)
    change(site, account="nobody")
    done = site.llmb(*ONE, 1, "--no-preflight")
    assert done.returncode == 1
    assert "account/partition combination" in done.stderr  # Slurm's own words
    assert "sacctmgr show assoc" in done.stderr


def test_a_machine_without_slurms_commands(site: Site, tmp_path: Path, wording: Wording) -> None:
    faults = site.cluster(environ={"PATH": str(tmp_path)}).preflight([site.launch("")])
    wording("single", describe(PreflightError(faults)))
    shown = site.llmb(*ONE, 4, "--dry-run", "--format", "json", PATH=str(tmp_path))
    assert "#SBATCH --nodes=4" in json.loads(shown.stdout)["jobs"][0]["script"]


@pytest.mark.parametrize("argument", ["job-name=x", "requeue", "p=gpu", "--output=x"])
def test_options_that_llmb_sets_are_refused(site: Site, argument: str) -> None:
    done = site.llmb(*ONE, 1, "--dry-run", "--slurm-arg", argument)
    assert done.returncode == 2
    assert "error: --slurm-arg:" in done.stderr
