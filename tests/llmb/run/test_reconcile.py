# SPDX-License-Identifier: Apache-2.0
"""Tests of what a killed submitter leaves: found again, submitted once, or left to whoever is at
it.
"""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.contract import record
from llmb.contract.cluster import Pace
from llmb.contract.record import RunRecord
from llmb.contract.state import CANCELLED, FAILED, NOT_SUBMITTED, PENDING, RUNNING, UNKNOWN
from llmb.core import files
from llmb.core.process import ProcessId, is_at_work
from llmb.errors import LlmbError
from llmb.run import store
from llmb.run.follow import Watcher, cancel, wait
from llmb.run.polling import poll
from llmb.run.reconcile import recover, resubmit
from llmb.run.submission import submission_lock
from llmb_testing.fake_cluster import FakeCluster
from llmb_testing.scheduler import Behaviour, Scheduler

Submitted = Callable[..., list[RunRecord]]


@pytest.fixture
def crashed(submitted: Submitted) -> Callable[..., RunRecord]:
    """A run whose submitter was killed: ``taken`` after the scheduler had it, else before."""

    def make(*, taken: bool) -> RunRecord:
        (run,) = submitted(1)
        lost = replace(run, scheduler_id=None)
        record.save(lost)
        if not taken:
            for path in run.directory.parents[4].glob("fake-scheduler/jobs/*.json"):
                path.unlink()
        return lost

    return make


@pytest.fixture
def holder(crashed: Callable[..., RunRecord]) -> Iterator[Callable[[RunRecord], None]]:
    """Lets another process hold a run's lock."""
    started: list[subprocess.Popen[bytes]] = []

    def hold(run: RunRecord) -> None:
        code = (
            "import sys, time; from pathlib import Path; from llmb.core import locks\nwith"
            " locks.hold(Path(sys.argv[1]), 'submission'):\n    print(flush=True); time.sleep(600)"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(run.directory)], stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()

    yield hold
    for process in started:
        process.kill()
        process.communicate()


def test_a_run_that_was_taken_gets_its_id_by_any_poll(
    crashed: Callable[..., RunRecord], fake: FakeCluster
) -> None:
    run = crashed(taken=True)
    assert poll(fake, [run])[run.id].state == PENDING
    assert record.load(run.directory).scheduler_id == "1"
    assert poll(fake, [run])[run.id].state == RUNNING


def test_one_that_was_not_taken_is_shown_and_submitted_once(
    crashed: Callable[..., RunRecord], fake: FakeCluster, scheduler: Scheduler
) -> None:
    run = crashed(taken=False)
    assert poll(fake, [run])[run.id] == recover(fake, [run])[1][run.id]
    assert poll(fake, [run])[run.id].state == NOT_SUBMITTED
    assert store.seen_state(run) is None
    for _ in range(3):  # whoever comes later, with the record as it was
        results, interrupted = resubmit(fake, [run])
        assert [one.error for one in results] == [None]
        assert not interrupted
    assert [job.name for job in scheduler.jobs()] == [run.id]
    assert record.load(run.directory).scheduler_id == "1"


def test_a_run_taken_meanwhile_is_not_submitted_again(
    crashed: Callable[..., RunRecord], fake: FakeCluster, scheduler: Scheduler
) -> None:
    run = crashed(taken=False)
    assert recover(fake, [run])[1][run.id].state == NOT_SUBMITTED
    # an sbatch of the killed submitter was still on its way
    scheduler.submit(run.stamp.id, run.work)
    resubmit(fake, [run])
    assert len(scheduler.jobs()) == 1
    assert record.load(run.directory).scheduler_id == "1"


