# SPDX-License-Identifier: Apache-2.0
"""Tests of `jobs list`, `jobs show` and `jobs logs` by llmb-run on a fake cluster: filters,
results, paths.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.cli import app
from llmb.cli.jobs import runs_table
from llmb.contract import record
from llmb.contract.record import RunRecord
from llmb.contract.state import FAILED, RUNNING
from llmb.errors import LlmbError, describe
from llmb_testing.scheduler import Behaviour, Scheduler

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Runs = Callable[[], list[RunRecord]]
RunWording = Callable[[str, str], None]
DAY = 86400


@pytest.fixture
def three(llmb: Command, scheduler: Scheduler, runs: Runs) -> list[RunRecord]:
    """A run of three days ago that succeeded, one of yesterday that failed, and one of now that
    runs.
    """
    ages = (3 * DAY, DAY, 0)
    for scale, script in ((8, None), (16, (RUNNING, FAILED)), (32, (RUNNING,))):
        scheduler.behave(Behaviour(script={"*": script}) if script else Behaviour())
        waits = () if scale == 32 else ("--wait",)
        options = ("--force", "--session", "night", *waits)
        assert llmb("single", "-w", "fake", "--scale", scale, *options).returncode in (
            0,
            3,
        )
    for run, age in zip(runs(), ages, strict=True):
        path = run.directory / record.RECORD
        data = json.loads(path.read_text())
        path.write_text(json.dumps({**data, "created": data["created"] - age}))
    return runs()


@pytest.fixture
def codes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The codes of the errors that llmb-run prints."""
    found: list[str] = []

    def spy(error: LlmbError) -> str:
        found.append(error.code)
        return describe(error)

    monkeypatch.setattr(app, "describe", spy)
    return found


def listed(done: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


@pytest.mark.parametrize(
    ("options", "scales"),
    [
        ((), [8, 16, 32]),
        (("--live",), [32]),
        (("--state", "failed"), [16]),
        (("--state", "FAILED,running"), [16, 32]),
        (("--state", "completed", "--state", "running"), [8, 32]),
        (("--state", "ended"), [8, 16]),
        (("--state", "timeout"), []),
        (("--since", "2d"), [16, 32]),
        (("--since", "12h"), [32]),
        (("--since", "1w", "--state", "ended"), [8, 16]),
        (("--since", "2001-01-01"), [8, 16, 32]),
        (("--name", "*_gpus16_*"), [16]),
        (("--name", "GPUS3"), [32]),
        (("--name", "gpus16*"), []),
        (("-w", "fake"), [8, 16, 32]),
        (("-w", "fake_small", "--name", "gpus8_"), [8]),
    ],
)
def test_filters(
    three: list[RunRecord], options: tuple[str, ...], scales: list[int], llmb: Command
) -> None:
    assert [
        row["scale"] for row in listed(llmb("jobs", "list", *options, "--format", "json"))
    ] == scales
    if len(options) == 2:  # the default command takes them too
        assert [
            row["scale"] for row in listed(llmb("jobs", *options, "--format", "json"))
        ] == scales


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("list", "--state", "faild"), "state-unknown"),
        (("list", "--since", "two days"), "value-not-allowed"),
        (("list", "-w", "nemotorn4"), "workload-unknown"),
        (("--state", "failed", "wait"), "format-misplaced"),
        (("logs", "x", "--path", "-n", "3"), "option-conflict"),
    ],
)
def test_wrong_options(
    options: tuple[str, ...], code: str, llmb: Command, run_wording: RunWording, codes: list[str]
) -> None:
    done = llmb("jobs", *options)
    assert (done.returncode, done.stdout, codes) == (2, "", [code])
    run_wording("jobs list", done.stderr)


def test_the_list_has_what_results_has(three: list[RunRecord], llmb: Command) -> None:
    results = json.loads(llmb("results", "--format", "json").stdout)["results"]
    rows = {row["id"]: row for row in listed(llmb("jobs", "--format", "json"))}
    assert len(rows) == 3
    for result in results:
        row, measured = rows[result["run"]], result["metrics"].get(result["headline"])
        assert (row["ratio"], row["verdict"]) == (result["ratio"], result["verdict"])
        assert row["value"] == (measured and measured["mean"])
    assert rows[three[0].id]["value"] > 0
    table = llmb("jobs").stdout.splitlines()
    assert "step (s)" in table[0]
    assert f"{rows[three[0].id]['value']:.3f}" in table[2]


