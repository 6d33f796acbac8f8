# SPDX-License-Identifier: Apache-2.0
"""Tests of the commands around submission, by llmb-run on a fake cluster: resume, retry, reconcile,
refusals.
"""

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmb.contract import record
from llmb.contract.record import RunRecord
from llmb.contract.state import COMPLETED, FAILED, RUNNING, TIMEOUT
from llmb.errors import LlmbError
from llmb_testing.fake_cluster import FakeCluster
from llmb_testing.scheduler import Behaviour, Scheduler

Command = Callable[..., "subprocess.CompletedProcess[str]"]
RunWording = Callable[[str, str], None]
ALWAYS_FAILS = Behaviour(script={"*": (RUNNING, FAILED)})


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """A list of six jobs."""
    path = tmp_path / "jobs.txt"
    path.write_text("fake_small:\n('bf16', [8, 16], 3)\n")
    return path


def test_a_list_goes_out_and_its_results_come_back(llmb: Command, jobs: Path) -> None:
    done = llmb("submit-all", jobs, "--wait", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["summary"]["success_experiments"] == 6


def test_a_program_that_submits_gets_its_runs(
    llmb: Command, jobs: Path, runs: Callable[[], list[RunRecord]]
) -> None:
    done = llmb("submit-all", jobs, "--format", "json")
    assert done.returncode == 0, done.stderr
    printed = {row["id"]: row for row in json.loads(done.stdout)}
    assert printed == {
        run.id: {
            "id": run.id,
            "scheduler_id": run.scheduler_id,
            "attempt": 1,
            "experiment": run.job.experiment_name,
            "repeat": run.job.repeat,
            "directory": str(run.directory),
        }
        for run in runs()
    }
    assert len(printed) == 6
    assert llmb("submit-all", jobs).stdout == ""
    done = llmb("submit-all", jobs, "--resume", "--format", "csv")
    assert done.stdout == "id,scheduler_id,attempt,experiment,repeat,directory\n"


def test_a_value_that_is_not_utf_8_is_submitted_as_it_is_shown(
    llmb: Command, runs: Callable[[], list[RunRecord]]
) -> None:
    value = os.fsdecode(b"a\xffb")
    words = ("single", "-w", "fake", "--scale", "8", "--env", f"ODD={value}")
    assert llmb(*words, "--dry-run").returncode == 0
    done = llmb(*words, "--wait")
    assert done.returncode == 0, done.stderr
    (run,) = runs()
    assert (run.job.env["ODD"], run.launch.environment["ODD"]) == (value, value)
    for command in (
        "jobs list",
        "jobs show {}",
        "jobs show {} --script",
        "results --format json",
        "report",
    ):
        assert llmb(*command.format(run.id).split()).returncode == 0, command


def test_resume_submits_only_what_is_left(
    llmb: Command,
    jobs: Path,
    scheduler: Scheduler,
    runs: Callable[[], list[RunRecord]],
    run_wording: RunWording,
) -> None:
    scheduler.behave(Behaviour(script={"*": (RUNNING, COMPLETED)}))
    night = ("--session", "night")
    assert llmb("submit-all", jobs, "--scale", "8", "--wait", *night).returncode == 0
    scheduler.behave(ALWAYS_FAILS)
    assert llmb("single", "-w", "fake", "--scale", "16", "--wait", *night).returncode == 3
    scheduler.behave(Behaviour(script={"*": (RUNNING,)}))
    assert llmb("single", "-w", "fake", "--scale", "16", *night).returncode == 0
    shown = llmb("submit-all", jobs, "--resume", "--dry-run", "--format", "json")
    assert [(job["scale"], job["repeat"]) for job in json.loads(shown.stdout)["jobs"]] == [
        (16, 2),
        (16, 3),
    ]
    before = runs()
    done = llmb("submit-all", jobs, "--resume")
    assert done.returncode == 0
    run_wording("submit-all", "".join(done.stderr.splitlines(keepends=True)[:3]))
    new = runs()[len(before) :]
    assert [(run.job.scale, run.job.repeat) for run in new] == [(16, 2), (16, 3)]
    again = llmb("submit-all", jobs, "--resume")
    assert again.returncode == 0
    run_wording("submit-all", again.stderr)
    assert len(runs()) == len(before) + 2


@pytest.mark.parametrize(("fmt", "rows"), [("table", 0), ("md", 0), ("csv", 1), ("json", None)])
def test_a_preview_of_what_is_left_where_nothing_is(
    llmb: Command,
    jobs: Path,
    runs: Callable[[], list[RunRecord]],
    wording: RunWording,
    fmt: str,
    rows: int | None,
) -> None:
    llmb("submit-all", jobs, "--wait")
    done = llmb("submit-all", jobs, "--resume", "--dry-run", "--format", fmt)
    assert done.returncode == 0, done.stderr
    if fmt == "table":
        wording("submit-all", done.stderr)
    if rows is None:
        (session,) = {run.session for run in runs()}
        assert session is not None
        shown = {"id": session.id, "name": None, "list_sha256": session.list_sha256}
        assert json.loads(done.stdout) == {"jobs": [], "schema_version": 1, "session": shown}
    else:
        assert len(done.stdout.splitlines()) == rows


def test_resume_and_wait_shows_the_whole_list(
    llmb: Command, jobs: Path, scheduler: Scheduler
) -> None:
    llmb("submit-all", jobs, "--scale", "8", "--wait")
    done = llmb("submit-all", jobs, "--resume", "--wait", "--format", "json")
    assert json.loads(done.stdout)["summary"]["success_experiments"] == 6
    assert len(scheduler.jobs()) == 6
    done = llmb("submit-all", jobs, "--resume", "--wait", "--format", "json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["summary"]["success_experiments"] == 6


def test_resume_of_a_list_never_submitted_submits_all(
    llmb: Command, jobs: Path, scheduler: Scheduler, run_wording: RunWording
) -> None:
    done = llmb("bulk", jobs, "--resume")
    run_wording("bulk", done.stderr.splitlines()[0])
    assert len(scheduler.jobs()) == 6


def test_resume_submits_what_a_crash_left_as_the_runs_they_are(
    llmb: Command,
    jobs: Path,
    scheduler: Scheduler,
    fake: FakeCluster,
    runs: Callable[[], list[RunRecord]],
    run_wording: RunWording,
) -> None:
    llmb("submit-all", jobs)
    first, second = runs()[:2]
    for run in (first, second):
        record.save(replace(run, scheduler_id=None))
    (job,) = [job for job in scheduler.jobs() if job.name == first.id]
    (scheduler.folder / "jobs" / f"{job.number}.json").unlink()
    done = llmb("submit-all", jobs, "--resume")
    assert done.returncode == 0, done.stderr
    run_wording("submit-all", "\n".join(done.stderr.splitlines()[1:]))
    assert sorted(job.name for job in scheduler.jobs()) == sorted(run.id for run in runs())
    assert len(runs()) == 6


def test_a_refusal_stops_says_what_is_out_and_how_to_go_on(
    llmb: Command,
    jobs: Path,
    scheduler: Scheduler,
    runs: Callable[[], list[RunRecord]],
    wording: Callable[..., None],
) -> None:
    scheduler.behave(Behaviour(refuse=("*",)))
    done = llmb("submit-all", jobs, "--wait")
    assert done.returncode == 1
    tried = len(runs())
    assert 1 <= tried < 6
    assert f"{runs()[0].id} is refused" in done.stderr  # the scheduler's reason
    *_, totals, fix, resume = done.stderr.splitlines()
    assert re.findall(r"\d+", totals) == ["0", "6", str(tried), str(6 - tried)]
    assert fix.partition("llmb-run ")[2].split() == ["jobs", "retry", *(run.id for run in runs())]
    wording("submit-all", re.sub(r"\d+", "N", totals) + "\n" + resume)
    rows = json.loads(llmb("jobs", "list", "--format", "json").stdout)
    assert {row["state"] for row in rows} == {FAILED}
    assert {row["reason"].partition(": ")[2].split()[0] for row in rows} == {
        run.id for run in runs()
    }
    scheduler.behave(Behaviour())
    assert llmb("submit-all", jobs, "--resume").returncode == 0
    assert len(scheduler.jobs()) == 6


def test_keep_going_tries_all_and_waits_for_those_taken(
    llmb: Command,
    jobs: Path,
    scheduler: Scheduler,
    monkeypatch: pytest.MonkeyPatch,
    run_wording: RunWording,
) -> None:
    take = Scheduler.submit

    def submit(self: Scheduler, name: str, folder: Path) -> int:
        if "gpus8" in str(folder):
            raise LlmbError(f"{name} is refused")
        return take(self, name, folder)

    monkeypatch.setattr(Scheduler, "submit", submit)
    done = llmb("submit-all", jobs, "--keep-going", "--wait", "--format", "json")
    assert done.returncode == 1
    run_wording(
        "submit-all", next(line for line in done.stderr.splitlines() if line.startswith("3 of 6"))
    )
    assert [row["status"] for row in json.loads(done.stdout)["results"]] == ["Success"] * 3


def test_ctrl_c_ends_130_and_says_what_is_out(
    llmb: Command, jobs: Path, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, first, interrupted = Scheduler.submit, threading.Lock(), threading.Event()

    def submit(self: Scheduler, name: str, folder: Path) -> int:
        if first.acquire(blocking=False):
            os.kill(os.getpid(), signal.SIGINT)
            interrupted.set()
        interrupted.wait()  # else the others might all be through before
        return take(self, name, folder)

    monkeypatch.setattr(Scheduler, "submit", submit)
    done = llmb("submit-all", jobs)
    assert done.returncode == 130
    out = len(scheduler.jobs())
    assert 1 <= out < 6
    (counts,) = [
        re.findall(r"\d+", line)
        for line in done.stderr.splitlines()
        if line.startswith(f"{out} of 6")
    ]
    assert counts[:3] == [str(out), "6", str(6 - out)]


def test_retry_shows_why_and_makes_another_attempt(
    llmb: Command,
    jobs: Path,
    scheduler: Scheduler,
    runs: Callable[[], list[RunRecord]],
    run_wording: RunWording,
) -> None:
    scheduler.behave(ALWAYS_FAILS)
    assert llmb("submit-all", jobs, "--wait").returncode == 3
    scheduler.behave(Behaviour(script={"*": (RUNNING, COMPLETED)}))
    first = runs()[0]
    done = llmb("jobs", "retry", first.id[:6], "--wait")
    assert done.returncode == 0, done.stderr
    run_wording("jobs retry", done.stderr.splitlines()[0])
    done = llmb("jobs", "retry", "--failed", "--wait")
    assert done.returncode == 0, done.stderr
    assert [run.attempt for run in runs()] == [2] * 6
    shown: dict[str, Any] = yaml.safe_load(
        llmb("jobs", "show", first.id, "--format", "yaml").stdout
    )
    assert (shown["attempt"], shown["state"], shown["before"][0]["state"]) == (2, COMPLETED, FAILED)
    assert llmb("results").returncode == 0
    run_wording("jobs retry", llmb("jobs", "retry", "--failed").stderr)


@pytest.mark.parametrize(
    "arguments", [(), ("--failed", "{id}"), ("{id}",), ("--failed", "--retries", "2")]
)
def test_what_cannot_be_retried(
    arguments: tuple[str, ...],
    llmb: Command,
    runs: Callable[[], list[RunRecord]],
    run_wording: RunWording,
) -> None:
    llmb("single", "-w", "fake", "--scale", "8", "--wait")
    (run,) = runs()
    done = llmb("jobs", "retry", *(word.format(id=run.id) for word in arguments))
    assert done.returncode == 2
    run_wording("jobs retry", done.stderr)


def test_a_cancelled_run_is_retried_only_by_name(
    llmb: Command,
    scheduler: Scheduler,
    runs: Callable[[], list[RunRecord]],
    run_wording: RunWording,
) -> None:
    scheduler.behave(Behaviour(script={"*": (RUNNING,)}))
    llmb("single", "-w", "fake", "--scale", "8")
    (run,) = runs()
    done = llmb("jobs", "retry", run.id)  # it runs
    assert done.returncode == 2
    run_wording("jobs retry", done.stderr)
    run_wording("jobs cancel", llmb("jobs", "cancel", run.id).stderr)
    run_wording("jobs retry", llmb("jobs", "retry", "--failed").stderr)
    assert llmb("jobs", "retry", run.id).returncode == 0
    assert runs()[0].attempt == 2


def test_of_several_runs_one_that_cannot_be_retried_keeps_all_back(
    llmb: Command,
    scheduler: Scheduler,
    runs: Callable[[], list[RunRecord]],
    run_wording: RunWording,
) -> None:
    scheduler.behave(Behaviour(script={"*": (RUNNING, FAILED)}))
    llmb("single", "-w", "fake", "--scale", "8", "--wait")
    scheduler.behave(Behaviour())
    llmb("single", "-w", "fake", "--scale", "8", "--wait")
    failed, good = runs()
    done = llmb("jobs", "retry", failed.id, good.id)
    assert done.returncode == 2
    run_wording("jobs retry", done.stderr)
    assert [run.attempt for run in runs()] == [1, 1]


def test_cancelled_runs_are_shown_and_can_be_omitted_from_the_results(
    llmb: Command,
    scheduler: Scheduler,
    runs: Callable[[], list[RunRecord]],
    run_wording: RunWording,
) -> None:
    llmb("single", "-w", "fake", "--scale", "8", "--session", "night", "--wait")
    scheduler.behave(Behaviour(script={"*": (RUNNING,)}))
    llmb("single", "-w", "fake", "--scale", "8", "--session", "night")
    llmb("jobs", "cancel", "--all")
    done = llmb("results", "--format", "json")
    assert [row["status"] for row in json.loads(done.stdout)["results"]] == ["Success", "Cancelled"]
    assert done.returncode == 3
    run_wording("results", done.stderr)
    done = llmb("results", "--exclude-cancelled", "--format", "json")
    assert [row["status"] for row in json.loads(done.stdout)["results"]] == ["Success"]
    assert done.returncode == 0
    run_wording("results", done.stderr)
    explained = llmb("explain", runs()[1].id).stdout
    assert explained.count("CANCELLED") == 1


def test_what_a_silent_cluster_leaves_to_show(
    llmb: Command, scheduler: Scheduler, run_wording: RunWording
) -> None:
    scheduler.behave(Behaviour(script={"*": (RUNNING,)}))
    llmb("single", "-w", "fake", "--scale", "8")
    llmb("jobs", "list")
    scheduler.behave(Behaviour(down=True))
    done = llmb("jobs", "--format", "json")
    assert done.returncode == 0
    note = done.stderr
    run_wording("jobs list", note)
    assert [row["state"] for row in json.loads(done.stdout)] == [RUNNING]
    done = llmb("results", "--format", "json")
    assert (done.returncode, done.stderr) == (0, note)
    assert [row["status"] for row in json.loads(done.stdout)["results"]] == ["Running"]


def test_waiting_continues_through_a_silence(
    llmb: Command, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, run_wording: RunWording
) -> None:
    llmb("single", "-w", "fake", "--scale", "8")
    scheduler.behave(Behaviour(down=True))
    monkeypatch.setattr(time, "sleep", lambda seconds: scheduler.behave(Behaviour()))
    done = llmb("jobs", "wait")
    assert done.returncode == 0, done.stderr
    times = re.compile(r"^\d\d:\d\d(:\d\d)? ", re.MULTILINE)
    run_wording("jobs wait", times.sub("<time> ", done.stderr))


def test_each_attempt_has_its_log_and_a_run_can_be_read_by_programs(
    llmb: Command,
    scheduler: Scheduler,
    runs: Callable[[], list[RunRecord]],
    run_wording: RunWording,
) -> None:
    scheduler.behave(ALWAYS_FAILS)
    llmb("single", "-w", "fake", "--scale", "8", "--wait")
    (run,) = runs()
    run.log.write_text("the first\n")
    scheduler.behave(Behaviour())
    llmb("jobs", "retry", run.id, "--wait")
    assert llmb("jobs", "logs", run.id, "--attempt", "1").stdout == "the first\n"
    assert "iteration 0/" in llmb("jobs", "logs", run.id).stdout
    shown = json.loads(llmb("jobs", "show", run.id, "--format", "json").stdout)
    assert (shown["id"], shown["attempt"], shown["state"]) == (run.id, 2, COMPLETED)
    done = llmb("jobs", "logs", run.id, "--attempt", "3")
    assert done.returncode == 2
    run_wording("jobs logs", done.stderr)
    assert llmb("jobs", "--format", "json", "wait").returncode == 2


def test_a_run_that_left_no_log(
    llmb: Command,
    scheduler: Scheduler,
    runs: Callable[[], list[RunRecord]],
    run_wording: RunWording,
) -> None:
    scheduler.behave(Behaviour(script={"*": (RUNNING,)}))
    llmb("single", "-w", "fake", "--scale", "8")
    (run,) = runs()
    run_wording("jobs logs", llmb("jobs", "logs", run.id).stderr)
    assert str(run.log) in llmb("explain", run.id).stdout
    llmb("jobs", "cancel", run.id)
    run_wording("jobs logs", llmb("jobs", "logs", run.id).stderr)
    (line,) = (line for line in llmb("explain", run.id).stdout.splitlines() if str(run.log) in line)
    run_wording("explain", line)
    run.log.touch()
    run_wording("jobs logs", llmb("jobs", "logs", run.id).stderr)
    (line,) = (line for line in llmb("explain", run.id).stdout.splitlines() if str(run.log) in line)
    run_wording("explain", line)
    run_wording("jobs cancel", llmb("jobs", "cancel", "--all").stderr)
    done = llmb("jobs", "cancel", "all")
    assert (done.returncode, "jobs cancel --all" in done.stderr) == (2, True)


def test_a_run_that_its_time_limit_ended_is_retried_with_another(
    llmb: Command,
    scheduler: Scheduler,
    runs: Callable[[], list[RunRecord]],
    run_wording: RunWording,
) -> None:
    scheduler.behave(Behaviour(script={"*": (RUNNING, TIMEOUT)}))
    llmb("single", "-w", "fake", "--scale", "8", "--wait")
    (run,) = runs()
    fix = f"llmb-run jobs retry {run.id} --time-limit HH:MM:SS"
    assert fix in llmb("explain", run.id).stdout
    done = llmb("jobs", "retry", run.id, "--wait")
    lines = done.stderr.splitlines()
    run_wording(
        "jobs retry",
        "\n".join([*(line for line in lines if line.startswith("warning: ")), lines[-1]]),
    )
    assert (runs()[0].job, runs()[0].launch) == (run.job, run.launch)
    done = llmb("jobs", "retry", run.id, "--time-limit", "90")
    assert (done.returncode, runs()[0].attempt) == (2, 2)
    run_wording("jobs retry", done.stderr)
    done = llmb("jobs", "retry", run.id, "--time-limit", "1:30:00")
    assert "warning" not in done.stderr
    again = runs()[0]
    assert (again.attempt, again.job.time_limit, again.launch.time_limit) == (3, 5400, 5400)
    assert "RUNNING #3" in llmb("jobs").stdout
    assert json.loads(llmb("jobs", "--format", "json").stdout)[0]["state"] == TIMEOUT


def test_retries_while_waiting_are_reported(
    llmb: Command, scheduler: Scheduler, run_wording: RunWording
) -> None:
    scheduler.behave(Behaviour(script={"*": (RUNNING, "NODE_FAIL"), "*-2": (RUNNING, COMPLETED)}))
    done = llmb("single", "-w", "fake", "--scale", "8", "--wait", "--retries", "1")
    assert done.returncode == 0, done.stderr
    (line,) = (
        line for line in done.stderr.splitlines() if "NODE_FAIL" in line and "attempt 2" in line
    )
    run_wording("single", line.partition(" ")[2])  # after the time of day
    assert llmb("single", "-w", "fake", "--scale", "8", "--retries", "1").returncode == 2


def test_reconcile_says_what_it_found_and_what_it_submits(
    llmb: Command,
    scheduler: Scheduler,
    runs: Callable[[], list[RunRecord]],
    run_wording: RunWording,
    wording: Callable[..., None],
) -> None:
    run_wording("jobs reconcile", llmb("jobs", "reconcile").stderr)
    llmb("single", "-w", "fake", "--scale", "8", "--repeats", "3")
    found, lost, _ = runs()
    for run in (found, lost):
        record.save(replace(run, scheduler_id=None))
    (job,) = [job for job in scheduler.jobs() if job.name == lost.id]
    (scheduler.folder / "jobs" / f"{job.number}.json").unlink()
    listed = json.loads(llmb("jobs", "list", "--format", "json").stdout)
    assert [row["state"] for row in listed] == ["PENDING", "NOT_SUBMITTED", "PENDING"]
    record.save(replace(found, scheduler_id=None))
    done = llmb("jobs", "reconcile")
    assert done.returncode == 0
    wording(
        "jobs reconcile",
        done.stderr,
        {
            found.id: "<found>",
            found.name: "<name>",
            lost.id: "<lost>",
            lost.name: "<name>",
            f" {found.scheduler_id}:": " <number>:",
        },
    )
    assert sorted(job.name for job in scheduler.jobs()) == sorted(run.id for run in runs())
    run_wording("jobs reconcile", llmb("jobs", "reconcile").stderr)


def test_reconcile_ends_1_when_the_cluster_does_not_say(
    llmb: Command,
    scheduler: Scheduler,
    runs: Callable[[], list[RunRecord]],
    run_wording: RunWording,
) -> None:
    llmb("single", "-w", "fake", "--scale", "8")
    (run,) = runs()
    record.save(replace(run, scheduler_id=None))
    scheduler.behave(Behaviour(down=True))
    done = llmb("jobs", "reconcile")
    assert done.returncode == 1
    run_wording("jobs reconcile", done.stderr)


def test_waiting_without_names_ends_3_for_a_run_that_failed_unseen(
    llmb: Command, scheduler: Scheduler
) -> None:
    """It had not ended when it was last polled; a later wait has nothing to wait for."""
    scheduler.behave(Behaviour(script={"*": (FAILED,)}))
    llmb("single", "-w", "fake", "--scale", "8")
    assert llmb("jobs", "wait").returncode == 3
    assert llmb("jobs", "wait").returncode == 0


def test_a_wait_counts_the_runs_that_failed(
    llmb: Command, scheduler: Scheduler, runs: Callable[[], list[RunRecord]]
) -> None:
    for scale, end in (("8", COMPLETED), ("16", FAILED)):
        scheduler.behave(Behaviour(script={"*": (RUNNING, end)}))
        llmb("single", "-w", "fake", "--scale", scale, "--repeats", "2")
    assert len(runs()) == 4
    done = llmb("jobs", "wait")
    assert done.returncode == 3
    assert "\n2 of 4 failed\n" in done.stderr
