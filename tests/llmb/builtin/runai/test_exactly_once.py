# SPDX-License-Identifier: Apache-2.0
"""Each run exactly once in Run:ai: llmb-run killed at any moment, and answers that never come.

LLMB_TEST_KILLS gives the full count, 50.
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
from llmb_testing.runai import ControlPlane, Trouble

pytestmark = pytest.mark.fault("runai-answers")

Site = Any  # the class is in conftest.py
Start = Callable[..., "subprocess.Popen[str]"]

KILLS = int(os.environ.get("LLMB_TEST_KILLS", "1"))
JOBS = 30
ONE = ("single", "-w", "nemotron4", "-s", "15b", "--dtype", "bf16", "--scale", "16")
CREATE = "/workloads/(trainings|distributed)"


@pytest.fixture
def start(paper_site: Site, llmb_start: Start) -> Start:
    """Starts the real llmb-run on the cluster."""
    return lambda *arguments: llmb_start(
        *arguments, "--install", paper_site.install, **paper_site.environ
    )


def runs_of(site: Site) -> list[RunRecord]:
    runs, unreadable = store.all_runs(site.config)
    assert unreadable == []
    return runs


def is_there_once(site: Site, paper: ControlPlane, seen: Callable[..., None]) -> None:
    """Each record has one workload, the one that it names, and there is no other."""
    there = Counter(
        f"{workload.name.rpartition('-')[2]} {workload.id}" for workload in paper.workloads
    )
    recorded = Counter(f"{run.id} {run.scheduler_id}" for run in runs_of(site))
    seen(lost=(recorded - there).total(), doubled=(there - recorded).total())
    assert there == recorded


@pytest.mark.slow
@pytest.mark.fault("runai-kills")
@pytest.mark.parametrize("moment", range(KILLS))
def test_killed_at_any_moment_each_run_is_there_once_and_none_is_lost(
    moment: int, start: Start, paper_site: Site, paper: ControlPlane, seen: Callable[..., None]
) -> None:
    stop_at = random.Random(moment).randint(1, JOBS)
    paper.trouble(Trouble(path=CREATE, answer=429, times=2))
    process = start(*ONE, "--repeats", JOBS)
    while len(paper.workloads) < stop_at and process.poll() is None:
        time.sleep(0.001)
    process.kill()
    printed, _ = process.communicate()
    seen(tracebacks=printed.count("Traceback"))
    done = paper_site.llmb("jobs", "reconcile")
    assert done.returncode == 0, done.stderr
    is_there_once(paper_site, paper, seen)
    done = paper_site.llmb(*ONE, "--repeats", JOBS, "--resume")
    assert done.returncode == 0, done.stderr
    is_there_once(paper_site, paper, seen)
    assert sorted(run.job.repeat for run in runs_of(paper_site)) == [*range(1, JOBS + 1)]


def test_answers_that_were_lost_are_found_at_once(
    paper_site: Site, paper: ControlPlane, seen: Callable[..., None]
) -> None:
    paper.trouble(Trouble(path=CREATE, answer="lost", times=3))
    done = paper_site.llmb(*ONE, "--repeats", 6)
    assert done.returncode == 0, done.stderr
    is_there_once(paper_site, paper, seen)
    assert len(paper.workloads) == 6


@pytest.mark.parametrize(
    "answer", [None, [], {}, {"workloadId": 7}, {"workloadId": ""}, "<html>", {"name": "x"}]
)
def test_odd_answers_to_a_creation_are_no_refusals(
    answer: Any, paper_site: Site, paper: ControlPlane, seen: Callable[..., None]
) -> None:
    """The workload is there: it is found by its name, and the run is neither failed nor submitted
    twice.
    """
    paper.trouble(Trouble(path=CREATE, answer="odd", data=answer))
    done = paper_site.llmb(*ONE)
    assert done.returncode == 0, done.stderr
    is_there_once(paper_site, paper, seen)


def test_a_server_error_leaves_open_whether_the_workload_was_made(
    paper_site: Site, paper: ControlPlane, wording: Callable[..., None]
) -> None:
    paper.trouble(Trouble(path=CREATE, answer=500))
    done = paper_site.llmb(*ONE)
    assert done.returncode == 1
    (run,) = runs_of(paper_site)
    wording("single", done.stderr, {run.name: "<name>", run.id: "<run>"})
    assert store.seen_state(run) is None  # no end was made of it


@pytest.mark.parametrize(
    "answer", [[], {"workloads": [7, None, {}, {"id": []}, {"name": {}}]}, {"workloads": {}}, "x"]
)
def test_odd_lists_are_no_answers(answer: Any, paper_site: Site, paper: ControlPlane) -> None:
    done = paper_site.llmb(*ONE, "--repeats", 5)
    assert done.returncode == 0, done.stderr
    paper.trouble(Trouble(path="/workloads", answer="odd", data=answer))
    done = paper_site.llmb("jobs", "list", "--session", "all", "--format", "json")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert not any(
        seen.is_end for run in runs_of(paper_site) if (seen := store.seen_state(run)) is not None
    )


def test_requests_that_were_cut_before_they_arrived_are_sent_by_reconcile(
    paper_site: Site, paper: ControlPlane, seen: Callable[..., None]
) -> None:
    paper.trouble(Trouble(path=CREATE, answer="cut", times=2))
    done = paper_site.llmb(*ONE, "--repeats", 5, "--keep-going")
    assert done.returncode == 1
    assert len(paper.workloads) == 3
    assert "jobs reconcile" in done.stderr
    done = paper_site.llmb("jobs", "reconcile")
    assert done.returncode == 0, done.stderr
    is_there_once(paper_site, paper, seen)
    assert len(paper.workloads) == 5


def test_a_storm_while_tokens_are_withdrawn_costs_nothing(
    paper_site: Site, paper: ControlPlane, seen: Callable[..., None]
) -> None:
    def withdraw(body: object) -> list[dict[str, str]]:
        if len(paper.workloads) in (3, 6):
            paper.expire_tokens()
        return []

    paper.issues = withdraw
    paper.trouble(*(Trouble(path=CREATE, answer=status, times=4) for status in (429, 503)))
    done = paper_site.llmb(*ONE, "--repeats", 8)
    assert done.returncode == 0, done.stderr
    is_there_once(paper_site, paper, seen)
    assert len(paper.workloads) == 8
    assert 401 in paper.answers
