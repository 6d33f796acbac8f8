# SPDX-License-Identifier: Apache-2.0
"""Tests of further attempts: where their files are, what is kept of those before, and that none is
made twice.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from llmb.contract import record, state as job_state
from llmb.contract.record import RunRecord
from llmb.contract.state import COMPLETED, ENDS, FAILED, NOT_SUBMITTED, RUNNING, JobState
from llmb.errors import LlmbError
from llmb.measure.find_logs import last_attempts
from llmb.run import store
from llmb.run.follow import Watcher, wait
from llmb.run.polling import poll
from llmb.run.reconcile import resubmit
from llmb.run.retry import RETRIABLE, retry
from llmb.run.submission import SubmitResult
from llmb_testing.fake_cluster import FakeCluster
from llmb_testing.scheduler import Behaviour, Scheduler

Submitted = Callable[..., list[RunRecord]]


def end(
    fake: FakeCluster, runs: list[RunRecord], retries: int = 0
) -> tuple[list[RunRecord], dict[str, JobState]]:
    return wait(fake, runs, Watcher(), retries=retries)


@pytest.fixture
def failed(submitted: Submitted, fake: FakeCluster, scheduler: Scheduler) -> RunRecord:
    """A run whose first attempt has failed and whose second will not."""
    scheduler.behave(Behaviour(script={"*": (RUNNING, FAILED), "*-2": (RUNNING, COMPLETED)}))
    (run,) = submitted(1)
    end(fake, [run])
    return run


def test_a_second_attempt_is_the_same_run_with_files_of_its_own(
    failed: RunRecord, fake: FakeCluster, scheduler: Scheduler
) -> None:
    ((one,), _) = retry(fake, [failed])
    assert one.error is None
    again = one.run
    assert record.load(failed.directory) == again
    assert (again.id, again.attempt, again.scheduler_id, again.job) == (
        failed.id,
        2,
        "2",
        failed.job,
    )
    (before,) = again.history
    assert (before.scheduler_id, before.submitted, before.state.state) == (
        "1",
        failed.created,
        FAILED,
    )
    assert [job.name for job in scheduler.jobs()] == [failed.id, f"{failed.id}-2"]
    assert end(fake, [again])[1][failed.id].state == COMPLETED
    assert store.seen_state(failed) == before.state
    name = failed.launch.name
    written = (path.name for path in (failed.directory / "attempt-2").iterdir())
    assert sorted(name for name in written if ".lock." not in name) == [
        f"launch_{name}",
        f"log-{name}.out",
        "state.json",
    ]
    assert again.script.read_text() == fake.render(again.launch, again.stamp)
    failed.log.write_text("of the first attempt\n")
    assert last_attempts([failed.log, again.log]) == [again.log]


def test_another_attempt_may_have_another_time_limit(failed: RunRecord, fake: FakeCluster) -> None:
    given = replace(failed.launch, slurm_args={"comment": "x", "time": "00:01:00"})
    record.save(replace(failed, launch=given))
    ((one,), _) = retry(fake, [failed], time_limit=5400)
    assert one.error is None
    assert one.run.job == replace(failed.job, time_limit=5400)
    assert one.run.launch == replace(given, time_limit=5400, slurm_args={"comment": "x"})
    assert record.load(failed.directory) == one.run


def test_a_refused_attempt_has_failed_and_may_be_retried(
    failed: RunRecord, fake: FakeCluster, scheduler: Scheduler
) -> None:
    scheduler.behave(Behaviour(refuse=("*-2",)))
    ((one,), _) = retry(fake, [failed])
    assert one.error is not None
    second = record.load(failed.directory)
    state = poll(fake, [second])[failed.id]
    assert (state.is_refused, str(one.error) in state.reason) == (True, True)
    assert isinstance(one.error, LlmbError)
    assert (one.error.code, one.error.value) == ("job-refused", f"{failed.id}-2")
    ((one,), _) = retry(fake, [second])
    assert (one.error, one.run.attempt, one.run.scheduler_id) == (None, 3, "2")
    assert [before.scheduler_id for before in one.run.history] == ["1", None]


def test_of_two_that_retry_one_run_the_second_is_refused(
    failed: RunRecord, fake: FakeCluster, scheduler: Scheduler
) -> None:
    retry(fake, [failed])
    ((one,), _) = retry(fake, [failed])
    assert isinstance(one.error, LlmbError)
    assert (one.error.code, one.error.value) == ("run-being-retried", failed.id)
    assert len(scheduler.jobs()) == 2


def test_a_stale_record_starts_no_third_attempt(
    failed: RunRecord, fake: FakeCluster, scheduler: Scheduler
) -> None:
    """Another process has made the second attempt meanwhile, and that one has failed too."""
    scheduler.behave(Behaviour(script={"*": (FAILED,)}))
    ((second,), _) = retry(fake, [failed])
    assert end(fake, [second.run])[1][failed.id].state == FAILED
    ((refused,), _) = retry(fake, [failed])
    assert refused.error is not None
    assert (refused.error.code, refused.error.value) == ("run-being-retried", failed.id)
    assert record.load(failed.directory) == second.run
    assert len(scheduler.jobs()) == 2
    ((third,), _) = retry(fake, [second.run])
    assert (third.error, third.run.attempt) == (None, 3)


def test_an_attempt_that_was_cut_off_is_submitted_again_as_that_attempt(
    failed: RunRecord, fake: FakeCluster, scheduler: Scheduler
) -> None:
    cut_off = failed.next_attempt(JobState(state=FAILED), failed.submitter, 1.0)
    cut_off.place.mkdir()
    record.save(cut_off)
    assert poll(fake, [failed])[failed.id].state == FAILED  # of the attempt that was asked for
    assert poll(fake, [cut_off])[failed.id].state == NOT_SUBMITTED
    resubmit(fake, [cut_off])
    assert [job.name for job in scheduler.jobs()] == [failed.id, f"{failed.id}-2"]


@pytest.mark.parametrize("state", sorted(RETRIABLE))
def test_what_a_node_broke_is_retried_while_waiting(
    state: str,
    submitted: Submitted,
    fake: FakeCluster,
    scheduler: Scheduler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_state, "CONFIRM_AFTER", 0.0)
    monkeypatch.setattr("llmb.run.retry.RETRY_AFTER", 0.0)
    scheduler.behave(
        Behaviour(script={"*": (RUNNING, state), "*-2": (state,), "*-3": (RUNNING, COMPLETED)})
    )
    runs = submitted(3)
    retried: list[tuple[SubmitResult, JobState]] = []
    followed, states = wait(
        fake, runs, Watcher(on_retry=lambda one, why: retried.append((one, why))), retries=2
    )
    assert {one.state for one in states.values()} == {COMPLETED}
    assert [run.attempt for run in followed] == [3, 3, 3]
    assert {(one.run.attempt, why.state) for one, why in retried} == {(2, state), (3, state)}
    assert all(run == record.load(run.directory) for run in followed)


def test_no_more_often_than_asked_for(
    submitted: Submitted, fake: FakeCluster, scheduler: Scheduler
) -> None:
    scheduler.behave(Behaviour(script={"*": ("NODE_FAIL",)}))
    followed, states = end(fake, submitted(2), retries=2)
    assert [run.attempt for run in followed] == [3, 3]
    assert {one.state for one in states.values()} == {"NODE_FAIL"}
    assert len(scheduler.jobs()) == 6


@pytest.mark.parametrize("state", sorted(ENDS - RETRIABLE - {COMPLETED}))
def test_what_the_job_did_itself_is_not_retried(
    state: str, submitted: Submitted, fake: FakeCluster, scheduler: Scheduler
) -> None:
    scheduler.behave(Behaviour(script={"*": (RUNNING, state)}))
    followed, _ = end(fake, submitted(1), retries=5)
    assert [run.attempt for run in followed] == [1]
