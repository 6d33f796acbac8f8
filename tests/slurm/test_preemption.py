# SPDX-License-Identifier: Apache-2.0
"""Tests of jobs that others preempt, in a partition that warns them first (GraceTime)."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from llmb_testing.slurm import Shape, SlurmKit, missing_packages

Site = Any  # the class is in conftest.py

SLEEP = "import time; print('started', flush=True); time.sleep(600)"
GRACE = 60  # seconds, much longer than a job needs to end


@pytest.fixture(scope="module")
def preempting() -> Iterator[SlurmKit]:
    """One node, whose jobs the partition ``high`` takes from the partition ``gpu``."""
    if missing := missing_packages(accounting=True):
        pytest.skip(f"no real Slurm here: apt-get install {' '.join(missing)}")
    low = f"PartitionName=gpu Nodes=ALL Default=YES PriorityTier=1 GraceTime={GRACE} State=UP"
    high = "PartitionName=high Nodes=ALL PriorityTier=2 PreemptMode=OFF State=UP"
    modes = ("PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE")
    with SlurmKit(replace(Shape(), nodes=1, partitions=(*modes, low, high))) as kit:
        yield kit


def test_a_job_that_ends_within_its_grace_time_was_preempted(
    preempting: SlurmKit, site_at: Callable[..., Site]
) -> None:
    """Slurm itself records FAILED 15:0: it would have killed the script only later."""
    site = site_at(preempting)
    run = site.submit(SLEEP)
    site.says(run, "started")
    gpus = ("--gres=gpu:8", "--output=/dev/null", "--wrap=true")
    preempting.run("sbatch", "--partition=high", "--nodes=1", *gpus)
    end = site.ends(run, "PREEMPTED")
    assert (end.exit_code, end.reason) == (None, "")
    assert end.ended - end.started < GRACE
    failed = site.submit("raise SystemExit(3)")
    assert site.ends(failed, "FAILED").exit_code == 3
    cancelled = site.submit(SLEEP)
    site.says(cancelled, "started")
    site.cluster().cancel([cancelled])
    site.ends(cancelled, "CANCELLED")
