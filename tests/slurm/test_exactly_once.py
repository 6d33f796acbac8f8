# SPDX-License-Identifier: Apache-2.0
"""Each job exactly once on a real Slurm: llmb-run killed at any moment, and a controller that is
restarted meanwhile.

LLMB_TEST_KILLS, LLMB_TEST_RESTARTS and LLMB_TEST_RESTARTED_JOBS give the full counts: 50, 5 and
100.
"""

import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from llmb.contract.record import RunRecord
from llmb.run import store

Site = Any  # the class is in conftest.py
Start = Callable[..., "subprocess.Popen[str]"]

KILLS = int(os.environ.get("LLMB_TEST_KILLS", "3"))
JOBS = 40
RESTARTS = int(os.environ.get("LLMB_TEST_RESTARTS", "1"))
RESTARTED_JOBS = int(os.environ.get("LLMB_TEST_RESTARTED_JOBS", "30"))
# Held, so that the queue keeps every job that was submitted.
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
    "--slurm-arg",
    "hold",
)


@pytest.fixture
def start(bare_site: Site, llmb_start: Start) -> Start:
    """Starts the real llmb-run on the cluster."""
    return lambda *arguments: llmb_start(
        *arguments, "--install", bare_site.install, **bare_site.kit.environ
    )


def begun(site: Site) -> int:
    """How many runs have a folder."""
    return len(list(site.install.glob("workloads/*/experiments/*/*/")))


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    while not condition() and process.poll() is None:
        time.sleep(0.001)


def runs_of(site: Site) -> list[RunRecord]:
    runs, unreadable = store.all_runs(site.config)
    assert unreadable == []
    return runs


def exists_once(site: Site, seen: Callable[..., None]) -> None:
    """Each record has exactly one job, the one it names, and there are no other jobs."""
    queued = Counter(
        site.kit.run("squeue", "--noheader", "--states=pending", "--format=%j %i").splitlines()
    )
    recorded = Counter(
        f"{run.launch.name}.{run.stamp.id} {run.scheduler_id}" for run in runs_of(site)
    )
    seen(lost=(recorded - queued).total(), doubled=(queued - recorded).total())
    assert queued == recorded


@pytest.mark.slow
@pytest.mark.fault("slurm-kills")
@pytest.mark.parametrize("moment", range(KILLS))
def test_killed_at_any_moment_each_job_exists_once_and_none_is_lost(
    moment: int, start: Start, bare_site: Site, seen: Callable[..., None]
) -> None:
    stop_at = random.Random(moment).randint(1, JOBS)
    process = start(*ONE, "--repeats", JOBS)
    wait_for(lambda: begun(bare_site) >= stop_at, process)
    process.kill()
    output, _ = process.communicate()
    seen(tracebacks=output.count("Traceback"))
    done = bare_site.llmb("jobs", "reconcile")
    seen(tracebacks=done.stderr.count("Traceback"), wrong_ends=done.returncode != 0)
    assert done.returncode == 0, done.stderr
    exists_once(bare_site, seen)
    done = bare_site.llmb(*ONE, "--repeats", JOBS, "--resume")
    seen(tracebacks=done.stderr.count("Traceback"), wrong_ends=done.returncode != 0)
    assert done.returncode == 0, done.stderr
    exists_once(bare_site, seen)
    assert sorted(run.job.repeat for run in runs_of(bare_site)) == [*range(1, JOBS + 1)]


@pytest.mark.slow
@pytest.mark.fault("slurm-restarts")
@pytest.mark.parametrize("moment", range(RESTARTS))
def test_a_controller_restarted_meanwhile_has_each_job_once(
    moment: int, start: Start, bare_site: Site, seen: Callable[..., None]
) -> None:
    process = start(*ONE, "--repeats", RESTARTED_JOBS)
    wait_for(lambda: begun(bare_site) >= (moment + 1) * RESTARTED_JOBS // (RESTARTS + 2), process)
    bare_site.kit.stop_controller()
    bare_site.kit.start_controller()
    output, _ = process.communicate(timeout=300)
    seen(tracebacks=output.count("Traceback"), wrong_ends=process.returncode not in (0, 1))
    assert process.returncode in (0, 1), output
    done = bare_site.llmb(*ONE, "--repeats", RESTARTED_JOBS, "--resume")
    assert done.returncode == 0, output + done.stderr
    exists_once(bare_site, seen)
    assert sorted(run.job.repeat for run in runs_of(bare_site)) == [*range(1, RESTARTED_JOBS + 1)]
