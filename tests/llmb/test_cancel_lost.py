# SPDX-License-Identifier: Apache-2.0
"""A run that its cluster did not find may run on, as a job of another name: it is cancelled by its
id; and an exit code of zero beside an end by force is not shown.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from llmb.cli.jobs.details import _exit_code
from llmb.contract import record
from llmb.contract.state import LOST, RUNNING, JobState
from llmb.errors import LlmbError
from llmb.kit.cancellation import NotCancelledError
from llmb.run import follow


class Cancels:
    """A cluster that only cancels, and refuses what it does not know."""

    def __init__(self, *known: str) -> None:
        self.known, self.requests = known, list[list[str]]()

    @property
    def asked(self) -> list[str]:
        return [name for request in self.requests for name in request]

    def cancel(self, runs: Sequence[record.RunRecord]) -> None:
        if runs:
            self.requests.append([str(run.scheduler_id) for run in runs])
        if any(run.scheduler_id not in self.known for run in runs):
            raise LlmbError("scancel: Invalid job id specified")


@pytest.mark.parametrize(
    ("state", "is_asked"),
    [
        (JobState(state=LOST, reason="unknown", ended=time.time() - 60), True),
        (JobState(state=RUNNING, reason="unknown", missing_since=1.0), True),
        (JobState(state=LOST, ended=time.time() - 60, certain=True), False),
        (JobState(state=LOST, ended=1.0), False),  # years ago: its id may be another job's
    ],
    ids=["lost", "missing", "certain", "old"],
)
@pytest.mark.parametrize("is_known", [True, False])
def test_a_lost_run_is_cancelled_by_its_id(
    state: JobState, is_asked: bool, is_known: bool, install: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = install.run("lost0001", install.job("nemotron4_15b", "bf16", 16), None, RUNNING)
    run = replace(made, scheduler_id="7")
    record.save(run)
    monkeypatch.setattr(follow, "poll", lambda cluster, runs: {run.id: state})
    cluster = Cancels("7") if is_known else Cancels()
    outcome = follow.cancel(cluster, [run])  # type: ignore[arg-type]
    assert cluster.asked == (["7"] if is_asked else [])
    assert bool(outcome.cancelling) == (is_asked and is_known)
    assert bool(outcome.not_cancelled) == (is_asked and not is_known)


@pytest.mark.parametrize("state", ["PENDING", RUNNING])
def test_runs_that_the_cluster_found_are_cancelled_by_a_single_request(
    state: str, install: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    for number in (7, 8):
        job = install.job("nemotron4_15b", "bf16", 16)
        made = install.run(f"found00{number}", job, None, RUNNING)
        runs.append(replace(made, scheduler_id=str(number)))
        record.save(runs[-1])
    monkeypatch.setattr(
        follow, "poll", lambda cluster, asked: {run.id: JobState(state=state) for run in asked}
    )
    cluster = Cancels("7", "8")
    assert follow.cancel(cluster, runs).cancelling == runs  # type: ignore[arg-type]
    assert cluster.requests == [["7", "8"]]


def test_lost_runs_are_cancelled_by_a_single_request_where_the_cluster_answers_for_each(
    install: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    for number in (7, 8):
        made = install.run(f"lost000{number}", install.job("nemotron4_15b", "bf16", 16), None, "")
        runs.append(replace(made, scheduler_id=str(number)))
        record.save(runs[-1])
    lost = JobState(state=LOST, reason="unknown", ended=time.time() - 60)
    monkeypatch.setattr(follow, "poll", lambda cluster, asked: {run.id: lost for run in asked})

    class Answers(Cancels):
        def cancel(self, asked: Sequence[record.RunRecord]) -> None:
            self.requests.append([str(run.scheduler_id) for run in asked])
            raise NotCancelledError({runs[0].id: "job 7 is now another job"})

    cluster = Answers()
    outcome = follow.cancel(cluster, runs)  # type: ignore[arg-type]
    assert cluster.requests == [["7", "8"]]
    assert outcome.cancelling == runs[1:]
    assert outcome.not_cancelled == [(runs[0], "job 7 is now another job")]


@pytest.mark.parametrize(
    ("known", "answer"),
    [("the job is unknown", "the job is unknown"), ("", "scancel: Invalid job id specified")],
)
def test_a_run_that_cannot_be_cancelled_has_the_reason_of_the_poll_or_else_the_refusal(
    known: str, answer: str, install: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = install.run("lost0001", install.job("nemotron4_15b", "bf16", 16), None, RUNNING)
    run = replace(made, scheduler_id="7")
    record.save(run)
    state = JobState(state=LOST, reason=known, ended=time.time() - 60)
    monkeypatch.setattr(follow, "poll", lambda cluster, runs: {run.id: state})
    outcome = follow.cancel(Cancels(), [run])  # type: ignore[arg-type]
    assert [reason for _, reason in outcome.not_cancelled] == [answer]


@pytest.mark.parametrize(
    ("state", "code", "text"),
    [
        ("TIMEOUT", 0, ""),
        ("CANCELLED", 0, ""),
        ("TIMEOUT", 143, ", exit code 143"),
        ("COMPLETED", 0, ", exit code 0"),
        ("FAILED", None, ""),
    ],
)
def test_a_zero_that_says_nothing(state: str, code: int | None, text: str) -> None:
    assert _exit_code(JobState(state=state, exit_code=code)) == text


def test_an_error_of_the_cluster_on_known_jobs_is_raised(
    install: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = install.run("runs0001", install.job("nemotron4_15b", "bf16", 16), None, RUNNING)
    run = replace(made, scheduler_id="7")
    record.save(run)
    monkeypatch.setattr(follow, "poll", lambda cluster, runs: {run.id: JobState(state=RUNNING)})
    with pytest.raises(LlmbError, match="Invalid job id"):
        follow.cancel(Cancels(), [run])  # type: ignore[arg-type]
