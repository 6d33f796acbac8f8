# SPDX-License-Identifier: Apache-2.0
"""Tests of lists that are longer than the queue: by a limit of the user, and of the scheduler."""

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from llmb.contract.cluster import QueueFullError
from llmb.contract.record import Origin, RunRecord
from llmb.contract.state import COMPLETED, FAILED, NOT_SUBMITTED, RUNNING
from llmb.core import files
from llmb.kit.seen_state import last_seen
from llmb.run import backlog
from llmb.run.submission import Sent, SubmitResult
from llmb_testing.fake_cluster import FakeCluster
from llmb_testing.scheduler import Behaviour, Scheduler

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Runs = Callable[[], list[RunRecord]]
Submitted = Callable[..., list[RunRecord]]
RunWording = Callable[[str, str], None]
ENDLESS = Behaviour(script={"*": (RUNNING,)})
CONFIG = "cluster_config.yaml"


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """A list of six jobs."""
    path = tmp_path / "jobs.txt"
    path.write_text("fake_small:\n('bf16', [8], 6)\n")
    return path


def test_the_rest_is_left_with_the_command_that_submits_it(
    llmb: Command,
    jobs: Path,
    scheduler: Scheduler,
    runs: Runs,
    run_wording: RunWording,
) -> None:
    scheduler.behave(ENDLESS)
    done = llmb("submit-all", jobs, "--max-in-queue", "4")
    assert done.returncode == 0, done.stderr
    assert len(scheduler.jobs()) == 4
    text = done.stderr.replace(str(jobs), "jobs.txt")
    run_wording("submit-all", text)
    scheduler.cancel(1)
    again = llmb("submit-all", jobs, "--max-in-queue", "4", "--resume")
    assert again.returncode == 0, again.stderr
    assert len(scheduler.jobs()) == 5
    assert len({run.session.id for run in runs() if run.session is not None}) == 1
    full = llmb("submit-all", jobs, "--max-in-queue", "4", "--resume")
    assert full.returncode == 0, full.stderr
    assert len(scheduler.jobs()) == 5


