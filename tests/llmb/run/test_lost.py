# SPDX-License-Identifier: Apache-2.0
"""Tests of runs that their cluster does not know: two looks, at the right cluster, and what comes
later counts.
"""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.contract import record, state as job_state
from llmb.contract.record import RunRecord
from llmb.contract.schema import ClusterConfig
from llmb.contract.state import COMPLETED, LOST, NOT_SUBMITTED, PENDING, RUNNING, UNKNOWN, JobState
from llmb.errors import LlmbError
from llmb.run import store
from llmb.run.follow import Watcher, cancel, wait
from llmb.run.polling import poll
from llmb.run.prepare import Prepared
from llmb.run.reconcile import resubmit
from llmb.run.resume import remaining
from llmb.run.retry import may_be_retried, retry
from llmb_testing.fake_cluster import FakeCluster, folder_of
from llmb_testing.scheduler import Behaviour, Scheduler

pytestmark = pytest.mark.fault("odd-answers")

Submitted = Callable[..., list[RunRecord]]
Command = Callable[..., Any]


def jobs_of(scheduler: Scheduler) -> list[Path]:
    return sorted((scheduler.folder / "jobs").glob("*.json"))


@pytest.fixture
def gone(submitted: Submitted, fake: FakeCluster, scheduler: Scheduler) -> RunRecord:
    """A run that was seen running; its scheduler does not know it any more."""
    scheduler.behave(Behaviour(script={"*": (RUNNING,)}))
    (run,) = submitted(1)
    poll(fake, [run])
    forget(scheduler)
    return run


def forget(scheduler: Scheduler) -> None:
    for path in jobs_of(scheduler):
        path.rename(path.with_suffix(".forgotten"))


def remember(scheduler: Scheduler) -> None:
    for path in (scheduler.folder / "jobs").glob("*.forgotten"):
        path.rename(path.with_suffix(".json"))


def passes(run: RunRecord, seconds: float) -> None:
    """Let what was kept of the run be older by so much."""
    path = run.place / store.STATE
    data = json.loads(path.read_text())
    moved = {
        key: data[key] - seconds for key in ("missing_since", "ended") if data[key] is not None
    }
    path.write_text(json.dumps({**data, **moved}))


def test_one_look_is_not_enough(gone: RunRecord, fake: FakeCluster) -> None:
    for _ in range(3):
        state = poll(fake, [gone])[gone.id]
        assert (state.state, state.is_end) == (RUNNING, False)
    passes(gone, 30)
    assert poll(fake, [gone])[gone.id].state == RUNNING
    passes(gone, 31)
    state = poll(fake, [gone])[gone.id]
    assert (state.state, state.is_over, state.is_final) == (LOST, True, False)


def test_a_look_that_finds_it_begins_anew(
    gone: RunRecord, fake: FakeCluster, scheduler: Scheduler
) -> None:
    poll(fake, [gone])
    passes(gone, 50)
    remember(scheduler)
    assert poll(fake, [gone])[gone.id].missing_since is None
    forget(scheduler)
    poll(fake, [gone])
    passes(gone, 50)
    assert poll(fake, [gone])[gone.id].state == RUNNING


def test_what_comes_later_corrects_it(
    gone: RunRecord, fake: FakeCluster, scheduler: Scheduler
) -> None:
    poll(fake, [gone])
    passes(gone, 61)
    assert poll(fake, [gone])[gone.id].state == LOST
    assert poll(fake, [gone])[gone.id].state == LOST
    scheduler.behave(Behaviour(script={"*": (COMPLETED,)}))
    remember(scheduler)
    assert poll(fake, [gone])[gone.id].state == RUNNING
    path = jobs_of(scheduler)[0]
    path.write_text(json.dumps({**json.loads(path.read_text()), "states": [COMPLETED]}))
    assert poll(fake, [gone])[gone.id].state == COMPLETED
    forget(scheduler)
    assert poll(fake, [gone])[gone.id].state == COMPLETED  # which stays


def test_what_is_certain_stays_and_needs_one_look(submitted: Submitted) -> None:
    (run,) = submitted(1)
    certain = JobState(state=LOST, reason="this machine was restarted while it ran", certain=True)
    assert job_state.confirm_lost(None, certain, 1.0) == certain
    assert certain.is_final
    store.save_state(run, certain)
    assert store.save_state(run, JobState(state=RUNNING)) == certain


def test_not_knowing_corrects_nothing(gone: RunRecord) -> None:
    lost = JobState(state=LOST, missing_since=1.0, ended=70.0)
    assert job_state.confirm_lost(lost, JobState(state=UNKNOWN), 100.0) == lost
    assert job_state.confirm_lost(lost, JobState(state=RUNNING), 100.0).state == RUNNING


def test_a_clock_that_was_set_back_hurries_nothing() -> None:
    seen = JobState(state=RUNNING, missing_since=1000.0)
    again = job_state.confirm_lost(seen, JobState(state=LOST), 500.0)
    assert (again.state, again.missing_since) == (RUNNING, 500.0)


@pytest.mark.parametrize(
    ("later", "is_allowed"),
    [(0.0, False), (599.0, False), (600.0, True), (-3.0, False), (-599.0, False), (-3600.0, True)],
)
def test_a_lost_run_is_retried_after_ten_minutes_or_a_clock_that_was_set_back(
    later: float, is_allowed: bool
) -> None:
    """A clock that is a few seconds behind, of another login node, hurries nothing."""
    lost = JobState(state=LOST, missing_since=9000.0, ended=9070.0)
    assert may_be_retried(lost, 9070.0 + later) is is_allowed


def other(fake: FakeCluster, tmp_path: Path) -> FakeCluster:
    return replace(fake, scheduler=Scheduler(tmp_path / "another"))


