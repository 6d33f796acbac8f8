# SPDX-License-Identifier: Apache-2.0
"""Tests of the report that is rewritten while runs are followed, and of the speed beside a baseline."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.cli.context import CliContext
from llmb.cli.live_report import EVERY, LiveReport, rewritten
from llmb.cli.pace import Paces
from llmb.cli.progress import _Lines
from llmb.contract.record import RunRecord
from llmb.contract.state import COMPLETED, RUNNING, JobState
from llmb.core import files
from llmb.errors import UsageError
from llmb.plugins.loader import load_plugins
from llmb.show.report.page import to_html
from llmb.show.report.value import Report
from llmb_testing.invented_runs import opening, steps

RELOADS = '<meta http-equiv="refresh"'


class Night(Protocol):
    """The fixture of conftest.py."""

    folder: Path
    made: list[RunRecord]

    def measured(
        self, seconds: float, workload: str, dtype: str, scale: int, **how: Any
    ) -> None: ...
    def job(self, workload: str, dtype: str, scale: int) -> Any: ...
    def run(self, job: Any, text: str | None, state: str) -> None: ...


class Browser(Protocol):
    """The fixture of conftest.py."""

    def open(self, path: Path) -> None: ...
    def value(self, script: str) -> Any: ...


def context_of(night: Night) -> CliContext:
    context = CliContext(load_plugins(builtin_plugins()))
    context.install_option = night.folder
    return context


@pytest.fixture
def running(empty_night: Night) -> Night:
    """A cluster with one run that ended and one that runs."""
    empty_night.measured(2.75, "nemotron4_15b", "bf16", 16)
    job = empty_night.job("nemotronh_56b", "fp8", 64)
    empty_night.run(job, opening(8) + steps(3.3, 4, count=23), RUNNING)
    return empty_night


def test_the_page_is_rewritten_in_rounds_and_rests_at_the_end(
    running: Night, tmp_path: Path
) -> None:
    path, clock = tmp_path / "night.html", iter([0.0, 1.0, 2.0, 100.0, 101.0])
    live = LiveReport(context_of(running), running.made, path, clock=lambda: next(clock))
    _, open_run = running.made
    live(running.made, {open_run.id: JobState(state=RUNNING)})
    first = path.read_text("utf-8")
    assert RELOADS in first
    assert f'content="{EVERY}"' in first
    path.unlink()
    live(running.made, {})  # at 2 s: too early
    assert not path.exists()
    live(running.made, {open_run.id: JobState(state=COMPLETED)})
    assert RELOADS in path.read_text("utf-8")
    live.write(refresh=0)
    last = path.read_text("utf-8")
    assert RELOADS not in last
    assert all(run.id in last for run in running.made)


def test_a_page_that_cannot_be_written_does_not_end_the_wait(
    running: Night, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    with rewritten(context_of(running), running.made, folder / "night.html") as live:
        folder.rmdir()
        live(running.made, {})
    assert capsys.readouterr().err.count("warning: ") == 1


@pytest.mark.parametrize(
    ("name", "code"), [("night.md", "report-format"), ("no/night.html", "folder-missing")]
)
def test_only_a_page_in_a_folder_can_be_rewritten(
    name: str, code: str, running: Night, tmp_path: Path
) -> None:
    with (
        pytest.raises(UsageError) as refused,
        rewritten(context_of(running), running.made, tmp_path / name),
    ):
        pytest.fail("it waits")
    assert refused.value.code == code


def test_a_browser_shows_the_new_page_by_itself(
    browser: Browser, morning: Report, tmp_path: Path
) -> None:
    path = tmp_path / "night.html"
    path.write_text(to_html(replace(morning, refresh=1)), "utf-8")
    browser.open(path)
    files.write_text(path, to_html(replace(morning, cluster_name="later")))
    title = "document.querySelector('h1')?.textContent ?? ''"
    deadline = time.monotonic() + 300
    while "later" not in (browser.value(title) or ""):
        assert time.monotonic() < deadline, "the page does not reload itself"
    assert browser.value("document.querySelector('meta[http-equiv=refresh]')") is None


def test_without_a_published_figure_the_speed_is_beside_the_baseline(
    empty_night: Night, llmb_here: Callable[..., Any]
) -> None:
    empty_night.measured(3.1, "nemotron4_15b", "bf16", 96)
    (run,) = empty_night.made
    assert Paces(context_of(empty_night)).reference(run) is None
    done = llmb_here("baseline", "accept", "april", "--install", empty_night.folder)
    assert done.returncode == 0, done.stderr
    reference = Paces(context_of(empty_night)).reference(run)
    assert reference is not None
    assert reference.seconds == pytest.approx(3.1, rel=0.01)
    assert (reference.name, reference.short) == ("baseline april", "baseline")
    pace = Paces(context_of(empty_night)).of(run)
    assert pace is not None
    assert pace.in_words().endswith(" of baseline")


def test_a_slow_run_is_reported_with_its_other_settings_than_the_baseline(
    empty_night: Night, llmb_here: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """So that nobody stops a run that is slow on purpose."""
    empty_night.measured(3.1, "nemotron4_15b", "bf16", 96)
    llmb_here("baseline", "accept", "april", "--install", empty_night.folder)
    empty_night.measured(6.2, "nemotron4_15b", "bf16", 96, how={"NCCL_ALGO": "Ring"})
    run = empty_night.made[-1]
    pace = Paces(context_of(empty_night)).of(run)
    assert pace is not None
    _Lines(Paces()).warn(run, replace(pace, at=pace.at._replace(iteration=25)))
    (line,) = capsys.readouterr().err.splitlines()
    assert "of baseline april at step 26 (NCCL_ALGO Ring, unset in the reference). Stop" in line


def test_a_published_figure_comes_before_a_baseline(
    empty_night: Night, llmb_here: Callable[..., Any]
) -> None:
    empty_night.measured(2.75, "nemotron4_15b", "bf16", 16)
    (run,) = empty_night.made
    llmb_here("baseline", "accept", "april", "--install", empty_night.folder)
    reference = Paces(context_of(empty_night)).reference(run)
    assert reference is not None
    assert not reference.name.startswith("baseline")
