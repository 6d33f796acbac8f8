# SPDX-License-Identifier: Apache-2.0
"""Tests of runs that a scheduler refused: their fix wherever they are shown, further attempts, and
what is left.
"""

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from llmb.contract import record
from llmb.contract.launch import Launch
from llmb.contract.record import RunRecord
from llmb.contract.schema import ClusterConfig
from llmb.contract.state import COMPLETED, FAILED, PENDING, RUNNING, JobState
from llmb.errors import Fault, LlmbError
from llmb_testing.fake_cluster import FakeCluster
from llmb_testing.scheduler import Behaviour, Scheduler

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Runs = Callable[[], list[RunRecord]]
ASK = "ask for another account"
ONE = ("single", "-w", "fake", "--scale")


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The scheduler refuses jobs whose folder has one of these words in its path, and says what to
    do.
    """
    words: set[str] = set()
    take = Scheduler.submit

    def submit(self: Scheduler, name: str, folder: Path) -> int:
        if any(word in str(folder) for word in words):
            raise LlmbError("no such account", hint=ASK)
        return take(self, name, folder)

    monkeypatch.setattr(Scheduler, "submit", submit)
    return words


@pytest.fixture
def hindered(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The pre-submission checks fail for launches with one of these words in their names."""
    words: set[str] = set()

    def preflight(_self: FakeCluster, launches: Sequence[Launch]) -> list[Fault]:
        wrong = [one for one in launches if any(word in one.name for word in words)]
        return [Fault(message=f"{one.name} does not fit", hint="a smaller scale") for one in wrong]

    monkeypatch.setattr(FakeCluster, "preflight", preflight)
    return words


@pytest.fixture
def three(llmb: Command, runs: Runs, refusing: set[str], scheduler: Scheduler) -> list[RunRecord]:
    """A run that was refused, and two whose jobs failed; what comes next succeeds."""
    refusing.add("gpus16")
    assert llmb(*ONE, 16, "--session", "night").returncode == 1
    scheduler.behave(Behaviour(script={"*": (RUNNING, FAILED)}))
    assert llmb(*ONE, 8, "--repeats", 2, "--session", "night", "--wait").returncode == 3
    scheduler.behave(Behaviour(script={"*": (RUNNING, COMPLETED)}))
    return runs()


def test_the_fix_is_shown_wherever_the_run_is(
    llmb: Command, runs: Runs, refusing: set[str], run_wording: Callable[[str, str], None]
) -> None:
    refusing.add("gpus8")
    done = llmb(*ONE, 8)
    (run,) = runs()
    run_wording("single", done.stderr)
    shown = yaml.safe_load(llmb("jobs", "show", run.id, "--format", "yaml").stdout)
    assert (shown["state"], shown["fix"]) == (FAILED, ASK)
    assert "no such account" in shown["reason"]
    printed = llmb("explain", run.id).stdout
    run_wording(
        "explain",
        "\n".join(line for line in printed.splitlines() if line.startswith(("status ", "fix "))),
    )
    assert ASK in llmb("report").stdout
    assert shown["reason"] in llmb("results").stdout
    assert "no step" not in llmb("results").stdout


@pytest.mark.parametrize(
    ("kept", "shown"),
    [
        ('"account": "x"', "--account x"),
        (
            '"exclusive": false, "overcommit": true',
            "--slurm-arg exclusive=null --slurm-arg overcommit",
        ),
        ('"comment": "a b"', "--slurm-arg 'comment=a b'"),
    ],
)
def test_what_the_command_line_gave_is_named_as_what_the_next_attempt_keeps(
    llmb: Command,
    runs: Runs,
    refusing: set[str],
    kept: str,
    shown: str,
    run_wording: Callable[[str, str], None],
) -> None:
    refusing.add("gpus8")
    llmb(*ONE, 8)
    (run,) = runs()
    path = run.directory / record.RECORD
    path.write_text(path.read_text().replace('"slurm_args": {}', f'"slurm_args": {{{kept}}}'))
    (line,) = (
        line for line in llmb("explain", run.id).stdout.splitlines() if "which keeps" in line
    )
    assert f"which keeps {shown} unless" in line
    run_wording("explain", line)