def test_another_cluster_is_not_believed(
    submitted: Submitted,
    fake: FakeCluster,
    scheduler: Scheduler,
    tmp_path: Path,
    wording: Callable[..., None],
) -> None:
    scheduler.behave(Behaviour(script={"*": (RUNNING,)}))
    (run,) = submitted(1)
    assert record.load(run.directory).cluster == fake.identity()
    poll(fake, [run])
    kept = (run.place / store.STATE).read_text()
    for _ in range(2):
        state = poll(other(fake, tmp_path), [run])[run.id]
        assert (state.state, state.is_elsewhere) == (RUNNING, True)
        here = other(fake, tmp_path).identity()
        wording("jobs list", state.reason, {fake.identity(): "<cluster>", here: "<here>"})
        assert (run.place / store.STATE).read_text() == kept
    troubles: list[LlmbError] = []
    with pytest.raises(LlmbError) as raised:
        wait(other(fake, tmp_path), [run], Watcher(on_trouble=troubles.append))
    assert raised.value.code == "run-elsewhere"
    assert [(error.code, error.value) for error in troubles] == [("elsewhere", run.id)]
    assert cancel(other(fake, tmp_path), [run]).not_cancelled[0][1] == state.reason
    assert poll(fake, [run])[run.id].state == RUNNING


def test_a_cut_off_submission_to_another_cluster_is_not_made_here(
    submitted: Submitted, fake: FakeCluster, scheduler: Scheduler, tmp_path: Path
) -> None:
    scheduler.behave(Behaviour(down=False))
    (run,) = submitted(1)
    record.save(replace(run, scheduler_id=None))
    forget(scheduler)
    (cut_off,) = [record.load(run.directory)]
    there = other(fake, tmp_path)
    state = poll(there, [cut_off])[run.id]
    assert (state.state, state.is_elsewhere) == (UNKNOWN, True)
    ((one,), _) = resubmit(there, [cut_off])
    assert one.error is not None
    assert (one.error.code, one.error.value) == ("run-elsewhere", run.id)
    assert there.scheduler.jobs() == []
    assert poll(fake, [cut_off])[run.id].state == NOT_SUBMITTED


def test_commands_say_that_a_run_is_elsewhere(
    llmb: Command,
    install: Path,
    submitted: Submitted,
    runs: Callable[[], list[RunRecord]],
    wording: Callable[..., None],
) -> None:
    submitted(2)
    for run in runs():
        record.save(replace(run, cluster="an-older-one"))
    forget(Scheduler(folder_of(install)))
    done = llmb("jobs", "list", "--format", "json")
    assert done.returncode == 0
    assert done.stderr.count("an-older-one") == 1
    assert not any((run.place / store.STATE).exists() for run in runs())
    done = llmb("jobs", "wait")
    assert done.returncode == 1
    hidden = {run.id: f"<run {number}>" for number, run in enumerate(runs(), 1)}
    wording("jobs wait", re.sub(r"(?m)^\d\d:\d\d:\d\d", "<time>", done.stderr), hidden)


def test_waiting_ends_when_a_run_is_lost(
    gone: RunRecord, fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_state, "CONFIRM_AFTER", 0.0)
    _, states = wait(fake, [gone], Watcher())
    assert states[gone.id].state == LOST


def test_resuming_submits_what_is_lost_as_a_new_run(
    gone: RunRecord, fake: FakeCluster, llmb: Command, scheduler: Scheduler
) -> None:
    poll(fake, [gone])
    item = Prepared(job=gone.job, launch=gone.launch)
    states = poll(fake, [gone])
    assert remaining([item], [], [gone] if not states[gone.id].is_end else []).items == ()
    passes(gone, 61)
    states = poll(fake, [gone])
    assert remaining([item], [], [gone] if not states[gone.id].is_end else []).items == (item,)


def test_another_attempt_waits_until_the_first_cannot_turn_up(
    gone: RunRecord, fake: FakeCluster, scheduler: Scheduler
) -> None:
    poll(fake, [gone])
    passes(gone, 61)
    poll(fake, [gone])
    ((one,), _) = retry(fake, [gone])
    assert one.error is not None
    assert (one.error.code, one.error.value) == ("run-just-lost", 10)
    passes(gone, 599)
    ((one,), _) = retry(fake, [gone])
    assert one.error is not None
    assert (one.error.code, one.error.value) == ("run-just-lost", 0)
    passes(gone, 2)
    scheduler.behave(Behaviour(script={"*": (PENDING,)}))
    ((one,), _) = retry(fake, [gone])
    assert (one.error, one.run.attempt, len(jobs_of(scheduler))) == (None, 2, 1)


def test_retries_while_waiting_wait_too(
    gone: RunRecord, fake: FakeCluster, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_state, "CONFIRM_AFTER", 0.0)
    scheduler.behave(Behaviour(script={"*": (COMPLETED,)}))
    rounds: list[str] = []

    def look(_runs: object, states: Any) -> None:
        rounds.append(states[gone.id].state)
        if len(rounds) == 5:
            passes(gone, 601)

    followed, states = wait(fake, [gone], Watcher(on_round=look), retries=1)
    assert (followed[0].attempt, states[gone.id].state) == (2, COMPLETED)
    assert (rounds[0], rounds[4], rounds[-1]) == (LOST, LOST, COMPLETED)


def test_records_of_before_have_no_cluster_and_are_asked_for_here(
    gone: RunRecord, fake: FakeCluster, config: ClusterConfig, tmp_path: Path
) -> None:
    path = gone.directory / record.RECORD
    data = json.loads(path.read_text())
    del data["cluster"]
    path.write_text(json.dumps(data))
    old = record.load(gone.directory)
    assert old.cluster is None
    assert poll(other(fake, tmp_path), [old])[old.id].missing_since is not None
