# SPDX-License-Identifier: Apache-2.0
"""Tests of a Slurm that takes no more jobs: a limit of the association, and MaxJobCount."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmb_testing.slurm.files import ACCOUNT, Shape
from llmb_testing.slurm.kit import SlurmKit

pytestmark = pytest.mark.fault("full-queue")

Site = Any  # the class is in conftest.py
LIST = "pretrain_nemotron4_tiny:\n('bf16', [1], {count})\n"
STEPS = """\
for i in 0 1 2; do
  echo "Training epoch 0, iteration $i/2 | train_step_timing in s: 1.5 | reduced_train_loss: 2.5"
done"""


def submit_all(site: Site, count: int, *words: str) -> subprocess.CompletedProcess[str]:
    path: Path = site.install / "jobs.txt"
    path.write_text(LIST.format(count=count))
    done: subprocess.CompletedProcess[str] = site.llmb("submit-all", path, "--force", *words)
    return done


def rows(site: Site) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(site.llmb("jobs", "list", "--format", "json").stdout)
    return listed


@pytest.fixture
def two_at_most(site: Site) -> Iterator[Site]:
    """A site whose user may have two jobs in the queue."""

    def limit(number: int) -> None:
        user = site.kit.location.user
        where = ("where", f"name={user}", f"account={ACCOUNT}")
        change = ("set", f"maxsubmitjobs={number}")
        site.kit.run("sacctmgr", "--immediate", "modify", "user", *where, *change)

    limit(2)
    try:
        yield site
    finally:
        limit(-1)


def test_with_wait_the_rest_is_submitted_as_jobs_end(
    two_at_most: Site, fake_python: Callable[[str], None]
) -> None:
    fake_python(STEPS)
    account = ("--account", ACCOUNT)
    done = submit_all(two_at_most, 5, "--max-steps", "3", "--wait", *account)
    assert "AssocMaxSubmitJobLimit" in done.stderr, done.stderr
    states = [row["state"] for row in rows(two_at_most)]
    assert states == ["COMPLETED"] * 5, done.stderr


def test_without_wait_the_list_can_be_resumed(
    two_at_most: Site, fake_python: Callable[[str], None]
) -> None:
    fake_python("sleep 600")
    account = ("--account", ACCOUNT)
    done = submit_all(two_at_most, 4, *account)
    assert done.returncode == 1, done.stderr
    assert "--resume" in done.stderr
    assert len(two_at_most.kit.run("squeue", "--noheader").splitlines()) == 2
    assert "FAILED" not in {row["state"] for row in rows(two_at_most)}
    # The checks before a submission do not take the full queue for a fault of the job.
    checked = submit_all(two_at_most, 4, "--resume", *account)
    assert "would refuse" not in checked.stderr
    two_at_most.kit.run("scancel", "--full", f"--user={two_at_most.kit.location.user}")
    two_at_most.comes_to_rest()
    resumed = submit_all(two_at_most, 4, "--resume", "--max-in-queue", "2", *account)
    assert resumed.returncode == 0, resumed.stderr
    names = two_at_most.kit.run("squeue", "--noheader", "--format=%j").split()
    assert len(names) == len({*names}) == 2


@pytest.fixture(scope="module")
def small_kit() -> Iterator[SlurmKit]:
    """A cluster that keeps few jobs."""
    with SlurmKit(Shape(nodes=1, accounting=False, max_job_count=3)) as kit:
        yield kit


def test_a_full_controller_is_reported_at_once_and_refuses_nothing(
    small_kit: SlurmKit, site_at: Callable[..., Site]
) -> None:
    site = site_at(small_kit, slurm={"gpu": {"partition": None, "gres": 8}})
    done = submit_all(site, 4, "--slurm-arg", "hold")
    assert done.returncode == 1, done.stderr
    assert "sbatch tries again" in done.stderr
    assert "(MaxJobCount)" in done.stderr
    assert "--resume" in done.stderr
    in_queue = small_kit.run("squeue", "--noheader", "--format=%i").split()
    assert 0 < len(in_queue) < 4
    states = [row["state"] for row in rows(site)]
    assert states.count("PENDING") == len(in_queue)
    assert "FAILED" not in states
