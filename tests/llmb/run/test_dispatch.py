# SPDX-License-Identifier: Apache-2.0
"""Tests of handing runs to a cluster: whose a record is, what a refusal and a lost answer leave,
what Ctrl-C does.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from llmb.contract import record
from llmb.contract.cluster import Pace, UnclearError
from llmb.contract.record import RunRecord
from llmb.contract.schema import ClusterConfig
from llmb.contract.state import FAILED
from llmb.core import files
from llmb.core.locks import LockHeldError
from llmb.core.process import ProcessId
from llmb.errors import LlmbError
from llmb.run import store
from llmb.run.prepare import Prepared
from llmb.run.submission import Sent, SubmitResult, submission_lock, submitter_of
from llmb.run.submit import submit
from llmb_testing.fake_cluster import FakeCluster
from llmb_testing.scheduler import Behaviour, Scheduler

Items = Callable[..., list[Prepared]]


def send(items: list[Prepared], cluster: FakeCluster, config: ClusterConfig) -> Sent[Prepared]:
    return submit(items, cluster, config, "1")


def test_the_records_lie_in_the_order_of_the_list(
    items: Items, fake: FakeCluster, scheduler: Scheduler, config: ClusterConfig
) -> None:
    outcome = send(items(30), fake, config)
    assert [run.job.repeat for run in outcome.submitted] == list(range(1, 31))
    assert [run.id for run in store.all_runs(config)[0]] == [run.id for run in outcome.submitted]
    assert sorted(job.name for job in scheduler.jobs()) == sorted(
        run.id for run in outcome.submitted
    )


def test_runs_are_reported_in_the_order_of_the_list(
    items: Items, fake: FakeCluster, config: ClusterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where the first submission ends last."""
    others, reported = threading.Semaphore(0), list[int]()

    def late(self: FakeCluster, run: RunRecord) -> str:
        if run.job.repeat == 1:
            for _ in range(3):
                others.acquire()
        else:
            others.release()
        return str(run.job.repeat)

    monkeypatch.setattr(FakeCluster, "submit", late)
    many = replace(fake, pace=Pace(parallel=4))
    outcome = submit(
        items(4), many, config, "1", on_result=lambda one: reported.append(one.run.job.repeat)
    )
    assert reported == [1, 2, 3, 4]
    assert [run.job.repeat for run in outcome.submitted] == [1, 2, 3, 4]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_submission_is_reported_though_an_earlier_one_ends_with_an_exception(
    error: type[BaseException],
    items: Items,
    fake: FakeCluster,
    config: ClusterConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the first one does when a program of the scheduler hangs and Ctrl-C comes twice."""
    others, reported = threading.Semaphore(0), list[int]()

    def broken(self: FakeCluster, run: RunRecord) -> str:
        if run.job.repeat > 1:
            others.release()
            return str(run.job.repeat)
        for _ in range(3):
            others.acquire()
        time.sleep(0.3)
        raise error

    monkeypatch.setattr(FakeCluster, "submit", broken)
    many = replace(fake, pace=Pace(parallel=4))
    with pytest.raises(error):
        submit(
            items(4), many, config, "1", on_result=lambda one: reported.append(one.run.job.repeat)
        )
    assert reported == [2, 3, 4]


def test_a_record_belongs_to_its_submitter_until_it_is_submitted(
    items: Items, fake: FakeCluster, config: ClusterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners: list[ProcessId | None] = []

    def look(self: FakeCluster, run: RunRecord) -> str:
        owners.append(submitter_of(run))
        with pytest.raises(LockHeldError), submission_lock(run):
            pass
        return "7"

    monkeypatch.setattr(FakeCluster, "submit", look)
    (run,) = send(items(1), fake, config).submitted
    assert owners == [ProcessId.current()]
    assert submitter_of(run) is None


def test_a_refusal_ends_the_run_with_its_reason_and_leaves_no_record_of_the_rest(
    items: Items, fake: FakeCluster, scheduler: Scheduler, config: ClusterConfig
) -> None:
    scheduler.behave(Behaviour(refuse=("*",)))
    outcome = send(items(9), replace(fake, pace=Pace(parallel=1)), config)
    (refused,) = outcome.refused
    (on_disk,) = store.all_runs(config)[0]
    seen = store.seen_state(on_disk)
    assert seen is not None
    assert (seen.state, seen.is_refused) == (FAILED, True)
    assert str(refused.error) in seen.reason
    assert len(outcome.untried) == 8
    assert scheduler.jobs() == []


def test_a_lost_answer_is_looked_up_at_once(
    items: Items, fake: FakeCluster, scheduler: Scheduler, config: ClusterConfig
) -> None:
    scheduler.behave(Behaviour(silent=("*",)))
    (run,) = send(items(1), fake, config).submitted
    assert run.scheduler_id == "1"
    assert record.load(run.directory) == run


def test_what_nobody_knows_is_no_end(
    items: Items,
    fake: FakeCluster,
    scheduler: Scheduler,
    config: ClusterConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler.behave(Behaviour(silent=("*",)))

    def fail(self: FakeCluster, runs: object) -> None:
        raise LlmbError("the controller is down")

    monkeypatch.setattr(FakeCluster, "find", fail)
    outcome = send(items(1), fake, config)
    (unclear,) = outcome.refused
    assert isinstance(unclear.error, UnclearError)
    assert record.load(unclear.run.directory).scheduler_id is None
    assert store.seen_state(unclear.run) is None


def test_a_full_disk_is_a_refusal_that_nothing_ran_for(
    items: Items,
    fake: FakeCluster,
    scheduler: Scheduler,
    config: ClusterConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(path: Path, text: str, *, mode: int = 0, durable: bool = True) -> None:
        raise LlmbError("no space left")

    monkeypatch.setattr(files, "write_text", fail)
    (refused,) = send(items(1), fake, config).refused
    assert str(refused.error) == "no space left"
    assert scheduler.jobs() == []
    assert store.all_runs(config) == ([], [])


@pytest.mark.parametrize("parallel", [1, 4])
def test_ctrl_c_finishes_what_is_under_way_and_begins_no_more(
    parallel: int, items: Items, fake: FakeCluster, scheduler: Scheduler, config: ClusterConfig
) -> None:
    reported: list[str] = []
    begun: list[int] = []

    def interrupt(result: SubmitResult) -> None:
        if not reported:
            begun[:] = [len([*config.llmb_install.glob("workloads/*/experiments/*/*")])]
            os.kill(os.getpid(), signal.SIGINT)

    outcome = submit(
        items(20),
        replace(fake, pace=Pace(parallel=parallel)),
        config,
        "1",
        on_result=interrupt,
        on_interrupt=lambda: reported.append("interrupted"),
    )
    assert outcome.interrupted
    assert reported == ["interrupted"]
    assert [len(outcome.submitted)] == begun
    assert len(outcome.submitted) + len(outcome.untried) == 20
    assert {run.id for run in store.all_runs(config)[0]} == {job.name for job in scheduler.jobs()}
    assert all(record.load(run.directory).scheduler_id for run in outcome.submitted)