def test_with_wait_the_rest_follows_as_jobs_end(
    llmb: Command, jobs: Path, install: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    most: list[int] = []
    submitted = Scheduler.submit

    def submit(self: Scheduler, name: str, folder: Path) -> int:
        number = submitted(self, name, folder)
        most.append(sum(job.state in ("PENDING", RUNNING) for job in self.jobs()))
        return number

    monkeypatch.setattr(Scheduler, "submit", submit)
    config = yaml.safe_load((install / CONFIG).read_text())
    (install / CONFIG).write_text(yaml.safe_dump({**config, "max_in_queue": 2}))
    done = llmb("submit-all", jobs, "--wait", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["summary"]["success_experiments"] == 6
    assert max(most) == 2
    assert len(runs()) == 6


def test_runs_of_other_sessions_take_places(
    llmb: Command, jobs: Path, scheduler: Scheduler
) -> None:
    scheduler.behave(ENDLESS)
    assert llmb("submit-all", jobs, "--repeats", "3").returncode == 0
    assert llmb("submit-all", jobs, "--max-in-queue", "4").returncode == 0
    assert len(scheduler.jobs()) == 4
    before = llmb("submit-all", jobs, "--max-in-queue", "4")
    assert before.returncode == 0
    assert len(scheduler.jobs()) == 4
    assert "--resume" in before.stderr


def test_a_list_of_which_nothing_was_submitted_has_nothing_to_resume(
    llmb: Command, jobs: Path, scheduler: Scheduler
) -> None:
    """The command that it prints can be pasted: the session of this name has not begun."""
    scheduler.behave(ENDLESS)
    assert llmb("submit-all", jobs, "--repeats", "3").returncode == 0
    taken = len(scheduler.jobs())
    words = ("submit-all", jobs, "--max-in-queue", taken, "--session", "nightly")
    done = llmb(*words)
    (hint,) = [line for line in done.stderr.splitlines() if "submit the rest later" in line]
    command = shlex.split(hint.partition("later: ")[2])
    assert command == ["llmb-run", *map(str, words)]
    for job in range(1, taken + 1):
        scheduler.cancel(job)
    again = llmb(*command[1:])
    assert again.returncode == 0, again.stderr
    assert "submitting" in again.stderr


def test_a_list_that_waits_for_its_first_place_is_resumed_after_ctrl_c(
    llmb: Command, jobs: Path, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session begins while it waits, so that the rest belongs to that."""
    scheduler.behave(ENDLESS)
    assert llmb("single", "-w", "fake", "--scale", "16").returncode == 0

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("llmb.cli.progress.wait", interrupted)
    done = llmb("submit-all", jobs, "--max-in-queue", "1", "--wait")
    (left,) = [line for line in done.stderr.splitlines() if "Submit the rest: " in line]
    assert left.endswith("--wait --resume")


def test_a_run_that_a_full_queue_turned_away_is_resumed(
    llmb: Command, jobs: Path, scheduler: Scheduler, runs: Runs
) -> None:
    """Nothing was submitted, and the first run is recorded: the session has begun."""
    scheduler.behave(Behaviour(script={"*": (RUNNING,)}, places=0))
    done = llmb("submit-all", jobs, "--session", "nightly")
    (hint,) = [line for line in done.stderr.splitlines() if "submit the rest later" in line]
    assert hint.endswith("--session nightly --resume")
    assert runs()
    assert scheduler.jobs() == []


def test_a_full_queue_leaves_the_list_as_it_is(
    llmb: Command,
    jobs: Path,
    scheduler: Scheduler,
    runs: Runs,
    wording: Callable[..., None],
) -> None:
    scheduler.behave(Behaviour(script={"*": (RUNNING,)}, places=3))
    done = llmb("submit-all", jobs, "--keep-going")
    assert done.returncode == 1
    assert len(scheduler.jobs()) == 3
    *_, totals, note, hint, _ = done.stderr.splitlines()
    assert re.findall(r"\d+", totals) == ["3", "6", "3"]
    wording("submit-all", "\n".join([totals, note, hint]).replace(str(jobs), "jobs.txt"))
    rows = json.loads(llmb("jobs", "list", "--format", "json").stdout)
    assert FAILED not in {row["state"] for row in rows}
    reasons = {row["reason"] for row in rows if row["state"] == NOT_SUBMITTED}
    wording("jobs list", "\n".join(reasons).replace(str(jobs), "jobs.txt"))
    scheduler.behave(ENDLESS)
    resumed = llmb("submit-all", jobs, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert len(runs()) == 6
    assert sorted(job.name for job in scheduler.jobs()) == sorted(run.id for run in runs())
    assert [last_seen(run) for run in runs() if last_seen(run).state == NOT_SUBMITTED] == []


def test_with_wait_a_full_queue_is_tried_again(
    llmb: Command, jobs: Path, scheduler: Scheduler, runs: Runs
) -> None:
    scheduler.behave(Behaviour(script={"*": (RUNNING, COMPLETED)}, places=2))
    done = llmb("submit-all", jobs, "--wait", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["summary"]["success_experiments"] == 6
    assert sorted(job.name for job in scheduler.jobs()) == sorted(run.id for run in runs())


def test_a_full_queue_of_other_users_is_tried_again_after_a_while(
    llmb: Command, jobs: Path, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of these jobs is in the queue, so none of them can end."""
    tries: list[str] = []
    monkeypatch.setattr(backlog, "_TRY_AGAIN", 0.0)
    scheduler.behave(Behaviour(places=0))
    submitted = Scheduler.submit

    def submit(self: Scheduler, name: str, folder: Path) -> int:
        tries.append(name)
        if len(tries) > 12:
            scheduler.behave(Behaviour(script={"*": (RUNNING, COMPLETED)}))
        return submitted(self, name, folder)

    monkeypatch.setattr(Scheduler, "submit", submit)
    done = llmb("submit-all", jobs, "--wait")
    assert done.returncode == 0, done.stderr
    assert len(scheduler.jobs()) == 6


def test_a_full_queue_is_asked_again_after_an_end_and_after_30_seconds(
    submitted: Submitted, fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, tries = [1000.0], list[float]()
    monkeypatch.setattr(backlog, "time", SimpleNamespace(monotonic=lambda: seconds[0]))

    def turn_away(
        runs: Sequence[RunRecord], on_result: backlog.OnResult
    ) -> tuple[list[SubmitResult], bool]:
        tries.append(seconds[0])
        return [SubmitResult(run=run, error=QueueFullError("full")) for run in runs], False

    waiting = rest_of(submitted(2), fake, turn_away)
    in_queue = {1000: 5, 1010: 5, 1011: 4, 1040: 4, 1042: 4}
    for second, count in in_queue.items():
        seconds[0] = second
        assert waiting.refill(count, lambda result: None) == []
    assert tries == [1000, 1011, 1042]


def test_the_end_of_a_run_that_has_just_been_sent_counts_too(
    submitted: Submitted, fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue has a place for the first of four runs, and after its end for the next."""
    monkeypatch.setattr(backlog, "time", SimpleNamespace(monotonic=lambda: 1000.0))

    def send_first(
        runs: Sequence[RunRecord], on_result: backlog.OnResult
    ) -> tuple[list[SubmitResult], bool]:
        first, second, *_ = runs
        full = SubmitResult(run=second, error=QueueFullError("full"))
        return [SubmitResult(run=first), full], False

    runs = submitted(4)
    waiting = rest_of(runs, fake, send_first)
    sent = [
        [result.run for result in waiting.refill(in_queue, lambda result: None)]
        for in_queue in (5, 6, 5)
    ]
    assert sent == [[runs[0]], [], [runs[1]]]


def test_nothing_overtakes_a_run_that_is_turned_away_again(
    submitted: Submitted, fake: FakeCluster
) -> None:
    earlier, later = submitted(2)
    overtaking: list[RunRecord] = []

    def send(items: Sequence[RunRecord], on_result: backlog.OnResult) -> Sent[RunRecord]:
        overtaking.extend(items)
        return Sent(results=())

    def turn_away(
        runs: Sequence[RunRecord], on_result: backlog.OnResult
    ) -> tuple[list[SubmitResult], bool]:
        return [SubmitResult(run=run, error=QueueFullError("full")) for run in runs], False

    waiting = replace(rest_of([earlier], fake, turn_away), send=send, items=(later,))
    waiting.refill(0, lambda result: None)
    assert (waiting.count, overtaking) == (2, [])


def test_more_jobs_in_the_queue_than_a_lowered_limit_leave_no_place(
    submitted: Submitted, fake: FakeCluster
) -> None:
    sent: list[RunRecord] = []

    def send(
        runs: Sequence[RunRecord], on_result: backlog.OnResult
    ) -> tuple[list[SubmitResult], bool]:
        sent.extend(runs)
        return [SubmitResult(run=run) for run in runs], False

    waiting = rest_of(submitted(3), fake, send, limit=2)
    for in_queue, count in ((4, 0), (3, 0), (2, 0), (1, 1)):
        waiting.refill(in_queue, lambda result: None)
        assert len(sent) == count


def rest_of(
    runs: Sequence[RunRecord],
    cluster: FakeCluster,
    resend: Callable[..., tuple[list[SubmitResult], bool]],
    limit: int | None = None,
) -> backlog.Backlog[RunRecord]:
    """Return a backlog of runs that a full queue turned away."""
    return backlog.Backlog(
        cluster=cluster,
        send=lambda items, on_result: Sent(results=()),
        resend=resend,
        limit=limit,
        items=(),
        command="llmb-run submit-all",
        turned_away=tuple(runs),
    )


def test_retries_keep_to_the_limit(
    llmb: Command, jobs: Path, scheduler: Scheduler, runs: Runs, run_wording: RunWording
) -> None:
    scheduler.behave(Behaviour(script={"*": (RUNNING, FAILED)}))
    assert llmb("submit-all", jobs, "--wait").returncode == 3
    scheduler.behave(ENDLESS)
    done = llmb("jobs", "retry", "--failed", "--max-in-queue", "2")
    assert done.returncode == 0, done.stderr
    assert sum(run.attempt == 2 for run in runs()) == 2
    run_wording("jobs retry", "\n".join(done.stderr.splitlines()[6:]))
    scheduler.behave(Behaviour(script={"*": (RUNNING, COMPLETED)}))
    scheduler.cancel(7)
    scheduler.cancel(8)
    done = llmb("jobs", "retry", "--failed", "--max-in-queue", "2", "--wait")
    assert done.returncode == 0, done.stderr
    assert all(run.attempt == 2 for run in runs())


def test_a_limit_is_at_least_one(llmb: Command, jobs: Path, install: Path) -> None:
    config = yaml.safe_load((install / CONFIG).read_text())
    (install / CONFIG).write_text(yaml.safe_dump({**config, "max_in_queue": 0}))
    done = llmb("submit-all", jobs)
    assert done.returncode == 2
    assert "max_in_queue" in done.stderr


def test_in_the_queue_are_only_this_users_own_runs(
    submitted: Submitted, fake: FakeCluster, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler.behave(ENDLESS)
    waiting, imported, other = submitted(3)
    imported = replace(imported, origin=Origin(tool="x", folder=Path("/old")))
    owners = {other.directory: os.getuid() + 1}
    monkeypatch.setattr(files, "owner", lambda path: owners.get(path, os.getuid()))
    assert backlog.open_runs(fake, [waiting, imported, other]) == [waiting]