def test_what_to_do_about_a_run_that_waits_names_it(
    llmb: Command, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = JobState(
        state=PENDING, reason="JobHeldUser", fix="scontrol release JOB, or llmb-run jobs cancel RUN"
    )
    monkeypatch.setattr(FakeCluster, "poll", lambda _self, asked: {run.id: held for run in asked})
    llmb(*ONE, 8)
    (run,) = runs()
    printed = llmb("explain", run.id).stdout
    release, cancel = f"scontrol release {run.scheduler_id},", f"llmb-run jobs cancel {run.id}\n"
    assert (release in printed, cancel in printed) == (True, True)


def test_a_refused_run_is_retried_with_the_others_and_counts_no_more(
    llmb: Command, three: list[RunRecord], runs: Runs, refusing: set[str], scheduler: Scheduler
) -> None:
    refusing.clear()
    done = llmb("jobs", "retry", "--failed", "--wait")
    assert done.returncode == 0, done.stderr
    assert [run.attempt for run in runs()] == [2, 2, 2]
    assert [job.name for job in scheduler.jobs()].count(f"{three[0].id}-2") == 1
    assert llmb("results").returncode == 0


def test_one_that_is_refused_again_does_not_stop_the_others(
    llmb: Command, three: list[RunRecord], runs: Runs, run_wording: Callable[[str, str], None]
) -> None:
    done = llmb("jobs", "retry", "--failed", "--wait")
    assert done.returncode == 1
    begin = done.stderr.index(f"{three[0].id}  {three[0].name}  attempt 2  ")
    (count,) = (line for line in done.stderr.splitlines() if line.startswith("2 of 3 "))
    run_wording(
        "jobs retry",
        f"{done.stderr[begin : done.stderr.index('error: no such account', begin) + 22]}\n{count}",
    )
    assert [run.attempt for run in runs()] == [2, 2, 2]
    assert llmb("results").returncode == 3


def test_one_whose_checks_fail_does_not_stop_the_others(
    llmb: Command,
    three: list[RunRecord],
    runs: Runs,
    refusing: set[str],
    hindered: set[str],
    run_wording: Callable[[str, str], None],
) -> None:
    refusing.clear()
    hindered.add("gpus16")
    done = llmb("jobs", "retry", "--failed", "--wait")
    assert done.returncode == 1
    begin = done.stderr.index("not retried: ")
    (count,) = (line for line in done.stderr.splitlines() if line.startswith("2 of 3 "))
    run_wording(
        "jobs retry", f"{done.stderr[begin : done.stderr.index('hint: a smaller scale')]}{count}"
    )
    assert [run.attempt for run in runs()] == [1, 2, 2]
    done = llmb("jobs", "retry", "--failed")
    assert (done.returncode, runs()[0].attempt) == (1, 1)
    run_wording("jobs retry", done.stderr.splitlines()[-1])  # only sbatch has options
    done = llmb("jobs", "retry", "--failed", "--force", "--wait")
    assert (done.returncode, runs()[0].attempt) == (0, 2)


def test_a_failed_check_of_one_of_several_named_keeps_all_back(
    llmb: Command,
    three: list[RunRecord],
    runs: Runs,
    hindered: set[str],
    run_wording: Callable[[str, str], None],
) -> None:
    hindered.add("gpus16")
    done = llmb("jobs", "retry", *(run.id for run in three))
    assert done.returncode == 1
    run_wording("jobs retry", done.stderr.splitlines()[-1])
    assert [run.attempt for run in runs()] == [1, 1, 1]


def test_a_run_that_is_named_twice_is_one(
    llmb: Command, three: list[RunRecord], runs: Runs
) -> None:
    run = three[1]
    done = llmb("jobs", "retry", run.id, run.id[:6], run.directory, "--wait")
    assert done.returncode == 0, done.stderr
    assert [one.attempt for one in runs()] == [1, 2, 1]


def test_a_reason_that_several_share_is_printed_once(
    llmb: Command, runs: Runs, refusing: set[str], run_wording: Callable[[str, str], None]
) -> None:
    refusing.add("gpus8")
    done = llmb(*ONE, 8, "--repeats", 12, "--keep-going")
    assert (done.stderr.count("no such account"), done.stderr.count(ASK)) == (1, 1)
    lines = done.stderr.splitlines()
    others = [
        line.partition(f"{run.name}  ")[2]
        for run in runs()
        for line in lines
        if f"  {run.name}  " in line
    ]
    assert sorted(Counter(others).values()) == [1, 11]
    run_wording("single", "\n".join([*sorted(set(others)), *lines[-2:]]))


def test_a_program_that_wanted_to_wait_reads_what_was_taken_where_not_all_was_tried(
    llmb: Command, refusing: set[str]
) -> None:
    refusing.add("gpus8")
    done = llmb(*ONE, 8, "--repeats", 12, "--wait", "--format", "json")
    assert (done.returncode, json.loads(done.stdout)) == (1, [])
    (count,) = (line for line in done.stderr.splitlines() if line.startswith("0 of 12 "))
    assert count.endswith(" not tried")


def test_what_nobody_knows_is_not_called_refused(
    llmb: Command,
    scheduler: Scheduler,
    monkeypatch: pytest.MonkeyPatch,
    run_wording: Callable[[str, str], None],
) -> None:
    def find(_self: FakeCluster, _runs: Sequence[RunRecord]) -> dict[str, str]:
        raise LlmbError("no answer either")

    monkeypatch.setattr(FakeCluster, "find", find)
    scheduler.behave(Behaviour(silent=("*",)))
    done = llmb(*ONE, 8, "--repeats", 2, "--keep-going")
    assert done.returncode == 1
    run_wording("single", done.stderr.splitlines()[-1])


def test_a_run_that_cannot_be_recorded_leaves_nothing_behind(
    llmb: Command,
    runs: Runs,
    config: ClusterConfig,
    monkeypatch: pytest.MonkeyPatch,
    run_wording: Callable[[str, str], None],
) -> None:
    def save(run: RunRecord) -> None:
        raise LlmbError(
            f"{run.directory} cannot be written: no space left on device", hint="free space"
        )

    monkeypatch.setattr(record, "save", save)
    done = llmb(*ONE, 8, "--repeats", 2, "--keep-going")
    assert done.returncode == 1
    run_wording("single", "\n".join(done.stderr.splitlines()[-2:]))
    assert list(config.llmb_install.glob("workloads/*/experiments/*/*")) == []


def test_a_run_whose_folder_is_deleted_is_reported_and_not_created_again(
    llmb: Command,
    scheduler: Scheduler,
    runs: Runs,
    monkeypatch: pytest.MonkeyPatch,
    wording: Callable[..., None],
) -> None:
    scheduler.behave(Behaviour(script={"*": (RUNNING, RUNNING, COMPLETED)}))
    llmb(*ONE, 8)
    (run,) = runs()
    poll = FakeCluster.poll

    def delete(self: FakeCluster, asked: Sequence[RunRecord]) -> object:
        states = poll(self, asked)
        shutil.rmtree(run.directory, ignore_errors=True)
        return states

    monkeypatch.setattr(FakeCluster, "poll", delete)
    done = llmb("jobs", "wait", run.id)
    assert done.returncode == 3
    (line,) = (line for line in done.stderr.splitlines() if "warning: " in line)
    assert run.id in line
    wording("jobs wait", line, {run.id: "<run>"})
    assert "llmb-run results" not in done.stderr
    assert not run.directory.exists()
    lost = next(line for line in done.stderr.splitlines() if " LOST: " in line)
    wording("jobs wait", lost.partition(" LOST: ")[2], {str(run.directory): "<folder>"})


def test_a_run_whose_folder_is_deleted_is_lost_and_not_retried(
    llmb: Command, scheduler: Scheduler, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its scheduler says, and also for --wait, whose table has the reason."""
    scheduler.behave(Behaviour(script={"*": (RUNNING, RUNNING, "NODE_FAIL")}))
    poll = FakeCluster.poll

    def delete(self: FakeCluster, asked: Sequence[RunRecord]) -> object:
        states = poll(self, asked)
        shutil.rmtree(asked[0].directory, ignore_errors=True)
        return states

    monkeypatch.setattr(FakeCluster, "poll", delete)
    done = llmb(*ONE, 8, "--wait", "--retries", 1)
    assert done.returncode == 3, done.stderr
    assert "LOST: its folder was deleted" in done.stderr
    assert "the job ended NODE_FAIL" in done.stderr
    assert "its folder was deleted" in done.stdout
    assert "no step in the log" not in done.stdout
    assert "retried" not in done.stderr
    assert runs() == []
