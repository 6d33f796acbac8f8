# SPDX-License-Identifier: Apache-2.0
"""Tests of what `jobs wait` draws on a terminal: each run with its steps, speed, clock and end."""

import io
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from rich.console import Console

from llmb.cli.live_view import Bars, LiveView, labels
from llmb.cli.pace import Paces, StepReference, expected_end, left_in_words
from llmb.contract.job import Job
from llmb.contract.record import RunRecord
from llmb.contract.state import COMPLETED, PENDING, RUNNING, JobState

Submitted = Callable[..., list[RunRecord]]
NAME = "pretrain_nemotron4_tiny_bf16_gpus1_tp1_pp1_cp1_vpNone_mbs{}_gbs4_steps8"
STEP = (
    "Training epoch 0, iteration {i}/49 | train_step_timing in s: 1.5 | reduced_train_loss: 2.5\n"
)
HOUR = 3600.0


class Published(Paces):
    """Knows a published step time."""

    def __init__(self, seconds: float | None = None) -> None:
        super().__init__()
        self.seconds = seconds

    def reference(self, run: RunRecord) -> StepReference | None:
        if self.seconds is None:
            return None
        return StepReference(seconds=self.seconds, name="25.04", short="25.04")


def named(runs: Sequence[RunRecord], *names: str) -> list[RunRecord]:
    return [
        replace(run, job=replace(run.job, experiment_name=name))
        for run, name in zip(runs, names, strict=True)
    ]


def log(run: RunRecord, steps: int) -> None:
    run.work.mkdir(parents=True, exist_ok=True)
    run.log.write_text("".join(STEP.format(i=step) for step in range(steps)))


class Screen:
    """A terminal of ``width`` characters, and the view on it."""

    def __init__(self, width: int, count: int, paces: Paces | None = None) -> None:
        self.file = io.StringIO()
        terminal = Console(file=self.file, width=width, force_terminal=True, color_system=None)
        self.view = LiveView(terminal)
        self.bars = Bars(count, self.view, paces or Paces())

    def lines(self, runs: Sequence[RunRecord], states: Mapping[str, JobState]) -> list[str]:
        """The lines that it shows after a round."""
        self.bars(runs, states)
        with self.view.console.capture() as shown:
            self.view.console.print(self.view.get_renderable())
        return [line.rstrip() for line in shown.get().splitlines()]

    @property
    def printed(self) -> str:
        """What it printed above the view."""
        return self.file.getvalue()


def running(runs: Sequence[RunRecord], for_seconds: float = 754.0) -> dict[str, JobState]:
    started = time.time() - for_seconds
    return {run.id: JobState(state=RUNNING, started=started) for run in runs}


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_each_run_has_its_steps_speed_clock_and_end(width: int, submitted: Submitted) -> None:
    """Repeats too, and one that has not begun."""
    runs = named(submitted(3), NAME.format(2), NAME.format(2), NAME.format(4))
    for run in runs[:2]:
        log(run, 12)
    total, *lines = Screen(width, 3).lines(runs, running(runs))
    assert total.startswith("jobs")
    assert len(lines) == len(set(lines)) == 3
    for line, run in zip(lines, runs, strict=True):
        assert len(line) <= width
        assert line.startswith(f"{run.id} ")
        assert re.search(r"\s\d+/\d+\s", line), line
        assert re.search(r"\s0:12:3\d(\s|$)", line), "the clock is the run's, not the view's"
        assert "…" not in line
        assert width < 80 or "nemotron4_tiny_bf16_gpus1" in line
    for line in lines[:2]:
        assert re.search(r" 12/50 +1\.50+ s(?:/step)? +0:12:3\d +5[67]s left$", line), line
        assert ("━" in line) is (width >= 100)
    if width >= 80:
        assert ["mbs2" in line for line in lines] == [True, True, False]


@pytest.mark.parametrize(
    ("width", "text"), [(80, "1.50 s 0.91"), (120, "1.500 s/step, 0.91 of 25.04")]
)
def test_the_speed_is_beside_the_published_one(width: int, text: str, submitted: Submitted) -> None:
    runs = submitted(1)
    log(runs[0], 30)
    screen = Screen(width, 1, Published(1.365))
    for _ in range(2):
        _, line = screen.lines(runs, running(runs))
    assert f" {text} " in line
    assert len(line) <= width
    explained = screen.printed.count("is the speed compared with 25.04's")
    assert explained == (1 if width < 120 else 0)


