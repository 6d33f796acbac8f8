# SPDX-License-Identifier: Apache-2.0
"""Tests of llmb-run on a real Slurm with a stand-in for the training: submit, follow, cancel, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Site = Any  # the class is in conftest.py
Put = Callable[[str], None]

ONE = ("single", "-w", "nemotron4", "-s", "tiny", "--dtype", "fp32", "--scale")
LINE = (
    "Training epoch 0, iteration $i/4 | lr: 0.001 | global_batch_size: 4 | global_step: $i | peak_memory_usage: 1 | "
    "memory_allocated: 1 | reduced_train_loss: 7.0 | train_step_timing in s: 0.5 | consumed_samples: 4"
)
TRAIN = f"for i in 0 1 2 3 4; do echo \"{LINE}\"; done\necho '`Trainer.fit` stopped: `max_steps=5` reached.'"


def jobs(site: Site) -> list[dict[str, Any]]:
    done = site.llmb("jobs", "list", "--format", "json")
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def test_submit_follow_and_measure(site: Site, python_stand_in: Put) -> None:
    python_stand_in(TRAIN)
    done = site.llmb(*ONE, 1, "--set", "max_steps=5", "--wait", "--format", "json", "--env", "note=a 'b' $c")
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert (result["status"], result["steps"]) == ("Success", 5)
    (row,) = jobs(site)
    assert (row["state"], row["scheduler_id"].isdecimal()) == ("COMPLETED", True)


def test_what_would_be_sent_is_what_is_sent(site: Site, python_stand_in: Put) -> None:
    python_stand_in(TRAIN)
    flags = (*ONE, 2, "--set", "max_steps=5", "--slurm-arg", 'comment=it\'s a "comment"', "--slurm-arg", "nice=5")
    shown = json.loads(site.llmb(*flags, "--dry-run", "--format", "json").stdout)["jobs"][0]["script"]
    assert site.llmb(*flags).returncode == 0
    (row,) = jobs(site)
    (path,) = site.install.glob("workloads/*/experiments/*/*/launch_*")
    assert path.read_text() == shown.replace("<id>", row["id"]).replace("<timestamp>", path.parent.name.split("_")[-1])
    job = site.kit.run("scontrol", "show", "job", row["scheduler_id"])
    assert 'Comment=it\'s a "comment"' in job
    assert "Nice=5" in job
    assert "Requeue=0" in job
    assert site.llmb("jobs", "wait").returncode == 0


def test_cancel_ends_what_runs_and_what_waits(site: Site, python_stand_in: Put) -> None:
    python_stand_in("sleep 600")
    for _ in range(2):
        assert site.llmb(*ONE, 4).returncode == 0
    assert site.llmb("jobs", "cancel", "--all").returncode == 0
    assert site.llmb("jobs", "wait").returncode in (0, 3)
    assert [row["state"] for row in jobs(site)] == ["CANCELLED", "CANCELLED"]


def test_a_failure_is_reported_with_its_code_and_cause(site: Site, python_stand_in: Put) -> None:
    python_stand_in("echo 'RuntimeError: CUDA out of memory. torch.OutOfMemoryError: CUDA out of memory'; exit 9")
    done = site.llmb(*ONE, 2, "--wait", "--format", "json")
    assert done.returncode == 3, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert result["status"] == "Failed"
    assert "exit code 9" in result["reason"]
    assert "memory" in result["reason"]


def change(site: Site, **slurm: Any) -> None:
    path = site.install / "cluster_config.yaml"
    data = yaml.safe_load(path.read_text())
    data["slurm"] |= slurm
    path.write_text(yaml.safe_dump(data))


@pytest.mark.parametrize(
    ("slurm", "arguments", "printed", "hint"),
    [
        ({"gpu": {"partition": "gpuu"}}, (), "this Slurm has no partition 'gpuu'", "did you mean 'gpu'?"),
        ({"gpu": {"partition": "closed"}}, (), "partition closed is down", "sinfo"),
        (
            {"gpu": {"partition": "short"}},
            (),
            "asks for 00:20:00, and partition short allows 00:05:00",
            "--time-limit 00:05:00",
        ),
        ({"gpu": {"partition": "short", "gres": 8}}, (), "4 nodes with 8 GPUs, and partition short has 1", "scale"),
        ({"gpu": {"gres": 9}}, (), "needs 4 nodes with 9 GPUs, and partition gpu has none", "gres"),
        ({"gpu": {"gres": "a100:8"}}, (), "needs 4 nodes with 8 a100 GPUs, and partition gpu has none", "gres"),
        ({"gpu": {"gres": 0}}, (), "asks for 0 GPUs on each node and has 1 ranks there", "gres"),
        ({"account": "nobody"}, (), "account nobody", "sacctmgr show assoc"),
        ({"reservation": "noon"}, (), "Requested reservation is invalid", "scontrol show reservation"),
        ({"constraint": "fast"}, (), "Invalid feature specification", "constraint"),
        ({"mpi": "open"}, (), "this Slurm has no MPI plugin 'open'", "srun --mpi=list"),
        ({"container": "pyxis"}, (), "has no pyxis", "slurm.container: none"),
        ({}, ("--slurm-arg", "licenses=gold"), "Invalid license specification", ""),
    ],
)
def test_preflight_names_cause_and_fix(
    site: Site, slurm: dict[str, Any], arguments: tuple[str, ...], printed: str, hint: str
) -> None:
    change(site, **slurm)
    cluster = site.cluster()
    if arguments:
        from llmb.config import with_slurm_args

        option = {arguments[1].split("=")[0]: arguments[1].split("=")[1]}
        cluster = cluster.__class__(
            config=with_slurm_args(cluster.config, option), client=cluster.client, digest=cluster.digest
        )
    launch = site.launch("", nodes=4, time_limit=1200, image="nvcr.io/nvidia/nemo:25.04.01")
    faults = [fault for fault in cluster.preflight([launch]) if printed in fault.message]
    assert faults, cluster.preflight([launch])
    assert hint in (faults[0].hint or "")


def test_preflight_passes_what_is_right_and_tells_all_that_is_not(site: Site, python_stand_in: Put) -> None:
    assert site.cluster().preflight([site.launch("", nodes=4)]) == []
    change(site, account="nobody", gpu={"partition": "none"}, mpi="open")
    (site.install / "venv/bin/python").unlink()
    done = site.llmb(*ONE, 4)
    assert done.returncode == 1
    assert "has no partition 'none'" in done.stderr
    assert "has no MPI plugin 'open'" in done.stderr
    assert "with account nobody: Invalid account" in done.stderr
    assert "venv/bin/python does not exist" in done.stderr
    assert done.stderr.count("hint:") >= 3
    assert jobs(site) == []


def test_each_option_that_slurm_refuses_is_reported_and_not_the_first_alone(site: Site) -> None:
    change(site, account="nobody", reservation="noon", constraint="fast", nodelist="n9", qos="normal")
    faults = site.cluster().preflight([site.launch("", nodes=4), site.launch("", nodes=2, name="smaller")])
    wrong = ("account nobody", "reservation noon", "nodelist n9", "constraint fast")
    assert [fault.message.split(": ")[0] for fault in faults] == [f"Slurm would refuse a job with {w}" for w in wrong]
    assert all(fault.hint for fault in faults)


def test_an_option_that_this_slurm_does_not_have(site: Site) -> None:
    change(site, args={"no-such-option": "x"})
    (fault,) = site.cluster().preflight([site.launch("")])
    assert fault.message.endswith("unrecognized option '--no-such-option=x'")
    assert "this Slurm does not know the option" in (fault.hint or "")


def test_an_option_of_llmbs_own_can_be_omitted(site: Site) -> None:
    away = ("--slurm-arg", "exclusive=null", "--slurm-arg", "mem=false", "--slurm-arg", "overcommit=true")
    shown = json.loads(site.llmb(*ONE, 1, *away, "--dry-run", "--format", "json").stdout)["jobs"][0]["script"]
    assert "#SBATCH --overcommit\n" in shown
    assert "--exclusive" not in shown
    assert "--mem" not in shown


def test_a_node_out_of_service_is_named_with_its_reason(site: Site) -> None:
    site.kit.run("scontrol", "update", "nodename=n3", "state=drain", "reason=broken fan")
    try:
        faults = site.cluster().preflight([site.launch("", nodes=4), site.launch("", nodes=3, name="smaller")])
    finally:
        site.kit.run("scontrol", "update", "nodename=n3", "state=resume")
    assert [fault.message for fault in faults] == [
        "job needs 4 nodes with 8 GPUs, and partition gpu has 4, of which out of service: n3 drained (broken fan)"
    ]
    assert "--no-preflight" in (faults[0].hint or "")


def test_secrets_that_are_not_set_are_missed_before(site: Site) -> None:
    (fault,) = site.cluster().preflight([site.launch("", secrets=("HF_TOKEN",))])
    assert (fault.message, "~/.config/llmb/secrets" in (fault.hint or "")) == ("HF_TOKEN is not set", True)
    assert site.cluster(environ={"HF_TOKEN": "x"}).preflight([site.launch("", secrets=("HF_TOKEN",))]) == []


def test_without_preflight_slurm_itself_refuses(site: Site, python_stand_in: Put) -> None:
    python_stand_in(TRAIN)
    change(site, account="nobody")
    done = site.llmb(*ONE, 1, "--no-preflight")
    assert done.returncode == 1
    assert "Invalid account or account/partition combination specified" in done.stderr
    assert "sacctmgr show assoc" in done.stderr


def test_a_place_without_slurms_commands(site: Site, tmp_path: Path) -> None:
    (fault,) = site.cluster(environ={"PATH": str(tmp_path)}).preflight([site.launch("")])
    assert fault.message == "there is no program 'sinfo' here"
    assert "login node" in (fault.hint or "")
    shown = site.llmb(*ONE, 4, "--dry-run", "--format", "json", PATH=str(tmp_path))
    assert "#SBATCH --nodes=4" in json.loads(shown.stdout)["jobs"][0]["script"]


@pytest.mark.parametrize("argument", ["job-name=x", "requeue", "p=gpu", "--output=x"])
def test_options_that_are_llmbs_own_are_refused(site: Site, argument: str) -> None:
    done = site.llmb(*ONE, 1, "--dry-run", "--slurm-arg", argument)
    assert done.returncode == 2
    assert "error: --slurm-arg:" in done.stderr
