# SPDX-License-Identifier: Apache-2.0
"""Each job exactly once, whenever llmb-run is killed and however many of them are at work.

LLMB_TEST_KILLS gives the full count, 50.
"""

import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.contract import record
from llmb.contract.schema import ClusterConfig
from llmb.run import store
from llmb_testing.scheduler import Behaviour, Scheduler

pytestmark = pytest.mark.fault("submit-races")

JOBS = 40
MOMENTS = int(os.environ.get("LLMB_TEST_KILLS", "3"))
LIST = "fake_small:\n('bf16', [8, 16, 32, 64], 10)\n"

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(install: Path, llmb_start: Start) -> Start:
    """Starts the real llmb-run on the fake cluster."""
    return lambda *arguments: llmb_start(*arguments, "--install", install)


@pytest.fixture
def jobs(install: Path, scheduler: Scheduler) -> Path:
    """A list of JOBS jobs, for a scheduler slow enough to be cut off at any moment of a
    submission.
    """
    scheduler.behave(Behaviour(before=0.004, after=0.004))
    path = install / "jobs.txt"
    path.write_text(LIST)
    return path


def finished(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0, output


def names(scheduler: Scheduler) -> list[str]:
    return sorted(job.name for job in scheduler.jobs())


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline, "not within 180 s"
        time.sleep(0.001)


@pytest.mark.slow
@pytest.mark.fault("submit-kills")
@pytest.mark.parametrize("moment", range(MOMENTS))
def test_killed_at_any_moment_each_job_is_there_once_and_none_is_lost(
    moment: int,
    start: Start,
    jobs: Path,
    scheduler: Scheduler,
    config: ClusterConfig,
    seen: Callable[..., None],
) -> None:
    chance = random.Random(moment)
    process = start("submit-all", jobs)
    wait_for(lambda: any(config.experiments("pretrain_fake").glob("*/*")))
    time.sleep(chance.uniform(0, 0.35))
    process.kill()
    output, _ = process.communicate()
    seen(tracebacks=output.count("Traceback"))
    # Two at once, as impatient people do: neither may submit what the other does.
    finished(*(start("jobs", "reconcile") for _ in range(1 + moment % 2)))
    runs, unreadable = store.all_runs(config)
    assert unreadable == []
    assert names(scheduler) == sorted(run.id for run in runs)
    assert all(run.scheduler_id for run in runs)
    finished(start("submit-all", jobs, "--resume"))
    runs, _ = store.all_runs(config)
    there, recorded = Counter(names(scheduler)), Counter(run.id for run in runs)
    seen(lost=(recorded - there).total(), doubled=(there - recorded).total())
    assert names(scheduler) == sorted(run.id for run in runs)
    assert len({(run.job.scale, run.job.repeat) for run in runs}) == len(runs) == JOBS


@pytest.mark.slow
def test_two_submitters_at_once_submit_twice_as_many_and_each_once(
    start: Start, jobs: Path, scheduler: Scheduler, config: ClusterConfig
) -> None:
    finished(start("submit-all", jobs), start("submit-all", jobs))
    runs, _ = store.all_runs(config)
    assert names(scheduler) == sorted(run.id for run in runs)
    assert len({run.id for run in runs}) == len({run.directory for run in runs}) == 2 * JOBS
    assert all(record.load(run.directory).scheduler_id for run in runs)


@pytest.mark.slow
def test_two_that_resume_at_once_submit_the_list_once(
    start: Start, jobs: Path, scheduler: Scheduler, config: ClusterConfig
) -> None:
    finished(start("submit-all", jobs, "--resume"), start("submit-all", jobs, "--resume"))
    runs, _ = store.all_runs(config)
    assert len(runs) == JOBS
    assert names(scheduler) == sorted(run.id for run in runs)


@pytest.mark.slow
def test_reconcile_beside_a_living_submitter_takes_nothing_from_it(
    start: Start, jobs: Path, scheduler: Scheduler, config: ClusterConfig
) -> None:
    submitter = start("submit-all", jobs)
    wait_for(lambda: scheduler.jobs())
    finished(start("jobs", "reconcile"), start("jobs", "list"), submitter)
    runs, _ = store.all_runs(config)
    assert len(runs) == JOBS
    assert names(scheduler) == sorted(run.id for run in runs)


def killed(
    process: "subprocess.Popen[str]", chance: random.Random, begun: Callable[[], int]
) -> str:
    """Kill a command some time after it has begun something, unless it ends by itself."""
    before = begun()
    while begun() == before and process.poll() is None:
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 0.2))
    process.kill()
    return process.communicate()[0]