@pytest.mark.parametrize(
    ("published", "steps", "is_warned"),
    [
        (1.365, 25, True),
        (1.365, 12, False),
        (1.365, 50, False),
        (1.5, 25, False),
        (None, 25, False),
    ],
)
def test_a_slow_run_is_named_once_while_it_can_be_stopped(
    published: float | None, steps: int, is_warned: bool, submitted: Submitted
) -> None:
    (run,) = submitted(1)
    log(run, steps)
    screen = Screen(200, 1, Published(published))
    for _ in range(2):
        screen.lines([run], running([run]))
    assert screen.printed.count(f"llmb-run jobs cancel {run.id}") == int(is_warned)
    assert ("0.91 of 25.04 at step 25" in screen.printed) is is_warned


def test_the_reasons_of_waiting_jobs_are_those_of_now(submitted: Submitted) -> None:
    runs, screen = submitted(2), Screen(80, 2)
    for reasons in (("Priority", "Priority"), ("Resources", "Priority")):
        states = {
            run.id: JobState(state=PENDING, reason=reason, fix=f"fix of {reason}")
            for run, reason in zip(runs, reasons, strict=True)
        }
        last = screen.lines(runs, states)[-1]
        assert all(reason in last for reason in reasons)
    assert "2 PENDING" not in last
    assert screen.printed.count("fix of Priority") == 1
    assert "waiting" not in screen.lines(runs, running(runs))[-1]


def test_the_night_ends_with_its_last_job(submitted: Submitted) -> None:
    runs = submitted(3)
    first, second, third = runs
    states = running(runs[:2]) | {third.id: JobState(state=PENDING)}
    ends = {first.id: time.time() + HOUR, second.id: time.time() + 3 * HOUR}

    def left(hours: float) -> tuple[float, bool] | None:
        end = expected_end(runs, states, ends, lambda job: hours * HOUR)
        if end is None:
            return None
        return round((end.at - time.time()) / HOUR, 1), end.at_least

    assert left(2) == (3.0, True)
    assert left(5) == (5.0, True)
    states[third.id] = JobState(state=COMPLETED)
    assert left(5) == (3.0, False)
    states = {run.id: JobState(state=COMPLETED) for run in runs}
    assert left(5) is None


def test_what_a_repeat_took_is_the_estimate_of_the_others(submitted: Submitted) -> None:
    """Not the first estimate, which was made before any had ended."""
    runs = submitted(3)

    class Past(Paces):
        def estimate(self, job: Job) -> float:
            return 300.0 if "ended" in states[runs[0].id].reason else HOUR

    states = {run.id: JobState(state=PENDING) for run in runs}
    states[runs[0].id] = JobState(state=RUNNING, started=time.time())
    screen = Screen(100, 3, Past())
    assert screen.lines(runs, states)[0].endswith("left")
    assert "60m+ left" in screen.lines(runs, states)[0]
    states[runs[0].id] = JobState(state=COMPLETED, reason="ended", started=0.0, ended=300.0)
    assert "5m+ left" in screen.lines(runs, states)[0]


def test_on_one_machine_jobs_run_one_after_another(submitted: Submitted) -> None:
    runs = [replace(run, cluster_type="local") for run in submitted(3)]
    states = running(runs[:1]) | {run.id: JobState(state=PENDING) for run in runs[1:]}
    end = expected_end(runs, states, {runs[0].id: time.time() + HOUR}, lambda job: HOUR)
    assert end is not None
    assert round((end.at - time.time()) / HOUR, 2) == 3
    assert not end.at_least


def test_jobs_that_are_not_submitted_yet_end_later(submitted: Submitted) -> None:
    (run,) = submitted(1)
    log(run, 12)
    assert re.search(
        r"3 to go +0:00:0\d +57s\+ left$", Screen(80, 3).lines([run], running([run]))[0]
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0s left"), (40, "40s left"), (3540, "59m left"), (7560, "2.1h left")],
)
def test_times_that_are_left(seconds: float, text: str) -> None:
    assert left_in_words(seconds) == text


def test_a_narrow_terminal_has_space_for_the_ids(submitted: Submitted) -> None:
    runs = named(submitted(2), NAME.format(2), NAME.format(2))
    assert labels(runs, 30) == {run.id: run.id for run in runs}
    assert all(name.startswith(f"{id_} nemotron4") for id_, name in labels(runs, 80).items())
    assert labels(runs, 200) == {run.id: f"{run.id} {NAME.format(2)}" for run in runs}