def test_few_logs_are_read_for_a_list(
    llmb: Command, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_table, "READ", 1)
    llmb("single", "-w", "fake", "--scale", 8, "--repeats", 3)
    done = llmb("jobs", "wait")
    assert done.returncode == 0
    for known in (1, 2, 3):  # a call reads the newest, and keeps its summary
        rows = listed(done := llmb("jobs", "--format", "json"))
        assert [row["value"] is not None for row in rows] == [
            number >= 3 - known for number in range(3)
        ]
        assert (str(3 - known) in done.stderr) == (known < 3)


def test_the_path_and_the_last_lines_of_a_log(llmb: Command, runs: Runs) -> None:
    llmb("single", "-w", "fake", "--scale", 8, "--wait")
    (run,) = runs()
    assert llmb("jobs", "logs", run.id, "--path").stdout == f"{run.log}\n"
    whole = llmb("jobs", "logs", run.id).stdout.splitlines()
    for words in (("-n", 2), ("--lines", 2, "--follow")):
        assert llmb("jobs", "logs", run.id, *words).stdout.splitlines() == whole[-2:]
    run.log.unlink()
    done = llmb("jobs", "logs", run.id, "--path", "--batch")
    assert (done.returncode, done.stdout) == (0, f"{run.batch_log}\n")
    assert run.batch_log.exists() == (done.stderr == "")


def test_a_run_on_a_page_of_80_columns(
    llmb: Command, three: list[RunRecord], run_wording: RunWording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    good, bad, _ = three
    for run in (good, bad):
        shown = llmb("jobs", "show", run.id).stdout
        assert run.job.experiment_name in "".join(shown.split("\n")[:2])
        assert [
            line for line in shown.splitlines() if len(line) > 80 and len(line.split()) > 2
        ] == []
        for fact in (run.id, run.scheduler_id, str(run.directory), f"{run.job.scale} h100"):
            assert str(fact) in shown
    page = llmb("jobs", "show", good.id).stdout.replace(str(good.directory), "<folder>")
    page = page.replace(f"job {good.scheduler_id}", "job <id>")
    run_wording(
        "jobs show",
        "\n".join(
            line for line in page.splitlines() if "submitted" not in line and "20" not in line
        ),
    )


def test_the_script_of_a_run_is_shown_as_it_was_submitted(
    llmb: Command, runs: Runs, run_wording: RunWording
) -> None:
    llmb("single", "-w", "fake", "--scale", 8, "--wait")
    (run,) = runs()
    assert llmb("jobs", "show", run.id, "--script").stdout == run.script.read_text()
    run.script.unlink()
    done = llmb("jobs", "show", run.id, "--script")
    assert (done.returncode, done.stdout) == (1, "")
    run_wording("jobs show", done.stderr.replace(str(run.directory), "<folder>"))


def test_a_budget_limits_what_is_submitted_and_past_runs_tell_the_cost(
    llmb: Command, runs: Runs, tmp_path: Path, run_wording: RunWording
) -> None:
    """Nobody published its step time: the time limit counts, until a run has shown how long it
    takes.
    """
    jobs = tmp_path / "jobs.txt"
    jobs.write_text("fake_small:\n('bf16', [8], 3)\n")
    done = llmb("submit-all", jobs, "--wait", "--budget", "6")
    assert done.returncode == 0, done.stderr
    first = runs()
    assert len(first) == 6 * 3600 // (8 * first[0].job.time_limit)
    printed = [
        line
        for line in done.stderr.splitlines()
        if "budget" in line or "note" in line or "skip" in line
    ]
    run_wording("submit-all", "\n".join(printed))
    done = llmb("submit-all", jobs, "--resume", "--budget", "6", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert len(runs()) == 3
