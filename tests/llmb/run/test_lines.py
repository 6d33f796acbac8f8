# SPDX-License-Identifier: Apache-2.0
"""Tests of what `jobs wait` says where there is no terminal."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, cast

import pytest

from llmb.cli import pace
from llmb.cli.context import CliContext
from llmb.cli.pace import Paces, StepReference
from llmb.cli.progress import _Lines
from llmb.contract.formats import ParseSpec
from llmb.contract.record import RunRecord
from llmb.contract.state import COMPLETED, NEXT, NEXT_CODE, PENDING, RUNNING, UNKNOWN, JobState
from llmb.measure.log_lines import PatternError
from llmb.measure.log_reader import progress

STEP = (
    "Training epoch 0, iteration {i}/49 | train_step_timing in s: 1.5 | reduced_train_loss: 2.5\n"
)


class Published(Paces):
    """Knows a published step time."""

    def reference(self, run: RunRecord) -> StepReference | None:
        return StepReference(seconds=1.35, name="25.04", short="25.04")


def test_each_tenth_of_the_steps_has_a_line(
    submitted: Callable[..., list[RunRecord]],
    capsys: pytest.CaptureFixture[str],
    wording: Callable[..., None],
) -> None:
    (run,) = submitted(1)
    minutes = iter(range(60, 6000, 60))
    show, printed = _Lines(Paces(), clock=lambda: next(minutes)), []
    run.work.mkdir(parents=True, exist_ok=True)
    for last in (-1, 0, 4, 5, 9, 15, 49):
        run.log.write_text("".join(STEP.format(i=step) for step in range(last + 1)))
        show([run], {run.id: JobState(state=RUNNING)})
        printed += [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()]
    assert [line.split()[:2] for line in printed] == [[run.id, run.job.experiment_name]] * 5
    wording("jobs wait", "\n".join(line.split(" ", 2)[2] for line in printed))


def test_a_run_of_a_minute_has_lines_for_its_steps(
    submitted: Callable[..., list[RunRecord]], capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = submitted(1)
    now = 1000.0
    show = _Lines(Paces(), clock=lambda: now)
    run.work.mkdir(parents=True, exist_ok=True)
    for last in range(0, 50, 5):
        run.log.write_text("".join(STEP.format(i=step) for step in range(last + 1)))
        show([run], {run.id: JobState(state=RUNNING)})
        now += 7
    printed = capsys.readouterr().err
    assert [text.split()[0] for text in printed.split(" step ")[1:]] == [
        str(last + 1) for last in range(5, 50, 5)
    ]


def test_a_slow_run_is_reported_in_the_round_that_shows_it(
    submitted: Callable[..., list[RunRecord]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Also right after the run has started, when its steps have no line yet."""
    (run,) = submitted(1)
    show = _Lines(Published(), clock=lambda: 1000.0)
    run.work.mkdir(parents=True, exist_ok=True)
    run.log.write_text("".join(STEP.format(i=step) for step in range(25)))
    for _ in range(2):
        show([run], {run.id: JobState(state=RUNNING)})
    started, *warnings = capsys.readouterr().err.splitlines()
    assert started.endswith(RUNNING)
    assert [line.rpartition(" Stop it: ")[2] for line in warnings] == [
        f"llmb-run jobs cancel {run.id}"
    ]
    assert "0.90 of 25.04 at step 25" in warnings[0]


MEGATRON = (
    " iteration {:8d}/     100 | consumed samples: 10 | elapsed time per iteration (ms): {:.1f} |"
    " global batch size:   256 | lm loss: 1.1E+01 | number of skipped iterations:   0 | number of"
    " nan iterations:   0 |\n"
)


@pytest.mark.parametrize(
    ("lines", "is_slow"),
    [
        # each tenth step, the first line with the start
        (((10, 3000), (20, 1350)), False),
        (((10, 3000), (20, 1350), (30, 1350), (40, 1350)), False),
        (((10, 3000), (20, 1500), (30, 1500)), True),
        (((25, 3000), (50, 1350)), False),
        (((25, 1350), (50, 1500)), True),
        # a run that was resumed at 31
        (((31, 9000),), False),
        (((31, 9000), (32, 1500), (33, 1500)), False),
        (tuple((n, 1500) for n in range(31, 51)), True),
        (tuple((n, 1500) for n in range(31, 50)), False),
        # nothing is left to stop
        (tuple((n, 1500) for n in range(61, 101)), False),
        # the last ten of all steps, of which the first ones were slow
        (tuple((n, 3000 if n < 20 else 1350) for n in range(1, 31)), False),
    ],
)
def test_a_run_is_slow_by_its_steps_and_not_by_its_start(
    lines: tuple[tuple[int, float], ...], is_slow: bool, submitted: Callable[..., list[RunRecord]]
) -> None:
    (run,) = submitted(1)
    run.work.mkdir(parents=True, exist_ok=True)
    run.log.write_text("".join(MEGATRON.format(*line) for line in lines))
    newest = Published().of(run)
    assert newest is not None
    assert newest.is_too_slow is is_slow


