# SPDX-License-Identifier: Apache-2.0
"""Tests of the advice for Slurm's reasons: why a job was refused, and why one waits."""

import pytest

from llmb.kit.advice import advice


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        (
            "Invalid account or account/partition combination specified",
            "sacctmgr show assoc user=$USER lists yours",
        ),
        (
            "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
            "wait for jobs to end",
        ),
        (
            "QOSMaxWallDurationPerJobLimit; Job violates accounting/QOS policy (job submit limit,"
            " user's size and/or time limits)",
            "a shorter --time-limit",
        ),
        ("Required partition not available (inactive or drain)", "accepts no jobs now"),
        ("invalid partition specified: x", "set 'partition'"),
        (
            "Requested time limit is invalid (missing or exceeds some limit)",
            "--time-limit HH:MM:SS",
        ),
        ("Invalid --time specification", "--time-limit HH:MM:SS instead of --slurm-arg time"),
        ("Invalid qos specification", "sacctmgr show qos"),
        (
            "Cannot submit to this partition without GPU resources",
            "set 'gres' in cluster_config.yaml",
        ),
        ("Invalid license specification", "--slurm-arg licenses=null"),
        (
            "sbatch: error: Could not establish a configuration source",
            "run llmb-run on a login node",
        ),
    ],
)
def test_a_refusal_has_its_fix(reason: str, hint: str) -> None:
    assert hint in advice("slurm_refused", reason)


def test_an_unknown_reason_has_no_hint() -> None:
    assert advice("slurm_refused", "FullMoon") == ""


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("JobHeldAdmin", "only an administrator can release it"),
        ("JobHeldUser", "scontrol release JOB"),
        ("DependencyNeverSatisfied", "llmb-run jobs retry RUN --slurm-arg dependency=null"),
        ("ReqNodeNotAvail, Reserved for maintenance", "scontrol show reservation"),
        ("launch failed requeued held", "scontrol release JOB"),
        ("job requeued in held state", "scontrol release JOB"),
        ("QOSMaxWallDurationPerJobLimit", "its QOS allows no such job, so it never starts"),
        ("QOSMaxGRESPerJob", "its QOS allows no such job, so it never starts"),
        ("QOSMinGRES", "its QOS allows no such job, so it never starts"),
        ("AssocMaxNodePerJobLimit", "your account allows no such job, so it never starts"),
        ("AssocMaxCpuPerNode", "your account allows no such job, so it never starts"),
        ("QOSGrpGRES", "never if it asks for more than the limit itself"),
        ("AssocGrpNodeLimit", "never if it asks for more than the limit itself"),
        ("AssocGrpCPUMinutesLimit", "once the usage decays"),
        ("AssocMaxJobsLimit", "a limit of your account or QOS"),
        ("QOSMaxJobsPerUserLimit", "it starts as others end; "),
        ("AssocGrpJobsLimit", "it starts as others end; "),
        ("QOSMaxGRESPerUser", "never if it asks for more than the limit itself"),
        ("InvalidQOS", "no longer one of yours"),
        ("PartitionDown", "when an administrator enables it again"),
        ("PartitionTimeLimit", "jobs retry RUN --time-limit"),
        (
            (
                "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority"
                " partitions"
            ),
            "sinfo -R",
        ),
        ("ReqNodeNotAvail, UnavailableNodes:n3", "sinfo -R"),
        ("BadConstraints", "no node has what it asks for"),
        ("Priority", ""),
        ("Resources", ""),
        ("", ""),
    ],
)
def test_a_waiting_job_has_advice_where_waiting_does_not_help(reason: str, expected: str) -> None:
    assert expected in advice("slurm_waiting", reason)
    assert bool(expected) == bool(advice("slurm_waiting", reason))
