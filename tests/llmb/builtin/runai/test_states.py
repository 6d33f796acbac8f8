# SPDX-License-Identifier: Apache-2.0
"""The state of a run by the phase of its workload and by its own files."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.launch import Launch, Program
from llmb.contract.record import RunRecord
from llmb.core.process import ProcessId
from llmb_runai.phases import OVERDUE, of_deleted, of_files, of_workload
from llmb_testing.job import SMALLEST_JOB

NOW = 1.7e9


@pytest.fixture
def run(tmp_path: Path) -> RunRecord:
    launch = Launch(
        name="job", nodes=4, ranks_per_node=1, time_limit=60, program=Program(module="m")
    )
    return RunRecord(
        id="k3x9ab2c",
        created=NOW,
        llmb_version="0",
        cluster_type="runai",
        directory=tmp_path,
        job=SMALLEST_JOB,
        launch=launch,
        script_name="launch_job",
        submitter=ProcessId.current(),
    )


def ended(run: RunRecord, code: int, when: float = NOW) -> None:
    (run.directory / "ended").write_text(f"{code}\nended {int(when)}\n")


def state(run: RunRecord, phase: str, **data: Any) -> tuple[str, str]:
    found = of_workload(run, {"phase": phase, **data}, NOW)
    return found.state, found.reason


@pytest.mark.parametrize(
    ("phase", "word", "is_end"),
    [
        ("Creating", "PENDING", False),
        ("Pending", "PENDING", False),
        ("Initializing", "CONFIGURING", False),
        ("Resuming", "PENDING", False),
        ("Running", "RUNNING", False),
        ("Updating", "RUNNING", False),
        ("Degraded", "RUNNING", False),
        ("Stopping", "COMPLETING", False),
        ("Terminating", "COMPLETING", False),
        ("Deleting", "COMPLETING", False),
        ("Unknown", "UNKNOWN", False),
        ("Brand New", "BRAND NEW", False),
        ("Completed", "COMPLETED", True),
        ("Failed", "FAILED", True),
        ("Stopped", "CANCELLED", True),
    ],
)
def test_every_phase_and_those_that_nobody_knows(
    run: RunRecord, phase: str, word: str, is_end: bool
) -> None:
    found = of_workload(run, {"phase": phase}, NOW)
    assert (found.state, found.is_end) == (word, is_end)


def test_reasons(run: RunRecord, wording: Callable[..., None]) -> None:
    assert state(run, "Pending", phaseMessage="no GPUs", phaseReason="OverLimit") == (
        "PENDING",
        "OverLimit; no GPUs",
    )
    assert state(run, "Pending", phaseMessage="OverLimit: 4", phaseReason="OverLimit") == (
        "PENDING",
        "OverLimit: 4",
    )
    assert state(run, "Degraded") == ("RUNNING", "Degraded")
    assert state(run, "Running", requestedPods={"number": 4}) == ("RUNNING", "")
    fewer = state(run, "Running", requestedPods={"number": 3})
    assert (fewer[0], re.findall(r"\d", fewer[1])) == ("RUNNING", ["3", "4"])
    wording("jobs list", fewer[1])
    assert state(run, "Failed", phaseMessage="pod was Evicted") == ("PREEMPTED", "pod was Evicted")
    assert state(run, "Failed", phaseMessage="image") == ("FAILED", "image")


def test_the_script_s_exit_code_counts_before_the_phase(run: RunRecord) -> None:
    ended(run, 3)
    for phase in ("Completed", "Failed"):
        found = of_workload(run, {"phase": phase, "phaseMessage": "x"}, NOW)
        assert (found.state, found.exit_code, found.ended) == ("FAILED", 3, NOW)


def test_an_end_by_the_time_limit(run: RunRecord) -> None:
    ended(run, 124)
    found, reason = state(run, "Failed")
    assert (found, reason.split()[-1]) == ("TIMEOUT", "00:01:00")


def test_pods_that_were_started_again(run: RunRecord) -> None:
    (run.directory / "restarted").touch()
    assert state(run, "Failed")[0] == "PREEMPTED"
    assert of_workload(run, {"phase": "Running"}, NOW).is_end is False


def test_an_end_that_run_ai_never_hears_of(run: RunRecord, wording: Callable[..., None]) -> None:
    ended(run, 0, NOW - OVERDUE + 5)
    assert state(run, "Degraded") == ("RUNNING", "Degraded")
    ended(run, 0, NOW - OVERDUE - 5)
    found, reason = state(run, "Degraded")
    assert found == "COMPLETED"
    wording("jobs list", reason)


def test_a_deleted_workload_ends_as_its_files_say_else_as_it_was(
    run: RunRecord, wording: Callable[..., None]
) -> None:
    seen = {"phase": "Running", "deletedAt": "2026-01-02T03:04:05.000Z"}
    found = of_deleted(run, seen, NOW)
    assert (found.state, found.ended) == ("CANCELLED", 1767323045.0)
    wording("jobs list", found.reason)
    assert of_deleted(run, {"phase": "Completed"}, NOW).state == "COMPLETED"
    ended(run, 0)
    assert of_deleted(run, seen, NOW).state == "COMPLETED"


def test_files_that_say_nothing(run: RunRecord) -> None:
    assert of_files(run) is None
    (run.directory / "ended").write_text("")
    assert of_files(run) is None
