# SPDX-License-Identifier: Apache-2.0
"""Tests of reports on benchmarks that train nothing, alone and beside training: units, columns and
words.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from llmb.contract.job import Job
from llmb.contract.metrics import Bounds, Measured, MetricSpec
from llmb.contract.samples import Samples, Step
from llmb.contract.window import Window
from llmb.judge.judge import judge
from llmb.judge.scaling import scaling_points
from llmb.measure.result import SUCCESS, Result
from llmb.plan.published import Figure
from llmb.show.report.history import history_of
from llmb.show.report.history_pages import history_html, history_markdown
from llmb.show.report.markdown import to_markdown
from llmb.show.report.page import to_html
from llmb.show.report.svg.steps import steps_picture
from llmb.show.report.value import Report, Run
from llmb_testing.results import result_of

Wording = Callable[..., None]
WINDOW = Window(4, 17)
BUSBW = MetricSpec(name="busbw", unit="GB/s")
LATENCY = MetricSpec(name="latency", unit="us", better="lower")
OF_TRAINING = (
    "step time",
    "token",
    "mfu",
    "tflops",
    "batch",
    "flops",
    "layers",
    "sequence",
    "model",
)


class Browser(Protocol):
    """The fixture of conftest.py."""

    events: list[dict[str, Any]]

    def open(self, path: Path) -> None: ...
    def value(self, script: str) -> Any: ...
    def width(self, pixels: int, *, scheme: str = ...) -> None: ...


def figure(size: str, metric: MetricSpec, scale: int, value: float) -> Figure:
    return Figure(
        release="1.0",
        source="acme's notes 1.0",
        window=WINDOW,
        steps=20,
        workload="microbench",
        model_size=size,
        dtype="bf16",
        gpu_type="h100",
        scale=scale,
        metric=metric,
        value=value,
        parameters={"message_size": "16M"},
    )


FIGURES = (
    figure("all_reduce", BUSBW, 8, 480.2),
    figure("all_reduce", BUSBW, 16, 480.0),
    figure("send_receive", LATENCY, 16, 36.0),
)


def measured(
    size: str, metric: MetricSpec, scale: int, value: float, number: int
) -> tuple[Result, Job, Samples]:
    """A run of 20 iterations: the first one is ten times as bad."""
    name = f"microbench_{size}_bf16_gpus{scale}_message_size16M"
    job = Job(
        workload="microbench",
        model_size=size,
        dtype="bf16",
        gpu_type="h100",
        scale=scale,
        repeat=1,
        profile=False,
        env={},
        max_steps=20,
        nodes=max(1, scale // 8),
        gpus_per_node=8,
        time_limit=600,
        image=None,
        experiment_name=name,
        parameters={"message_size": "16M"},
    )
    result = result_of(
        {
            "experiment": name,
            "path": f"/x/{number}/log.out",
            "run": f"mb{number}",
            "status": SUCCESS,
            "window": WINDOW,
            "max_iteration": 19,
            "steps": 20,
            "configuration": job.settings,
            "metrics": {
                metric.name: Measured(
                    mean=value, std=1.5, n=14, unit=metric.unit, better=metric.better
                ),
                "algbw": Measured(mean=value / 2, std=0.5, n=14, unit="GB/s"),
            },
            "headline": metric.name,
        }
    )
    worse = value * 10 if metric.better == "lower" else value / 10
    values = [worse, *(value + 0.1 * (number % 3) for number in range(19))]
    steps = tuple(
        Step(iteration=number, step_time=math.nan, values={metric.name: one})
        for number, one in enumerate(values)
    )
    return result, job, Samples(steps=steps, last=19)


def runs_of(found: Sequence[tuple[Result, Job, Samples]]) -> tuple[Run, ...]:
    judged = judge([result for result, _, _ in found], FIGURES)
    by_case = {(one.model_size, one.scale): one for one in FIGURES}
    return tuple(
        Run(
            result=result,
            job=job,
            directory=f"/x/{number}",
            created=1763668800.0 + number,
            llmb_version="0.1.0",
            figure=by_case.get((job.model_size, job.scale)),
            samples=samples,
        )
        for number, (result, (_, job, samples)) in enumerate(zip(judged, found, strict=True))
    )


@pytest.fixture
def plain(morning: Report) -> Report:
    """A report on collectives alone."""
    found = [
        measured("all_reduce", BUSBW, 8, 480.2, 1),
        measured("all_reduce", BUSBW, 8, 478.2, 2),
        measured("all_reduce", BUSBW, 16, 440.4, 3),
        measured("send_receive", LATENCY, 16, 37.5, 4),
    ]
    runs = runs_of(found)
    points = tuple(scaling_points([run.result for run in runs]))
    return replace(morning, runs=runs, failures=(), points=points, figures=FIGURES)


@pytest.fixture
def mixed(morning: Report, plain: Report) -> Report:
    """Collectives beside training."""
    return replace(
        morning,
        runs=(*morning.runs, *plain.runs),
        points=(*morning.points, *plain.points),
        figures=(*morning.figures, *plain.figures),
    )


def test_a_ratio_to_the_first_night_has_no_verdict_of_its_own(morning: Report) -> None:
    """Of two nights that keep a minimum, the second is 5 % worse: 0.95 alone would be a WARN."""
    bounds = Bounds(minimum=300.0, warn_below=0.97)
    nights = []
    for number, value in enumerate((400.0, 380.0)):
        result, job, samples = measured("all_reduce", BUSBW, 32, value, number)
        values = {BUSBW.name: replace(result.metrics.measured[BUSBW.name], bounds=bounds)}
        metrics = replace(result.metrics, measured=values)
        nights.append((replace(result, metrics=metrics), job, samples))
    runs = tuple(
        replace(run, created=run.created + number * 86400)
        for number, run in enumerate(runs_of(nights))
    )
    report = replace(morning, runs=runs, failures=(), points=(), figures=())
    text = history_markdown(report, history_of(report))
    assert "0.950" in text
    assert "0.950 PASS" not in text
    page = history_html(report, history_of(report))
    assert not re.search(r'class="pass">\s*0\.950', page)
    assert "0.950 PASS" not in page


def text_of(page: str) -> str:
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", page[page.index("<body>") :], flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


def head(page: str, section: str) -> list[str]:
    """The headings of the first table of a section."""
    part = page[page.index(f'<section id="{section}"') :]
    row = part[part.index("<thead>") : part.index("</thead>")]
    return [
        text_of(f"<body>{cell}") for cell in re.findall(r"<th\b[^>]*>(.*?)</th>", row, re.DOTALL)
    ]


def test_without_training_there_is_no_word_of_it(plain: Report) -> None:
    for text in (text_of(to_html(plain)), to_markdown(plain)):
        assert [word for word in OF_TRAINING if word in text.lower()] == []


def test_values_have_their_units(plain: Report, wording: Wording) -> None:
    page = to_html(plain)
    text = text_of(page)
    for words in (
        "480.2 GB/s",
        "37.50 us",
        "36.00 us",
        "440.4 GB/s instead of 480.0",
        "message_size=16M",
    ):
        assert words in text
    heads = [head(page, section) for section in ("results", "repeats", "runs", "scaling")]
    wording("report", "\n".join(" | ".join(one) for one in heads))
    wording("report", to_markdown(plain))


def test_the_ratios_are_those_of_a_hand(plain: Report) -> None:
    text = text_of(to_html(plain))
    assert f"{(480.2 + 478.2) / 2 / 480.2:.3f}" in text  # 0.998
    assert f"{440.4 / 480:.3f}" in text  # 0.917 (n=1): FAIL
    assert f"{36 / 37.5:.3f}" in text  # 0.960: lower is better


def test_one_metric_has_its_unit_in_the_heading(plain: Report) -> None:
    only = replace(
        plain, runs=tuple(run for run in plain.runs if run.job.model_size == "all_reduce")
    )
    page = to_html(only)
    assert head(page, "results")[6:9] == ["busbw (GB/s)", "Published", "Window"]
    table = page[page.index('<section id="results"') : page.index('<section id="why"')]
    assert "480.2 GB/s" not in text_of(f"<body>{table}")


def test_beside_training_both_have_their_columns(mixed: Report, wording: Wording) -> None:
    page = to_html(mixed)
    heads = head(page, "results")
    assert [name in heads for name in ("Measured", "Published", "Tokens/s/GPU", "MFU %")] == [
        True
    ] * 4
    text = text_of(page)
    assert "440.4 GB/s" in text
    assert re.search(r"2\.7\d\d s\b", text)
    wording(
        "report",
        "\n".join(" | ".join(head(page, section)) for section in ("results", "repeats", "runs")),
    )


def test_training_alone_has_no_column_of_others(morning: Report) -> None:
    page = to_html(morning)
    heads = head(page, "results")
    assert [name in heads for name in ("Step time (s)", "Published (s)", "Measured")] == [
        True,
        True,
        False,
    ]
    assert "% of smallest" not in text_of(page)


def test_scaling_is_relative_to_the_smallest_scale(plain: Report) -> None:
    page = to_html(plain)
    part = text_of(
        "<body>" + page[page.index('<section id="scaling"') : page.index('<section id="repeats"')]
    )
    mean = (480.2 + 478.2) / 2
    assert f"{100 * 440.4 / mean:.1f}" in part
    assert "published with 1.0, 16 GPUs: 480.0 GB/s" in part


@pytest.mark.parametrize(("metric", "bad"), [(BUSBW, 48.0), (LATENCY, 4800.0)])
def test_steps_that_are_much_worse_have_a_mark(metric: MetricSpec, bad: float) -> None:
    steps = [
        Step(
            iteration=i, step_time=math.nan, values={metric.name: bad if i == 0 else 480.0 + i % 3}
        )
        for i in range(20)
    ]
    picture = steps_picture("k", "t", steps, WINDOW, (), 481.0, 20, metric)
    assert picture.count('class="beyond"') == 1
    assert f"iteration 0: {bad:g} {metric.unit}, outside the chart" in picture
    assert f"the worst is {bad:g} {metric.unit} at iteration 0" in picture
    other = MetricSpec(name="other")
    assert steps_picture("k", "t", steps, WINDOW, (), None, 20, other) == ""


@pytest.mark.parametrize("width", [400, 1400])
def test_a_mixed_page_is_as_wide_as_the_window(
    width: int, browser: Browser, mixed: Report, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    path.write_text(to_html(mixed), "utf-8")
    browser.width(width)
    browser.open(path)
    assert browser.value("document.documentElement.scrollWidth") <= width
    found = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
    assert [event for event in browser.events if event["method"] in found] == []