@pytest.mark.parametrize(
    ("seconds", "recent"),
    [
        ((9, 2), 2),  # without the line that has the start in it
        ((9,), 9),
        ((9, *(3,) * 6, *(1,) * 5), 2),  # ten lines: five of each
    ],
)
def test_the_step_time_is_of_the_last_ten_steps(
    seconds: tuple[float, ...], recent: float, tmp_path: Path
) -> None:
    path = tmp_path / "log-a.out"
    lines = (MEGATRON.format(n, 1000 * time) for n, time in enumerate(seconds, start=1))
    path.write_text("".join(lines))
    at, _ = progress(path)
    assert at is not None
    assert at.step_time == pytest.approx(recent)


def test_a_run_of_seconds_has_a_line_for_each_state_alone(
    submitted: Callable[..., list[RunRecord]], capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = submitted(1)
    seconds = iter(range(1000, 2000))
    show = _Lines(Paces(), clock=lambda: next(seconds))
    run.work.mkdir(parents=True, exist_ok=True)
    for last in (0, 9, 25, 49):
        run.log.write_text("".join(STEP.format(i=step) for step in range(last + 1)))
        show([run], {run.id: JobState(state=RUNNING)})
    show([run], {run.id: JobState(state=COMPLETED)})
    printed = [line.split()[-1] for line in capsys.readouterr().err.splitlines()]
    assert printed == [RUNNING, COMPLETED]


def test_why_runs_wait_is_printed_once(
    submitted: Callable[..., list[RunRecord]],
    capsys: pytest.CaptureFixture[str],
    wording: Callable[..., None],
) -> None:
    runs, show = submitted(3), _Lines(Paces())
    full, low = (JobState(state=PENDING, reason=reason) for reason in ("Resources", "Priority"))
    for states in ((full, low, low), (low, full, low), (JobState(state=RUNNING), full, low)):
        show(runs, dict(zip([run.id for run in runs], states, strict=True)))
    printed = [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()]
    wording("jobs wait", printed[0])
    assert printed[1:] == [f"{runs[0].id} {runs[0].job.experiment_name} RUNNING"]
    failed = JobState(state="CONFIGURING", reason="FailedMount: claim nope not found")
    show(runs[1:2], {runs[1].id: failed})
    wording("jobs wait", capsys.readouterr().err.splitlines()[-1].partition(" ")[2])


def test_on_one_machine_only_the_jobs_of_others_are_news(
    submitted: Callable[..., list[RunRecord]],
    capsys: pytest.CaptureFixture[str],
    wording: Callable[..., None],
) -> None:
    runs, show = [replace(run, cluster_type="local") for run in submitted(2)], _Lines(Paces())
    second, third = (
        JobState(state=PENDING, reason=f"queued behind {number} jobs") for number in (1, 2)
    )
    for states in (
        (JobState(state=PENDING, reason=NEXT, code=NEXT_CODE), second),
        (JobState(state=RUNNING), second),
    ):
        _Lines(Paces())(runs, dict(zip([run.id for run in runs], states, strict=True)))
    assert "waiting" not in capsys.readouterr().err
    for _ in range(2):
        show(runs, dict(zip([run.id for run in runs], (second, third), strict=True)))
    (line,) = capsys.readouterr().err.splitlines()
    wording("jobs wait", line.partition(" ")[2])


def test_why_nothing_is_known(
    submitted: Callable[..., list[RunRecord]], capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = submitted(1)
    _Lines(Paces())([run], {run.id: JobState(state=UNKNOWN, reason="no answer: squeue")})
    assert capsys.readouterr().err.split(": ", 1)[1] == "no answer: squeue\n"


def test_the_steps_of_other_metrics_are_progress_too(
    submitted: Callable[..., list[RunRecord]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The plugin is asked once for each run. A pattern that takes too long is reported once."""
    asked: list[str] = []

    def spec_of(context: CliContext, run: RunRecord) -> ParseSpec:
        asked.append(run.id)
        return ParseSpec(metrics=("busbw",))

    monkeypatch.setattr(pace, "spec_of", spec_of)
    (run,) = submitted(1)
    monkeypatch.setattr(Paces, "reference", lambda paces, run: None)
    paces = Paces(cast(CliContext, object()))
    run.work.mkdir(parents=True, exist_ok=True)
    assert paces.of(run) is None
    run.log.write_text("llmb step 0/9 busbw=480.2\nllmb step 1/9 busbw=481.5\n")
    newest = paces.of(run)
    assert newest is not None
    assert (newest.at, newest.in_words(), newest.seconds_left) == ((1, 9, None, 1), "", None)
    _Lines(paces).step(run)
    assert capsys.readouterr().err.rstrip().endswith("step 2 of 10")
    assert asked == [run.id]

    def slow(*_: object) -> NoReturn:
        raise PatternError("its pattern takes too long")

    monkeypatch.setattr(pace, "progress", slow)
    assert paces.of(run) is None
    assert "its pattern takes too long" in capsys.readouterr().err
    monkeypatch.undo()
    assert paces.of(run) is None
    assert capsys.readouterr().err == ""


def test_results_that_a_program_prints_at_its_end_are_no_steps(tmp_path: Path) -> None:
    path = tmp_path / "log-a.out"
    path.write_text("Copy: 300.5\n")
    spec = ParseSpec(patterns={"copy": r"^Copy: +(?P<value>\S+)"}, metrics=("copy",))
    assert spec.reads_whole_log
    assert progress(path, spec=spec)[0] is None
