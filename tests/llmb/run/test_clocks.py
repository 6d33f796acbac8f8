# SPDX-License-Identifier: Apache-2.0
"""Tests of clocks that are set back or ahead while runs exist, and of the hour that a time zone has
twice.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pytest

from llmb.builtin.slurm import commands
from llmb.builtin.slurm.poll import Memory, Poller
from llmb.contract import record
from llmb.contract.cluster import Pace
from llmb.contract.record import RunRecord
from llmb.contract.state import RUNNING, JobState
from llmb.core import times
from llmb.core.process import ProcessId
from llmb.run import reconcile, store
from llmb_testing.fake_cluster import FakeCluster
from llmb_testing.scheduler import Behaviour, Scheduler

pytestmark = pytest.mark.fault("clocks")

Submitted = Callable[..., list[RunRecord]]
HOUR = 3600.0
# 2026-10-25 02:30 in Berlin, before and after the clock is set back by an hour.
TWICE = (1792888200.0, 1792891800.0)


@pytest.mark.parametrize("ahead", [-HOUR, HOUR, 20 * 365 * 24 * HOUR])
def test_a_submission_of_later_is_waited_for_no_longer_than_one_of_now(
    ahead: float, fake: FakeCluster, submitted: Submitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record was written by another machine, whose submission cannot be seen here."""
    (run,) = submitted(1)
    elsewhere = ProcessId(host="elsewhere", boot="x", pid=1, start=1.0)
    lost = replace(run, scheduler_id=None, submitter=elsewhere)
    record.save(lost)
    path = run.directory / record.RECORD
    os.utime(path, (time.time() + ahead, time.time() + ahead))
    slept: list[float] = []
    monkeypatch.setattr("llmb.run.reconcile.time.sleep", slept.append)
    pace = Pace(arrival_timeout=20.0, arrive=1.0)
    reconcile.resubmit(replace(fake, pace=pace), [lost])
    assert sum(slept) <= 21.0


def test_a_run_of_later_is_looked_for_in_accounting(
    submitted: Submitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = submitted(1)
    later = replace(run, scheduler_id=None, created=time.time() + HOUR)
    asked: list[float] = []

    def accounted(_client: object, *, within: float, **_: object) -> list[commands.JobRow]:
        asked.append(within)
        return []

    monkeypatch.setattr(commands, "queued", lambda *_, **__: [])
    monkeypatch.setattr(commands, "scripts", lambda _: iter(()))
    monkeypatch.setattr(commands, "accounted", accounted)
    poller = Poller(client=commands.Client(environ={}), memory=Memory())
    assert poller.find([later]) == {}
    assert asked
    assert asked[0] > 0


def test_a_job_that_starts_later_has_not_run_yet(
    llmb: Callable[..., "subprocess.CompletedProcess[str]"],
    scheduler: Scheduler,
    submitted: Submitted,
) -> None:
    """The cluster's clock is ahead of this machine's."""
    scheduler.behave(Behaviour(script={"*": (RUNNING,)}))
    (run,) = submitted(1)
    store.save_state(run, JobState(state=RUNNING, started=time.time() + HOUR))
    (row,) = json.loads(llmb("jobs", "list", "--format", "json").stdout)
    assert row["ran"] in (None, "00:00:00")


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_times_of_the_hour_that_comes_twice_have_their_offsets() -> None:
    shown = [times.iso(seconds) for seconds in TWICE]
    assert shown == ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00"]
    assert [times.since(str(text), 0.0) for text in shown] == [*TWICE]


@pytest.mark.usefixtures("berlin")
def test_an_age_is_one_of_elapsed_hours() -> None:
    assert times.since("1h", TWICE[1]) == TWICE[0]
    assert times.since("1d", TWICE[1]) == TWICE[1] - 24 * HOUR


@pytest.mark.usefixtures("berlin")
def test_steps_within_the_hour_that_comes_twice_keep_their_times(submitted: Submitted) -> None:
    """A state that began before the change and is seen after it."""
    (run,) = submitted(1)
    states: Mapping[str, JobState] = {
        run.id: store.save_state(
            run, JobState(state="COMPLETED", exit_code=0, started=TWICE[0], ended=TWICE[1])
        )
    }
    state = states[run.id]
    assert state.ended is not None
    assert state.started is not None
    assert times.clock(state.ended - state.started) == "01:00:00"
