# SPDX-License-Identifier: Apache-2.0
"""Tests of the report over time: nights, lines, ratios, what changed; one night, gaps, and hundreds
of lines.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Protocol

import pytest

from llmb.contract.job import Job
from llmb.contract.record import RunRecord
from llmb.show.report import history_pages as caps
from llmb.show.report.history import History, HistoryLine, history_of, night_of
from llmb.show.report.history_pages import (
    headline_of,
    history_html,
    history_markdown,
    level_in_words,
)
from llmb.show.report.value import Report

Gather = Callable[..., Report]
Wording = Callable[..., None]
DAY = 86400


class Night(Protocol):
    """The fixture of conftest.py."""

    folder: Path

    def job(self, workload: str, dtype: str, scale: int, **how: Any) -> Job: ...
    def run(self, job: Job, log: str | None, state: str = ..., **how: Any) -> RunRecord: ...
    def measured(
        self, seconds: float, workload: str, dtype: str, scale: int, **how: Any
    ) -> None: ...
    def later(
        self, seconds: int, *, driver: str | None = ..., version: str | None = ...
    ) -> None: ...


@pytest.fixture
def nights(empty_night: Night) -> Night:
    """Four nights with a gap: a new driver and llmb in the second, a low clock and a failure in the
    fourth.
    """
    for number in range(4):
        if number:
            later = {"driver": "575.51.03", "version": "0.2.0"} if number == 1 else {}
            empty_night.later(DAY * (4 if number == 2 else 1), **later)
        clock = 1395 if number == 3 else 1980
        empty_night.measured(2.75, "nemotron4_15b", "bf16", 16, repeats=2, jitter=0.0005)
        empty_night.measured(2.9 if number == 3 else 2.77, "nemotron4_15b", "bf16", 32, clock=clock)
        if number != 1:
            empty_night.measured(
                3.1 - number / 10, "nemotron4_15b", "bf16", 96, jitter=0.0, noise=0.0
            )
    empty_night.run(empty_night.job("llama3.1_8b", "bf16", 8), "Bus error\n", "FAILED", exit_code=1)
    return empty_night


@pytest.fixture
def history(nights: Night, gather: Gather) -> History:
    return history_of(gather(nights))


def line(history: History, scale: int) -> HistoryLine:
    (found,) = [one for one in history.lines if one.points[0].entry.job.scale == scale]
    return found


def test_a_night_is_from_noon_to_noon() -> None:
    made = datetime(2025, 11, 21, tzinfo=UTC)
    hour = 3600
    eleven, one = (datetime(2025, 11, 21, h, tzinfo=UTC).timestamp() for h in (11, 13))
    assert night_of(eleven, made) == date(2025, 11, 20)
    assert night_of(one, made) == date(2025, 11, 21)
    assert night_of(one + 20 * hour, made) == date(2025, 11, 21)


def test_each_configuration_has_its_ratio_by_night(history: History) -> None:
    assert history.nights == (
        date(2025, 11, 20),
        date(2025, 11, 21),
        date(2025, 11, 25),
        date(2025, 11, 26),
    )
    slow, steady = line(history, 32), line(history, 16)
    assert [point.night for point in slow.points] == list(history.nights)
    assert [point.word for point in steady.points] == ["PASS"] * 4
    assert slow.last.word == "FAIL"  # of this night alone: 2.75 s are published for 32 GPUs
    assert {len(point.entry.runs) for point in steady.points} == {2}
    assert slow.moved == pytest.approx(2.77 / 2.9 - 1, abs=0.01)
    assert history.fallen == (slow,)
    assert history.lines[0] is slow or history.lines[0] == slow


def test_what_nothing_is_published_for_is_relative_to_the_first_night(history: History) -> None:
    own = line(history, 96)
    assert own.against is None
    assert [point.ratio for point in own.points] == pytest.approx(
        [1.0, 3.1 / 2.9, 3.1 / 2.8], rel=1e-3
    )
    assert [point.night for point in own.points] == [history.nights[0], *history.nights[2:]]


def test_what_changed_is_a_step_with_the_lines_it_holds_for(history: History) -> None:
    found = {(step.night, step.text): step for step in history.steps}
    driver = found[date(2025, 11, 21), "driver 570.86.15 → 575.51.03"]
    assert driver.every
    assert (date(2025, 11, 21), "llmb 0.1.0 → 0.2.0") in found
    clock = found[date(2025, 11, 26), "SM clock 1980 MHz → 1395 MHz under load"]
    assert [title.split(", ")[1] for title in clock.titles] == ["32 GPUs"]
    assert not clock.every
    # 96 GPUs did not run in the second night
    later = found[date(2025, 11, 25), "driver 570.86.15 → 575.51.03"]
    assert [title.split(", ")[1] for title in later.titles] == ["96 GPUs"]


def test_a_lasting_fall_is_found_with_what_changed_that_night(
    empty_night: Night, gather: Gather, wording: Wording
) -> None:
    for number, seconds in enumerate((2.75, 2.76, 2.74, 2.75, 2.88, 2.89, 2.88)):
        if number:
            empty_night.later(DAY, **({"driver": "575.51.03"} if number == 4 else {}))
        empty_night.measured(seconds, "nemotron4_15b", "bf16", 16, jitter=0.0)
        empty_night.measured(2.75 + number % 2 / 100, "nemotron4_15b", "bf16", 32, jitter=0.0)
    report = gather(empty_night)
    history = history_of(report)
    (shift,) = history.shifts
    assert (shift.night, shift.level.counts) == (history.nights[4], (4, 3))
    assert shift.level.moved == pytest.approx(2.75 / 2.883 - 1, abs=0.002)
    assert shift.changes == ("driver 570.86.15 → 575.51.03",)
    section = history_markdown(report, history).partition("## When the speed changed")[2]
    wording("report", section.partition("##")[0])
    page = history_html(report, history)
    assert "When the speed changed" in page
    assert level_in_words(shift) in page


def test_settings_that_change_stay_on_one_line_and_variants_do_not(
    empty_night: Night, gather: Gather
) -> None:
    empty_night.measured(2.75, "nemotron4_15b", "bf16", 16)
    empty_night.later(DAY)
    empty_night.measured(2.6, "nemotron4_15b", "bf16", 16, how={"NCCL_ALGO": "Ring"})
    (one,) = history_of(gather(empty_night)).lines
    assert [change.name for change in one.points[1].changes] == ["setting"]
    assert "NCCL_ALGO" in one.points[1].changes[0].text
    empty_night.measured(2.75, "nemotron4_15b", "bf16", 16)
    both = history_of(gather(empty_night)).lines
    assert sorted(len(own.points) for own in both) == [1, 2]
    assert {own.note for own in both} == {"", "NCCL_ALGO=Ring"}


@pytest.mark.parametrize("number", [0, 1])
def test_no_night_and_one_night(
    number: int, empty_night: Night, gather: Gather, wording: Wording
) -> None:
    for _ in range(number):
        empty_night.measured(2.75, "nemotron4_15b", "bf16", 16)
    report = gather(empty_night)
    history = history_of(report)
    wording("report", headline_of(history))
    for text in (history_html(report, history), history_markdown(report, history)):
        assert ("nemotron4 15b bf16, 16 GPUs" in text) == bool(number)
        assert "What changed" not in text


def test_markdown_and_the_page_have_the_same(
    nights: Night, gather: Gather, wording: Wording
) -> None:
    report = gather(nights)
    history = history_of(report)
    markdown, page = history_markdown(report, history), history_html(report, history)
    wording(
        "report",
        "\n".join(text for text in markdown.splitlines() if not text.startswith("Made by ")),
    )
    for step in history.steps:
        assert step.text in markdown
        assert step.text in page
    assert page.count('class="picture history"') == len(history.lines)
    assert page == history_html(report, history)


def test_hundreds_of_configurations_over_many_nights_can_be_sent(
    nights: Night, gather: Gather
) -> None:
    report = gather(nights)
    runs = []
    for number in range(2400):
        run = report.runs[number % len(report.runs)]
        job = replace(run.job, model_size=f"{number % 400}b")
        own = run.result.identity.configuration
        assert own is not None
        identity = replace(
            run.result.identity,
            run=f"r{number}",
            configuration=replace(own, model_size=job.model_size),
        )
        result = replace(run.result, identity=identity)
        runs.append(
            replace(run, job=job, result=result, created=run.created + DAY * (number // 400))
        )
    many = replace(report, runs=tuple(runs))
    history = history_of(many)
    assert len(history.lines) == 400
    page = history_html(many, history)
    assert len(page) < 1_500_000
    assert page.count('class="picture history"') == caps.PICTURES
    assert len(history_markdown(many, history).splitlines()) > 400


def test_the_command_ends_as_the_latest_night_does(
    nights: Night, llmb_here: Callable[..., Any]
) -> None:
    assert llmb_here("report", "--history", "--install", nights.folder).returncode == 3
    nights.later(DAY)
    nights.measured(2.75, "nemotron4_15b", "bf16", 16)
    done = llmb_here("report", "--history", "--format", "html", "--install", nights.folder)
    assert done.returncode == 0
    assert done.stdout.startswith("<!doctype html>")