def test_a_submission_on_its_way_is_waited_for(
    crashed: Callable[..., RunRecord], fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = crashed(taken=False)
    slept: list[float] = []
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    resubmit(replace(fake, pace=Pace(arrival_timeout=1000)), [run], on_wait=waits.append)
    assert waits == slept[:1]
    assert 900 < waits[0] <= 1000


def test_where_no_sender_is_at_work_any_more_little_is_waited(
    crashed: Callable[..., RunRecord], fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = crashed(taken=False)
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    resubmit(replace(fake, pace=Pace(arrival_timeout=1000, sender="sbatch", arrive=2)), [run])
    assert slept[:1] == [2]


@pytest.fixture
def send(tmp_path: Path) -> Callable[[RunRecord], subprocess.Popen[bytes]]:
    """Starts a program called sbatch that is at work on a run's script until it reads a line."""

    def start(run: RunRecord) -> subprocess.Popen[bytes]:
        sender = tmp_path / "sbatch"
        sender.write_text("#!/bin/sh\nread -r line\n")
        sender.chmod(0o755)
        process = subprocess.Popen(
            [str(sender), "--parsable", str(run.script)], stdin=subprocess.PIPE
        )
        # for a moment the system shows no words of it
        while not is_at_work("sbatch", (str(run.script),)):
            assert process.poll() is None
        return process

    return start


def test_a_sender_that_outlives_its_submitter_is_waited_for(
    crashed: Callable[..., RunRecord],
    fake: FakeCluster,
    scheduler: Scheduler,
    send: Callable[[RunRecord], subprocess.Popen[bytes]],
) -> None:
    """However long it takes: here until it has been seen, and has then submitted the run after
    all.
    """
    run = crashed(taken=False)
    process = send(run)
    waits: list[float] = []

    def arrive(seconds: float) -> None:
        waits.append(seconds)
        assert process.poll() is None
        scheduler.submit(run.stamp.id, run.work)
        process.communicate(b"\n")

    resubmit(
        replace(fake, pace=Pace(arrival_timeout=1000, sender="sbatch", arrive=0)),
        [run],
        on_wait=arrive,
    )
    assert waits == [0]
    assert [job.name for job in scheduler.jobs()] == [run.id]


def test_a_sender_that_is_seen_only_later_is_waited_for_too(
    crashed: Callable[..., RunRecord],
    fake: FakeCluster,
    scheduler: Scheduler,
    send: Callable[[RunRecord], subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The submitter was killed when it had just started it."""
    run = crashed(taken=False)
    started: list[subprocess.Popen[bytes]] = []
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 1:
            started.append(send(run))
        elif len(slept) == 2:
            scheduler.submit(run.stamp.id, run.work)
            started[0].communicate(b"\n")

    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", sleep)
        resubmit(replace(fake, pace=Pace(arrival_timeout=1000, sender="sbatch", arrive=2)), [run])
    assert (slept[0], slept[-1]) == (2, 2)
    assert [job.name for job in scheduler.jobs()] == [run.id]


def test_what_another_process_submits_is_left_to_it(
    crashed: Callable[..., RunRecord],
    holder: Callable[[RunRecord], None],
    fake: FakeCluster,
    scheduler: Scheduler,
    wording: Callable[..., None],
) -> None:
    run = crashed(taken=False)
    holder(run)
    state = poll(fake, [run])[run.id]
    assert state.state == PENDING
    wording("jobs list", re.sub(r"process \d+ on \S+", "process <pid> on <host>", state.reason))
    results, _ = resubmit(fake, [run])
    assert [(one.run.scheduler_id, one.error) for one in results] == [(None, None)]
    left = cancel(fake, [run]).not_cancelled
    assert [(one.id, why) for one, why in left] == [(run.id, state.reason)]
    assert scheduler.jobs() == []


def test_a_script_that_was_not_written_any_more_is_written(
    crashed: Callable[..., RunRecord], fake: FakeCluster
) -> None:
    run = crashed(taken=False)
    run.script.unlink()
    resubmit(fake, [run])
    assert record.load(run.directory).scheduler_id == "1"
    assert run.script.read_text() == fake.render(run.launch, run.stamp)


def test_a_refusal_of_the_second_try_is_an_end(
    crashed: Callable[..., RunRecord], fake: FakeCluster, scheduler: Scheduler
) -> None:
    run = crashed(taken=False)
    scheduler.behave(Behaviour(refuse=("*",)))
    (one,) = resubmit(fake, [run])[0]
    assert one.error is not None
    assert poll(fake, [run])[run.id].state == FAILED


def test_a_cluster_that_cannot_tell_leaves_it_unknown(
    crashed: Callable[..., RunRecord], fake: FakeCluster, scheduler: Scheduler
) -> None:
    run = crashed(taken=False)
    scheduler.behave(Behaviour(down=True))
    found = poll(fake, [run])[run.id]
    assert (found.state, found.is_doubtful, found.is_elsewhere) == (UNKNOWN, True, False)
    (one,) = resubmit(fake, [run])[0]
    assert isinstance(one.error, LlmbError)
    scheduler.behave(Behaviour())
    assert poll(fake, [run])[run.id].state == NOT_SUBMITTED


def test_a_run_whose_folder_is_gone_spoils_no_poll(
    crashed: Callable[..., RunRecord], fake: FakeCluster
) -> None:
    run, other = crashed(taken=False), crashed(taken=True)
    (run.directory / record.RECORD).unlink()
    states = poll(fake, [run, other])
    assert (states[run.id].state, states[other.id].state) == (UNKNOWN, PENDING)


def test_runs_of_others_are_found_without_writing(
    crashed: Callable[..., RunRecord], fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = crashed(taken=True)

    def refuse(path: Path, text: str, *, mode: int = 0, durable: bool = True) -> bool:
        raise LlmbError(f"{path} cannot be written: Permission denied")

    monkeypatch.setattr(files, "create_text", refuse)
    assert [one.scheduler_id for one in recover(fake, [run])[0]] == ["1"]
    assert record.load(run.directory).scheduler_id is None


@pytest.mark.parametrize("change", [{"attempt": 2}, {"scheduler_id": "9"}])
def test_what_another_process_records_during_the_search_stays(
    change: dict[str, Any],
    crashed: Callable[..., RunRecord],
    fake: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A retry, whose job is another one, or the id that the other process found."""
    run = crashed(taken=True)
    changed = replace(run, **change)
    find = FakeCluster.find

    def find_slowly(cluster: FakeCluster, runs: Sequence[RunRecord]) -> Mapping[str, str]:
        record.save(changed)
        return find(cluster, runs)

    monkeypatch.setattr(FakeCluster, "find", find_slowly)
    recover(fake, [run])
    assert record.load(run.directory) == changed


def test_waiting_does_not_wait_for_what_nobody_submits(
    crashed: Callable[..., RunRecord], submitted: Submitted, fake: FakeCluster
) -> None:
    run = crashed(taken=False)
    (good,) = submitted(1)
    _, states = wait(fake, [run, good], Watcher())
    assert states[run.id].state == NOT_SUBMITTED
    assert states[good.id].is_end


def test_cancelling_ends_it_for_good(
    crashed: Callable[..., RunRecord], fake: FakeCluster, scheduler: Scheduler
) -> None:
    run = crashed(taken=False)
    assert [one.id for one in cancel(fake, [run]).cancelling] == [run.id]
    resubmit(fake, [run])
    assert scheduler.jobs() == []
    assert poll(fake, [run])[run.id].state == CANCELLED
    assert [state.state for _, state in cancel(fake, [run]).ended] == [CANCELLED]


def test_cancelling_what_was_found_only_now_reaches_the_scheduler(
    crashed: Callable[..., RunRecord], fake: FakeCluster, scheduler: Scheduler
) -> None:
    run = crashed(taken=True)
    assert [one.scheduler_id for one in cancel(fake, [run]).cancelling] == ["1"]
    assert [job.state for job in scheduler.jobs()] == [CANCELLED]


def test_the_lock_of_this_process_is_distinguished_from_a_dead_ones(
    crashed: Callable[..., RunRecord], fake: FakeCluster
) -> None:
    run = crashed(taken=False)
    with submission_lock(run):
        assert ProcessId.current().host in recover(fake, [run])[1][run.id].reason
    assert recover(fake, [run])[1][run.id].state == NOT_SUBMITTED