@pytest.mark.slow
@pytest.mark.fault("again-kills")
@pytest.mark.parametrize("moment", range(MOMENTS))
def test_killed_again_and_again_while_it_resumes(
    moment: int,
    start: Start,
    jobs: Path,
    scheduler: Scheduler,
    config: ClusterConfig,
    seen: Callable[..., None],
) -> None:
    chance = random.Random(moment)

    def begun() -> int:
        return len([*config.experiments("pretrain_fake").glob("*/*/")])

    kills = 0
    for _ in range(4):
        process = start("submit-all", jobs, "--resume", "--max-in-queue", "30")
        output = killed(process, chance, begun)
        kills += process.returncode == -9
        seen(tracebacks=output.count("Traceback"))
    finished(start("submit-all", jobs, "--resume"))
    runs, unreadable = store.all_runs(config)
    there, recorded = Counter(names(scheduler)), Counter(run.id for run in runs)
    seen(tried=kills, lost=(recorded - there).total(), doubled=(there - recorded).total())
    assert unreadable == []
    assert names(scheduler) == sorted(run.id for run in runs)
    assert len({(run.job.scale, run.job.repeat) for run in runs}) == len(runs) == JOBS


@pytest.mark.slow
@pytest.mark.fault("again-kills")
@pytest.mark.parametrize("moment", range(MOMENTS))
def test_killed_again_and_again_while_it_retries(
    moment: int,
    start: Start,
    jobs: Path,
    scheduler: Scheduler,
    config: ClusterConfig,
    seen: Callable[..., None],
) -> None:
    chance = random.Random(moment)
    scheduler.behave(Behaviour(script={"*": ("RUNNING", "FAILED")}))
    process = start("submit-all", jobs, "--wait")
    process.communicate(timeout=600)
    assert process.returncode == 3
    scheduler.behave(Behaviour(script={"*": ("RUNNING",)}, before=0.004, after=0.004))

    def begun() -> int:
        return len([*config.experiments("pretrain_fake").glob("*/*/attempt-2")])

    kills = 0
    for _ in range(4):
        process = start("jobs", "retry", "--failed")
        output = killed(process, chance, begun)
        kills += process.returncode == -9
        seen(tracebacks=output.count("Traceback"))
    finished(start("jobs", "reconcile"), start("jobs", "reconcile"))
    finished(start("jobs", "retry", "--failed"))
    runs, unreadable = store.all_runs(config)
    stamps = Counter(name for run in runs for name in (run.id, run.stamp.id))
    there = Counter(names(scheduler))
    seen(tried=kills, lost=(stamps - there).total(), doubled=(there - stamps).total())
    assert unreadable == []
    assert {run.attempt for run in runs} == {2}
    assert there == stamps
    assert len(there) == there.total() == 2 * JOBS


@pytest.mark.slow
@pytest.mark.fault("again-kills")
@pytest.mark.parametrize("moment", range(MOMENTS))
def test_killed_while_it_submits_the_rest_of_a_list(
    moment: int,
    start: Start,
    jobs: Path,
    scheduler: Scheduler,
    config: ClusterConfig,
    seen: Callable[..., None],
) -> None:
    """The queue takes four jobs, and --wait submits others as they end."""
    chance = random.Random(moment)
    scheduler.behave(
        Behaviour(script={"*": ("RUNNING", "COMPLETED")}, places=4, before=0.004, after=0.004)
    )
    kills = 0
    for _ in range(3):
        process = start("submit-all", jobs, "--resume", "--wait")
        wait_for(lambda: scheduler.jobs())
        time.sleep(chance.uniform(0, 1.5))
        process.kill()
        output = process.communicate()[0]
        kills += process.returncode == -9
        seen(tracebacks=output.count("Traceback"))
    finished(start("submit-all", jobs, "--resume", "--wait"))
    runs, unreadable = store.all_runs(config)
    there, recorded = Counter(names(scheduler)), Counter(run.id for run in runs)
    seen(tried=kills, lost=(recorded - there).total(), doubled=(there - recorded).total())
    assert unreadable == []
    assert there == recorded
    assert len(runs) == JOBS
