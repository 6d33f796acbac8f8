# SPDX-License-Identifier: Apache-2.0
"""Tests of the page of HTML as a parser sees it: whole, closed, labelled, escaped, bounded, the
same each time.
"""

import html
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Protocol

import pytest

from llmb.contract.job import Job
from llmb.contract.record import RunRecord
from llmb.measure.result import Identity
from llmb.show.report import page as caps
from llmb.show.report.markdown import to_markdown
from llmb.show.report.page import to_html
from llmb.show.report.value import Report

Gather = Callable[..., Report]
Wording = Callable[..., None]
VOID = {"meta", "br", "wbr", "link", "img", "input", "hr"}
HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&amp;{{7*7}}"


class Night(Protocol):
    """The fixture of conftest.py."""

    folder: Path

    def job(self, workload: str, dtype: str, scale: int, **how: Any) -> Job: ...
    def run(self, job: Job, log: str | None, state: str = ..., **how: Any) -> RunRecord: ...
    def measured(
        self, seconds: float, workload: str, dtype: str, scale: int, **how: Any
    ) -> None: ...


class Page(HTMLParser):
    """The elements of a page, with their attributes and the elements they are in, and its text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str], tuple[str, ...]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}, tuple(self.open)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}, tuple(self.open)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes, _ in self.elements if name == tag]

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


@pytest.fixture
def source(morning: Report) -> str:
    return to_html(morning)


def test_the_page_is_whole_and_needs_nothing_else(source: str) -> None:
    page = Page(source)
    assert source.startswith("<!doctype html>\n")
    tags = {tag for tag, _, _ in page.elements}
    assert not tags & {"link", "img", "iframe", "object", "embed", "video", "audio", "base", "form"}
    attributes = [(name, value) for _, own, _ in page.elements for name, value in own.items()]
    assert not [
        name
        for name, _ in attributes
        if name in ("src", "srcset", "style", "action") or name.startswith("on")
    ]
    assert {value[0] for name, value in attributes if name == "href"} == {"#"}
    assert not re.search(r"@import|url\(", source)
    (policy,) = (
        own["content"]
        for own in page.all("meta")
        if own.get("http-equiv") == "Content-Security-Policy"
    )
    allowed = {words[0]: words[1:] for words in map(str.split, policy.split(";"))}
    assert allowed["default-src"] == ["'none'"]
    assert all(source.startswith("'sha256-") for source in allowed["style-src"])
    assert "unsafe" not in policy


def test_every_link_leads_somewhere_and_every_id_is_one(source: str) -> None:
    page = Page(source)
    ids = Counter(own["id"] for _, own, _ in page.elements if "id" in own)
    assert [name for name, number in ids.items() if number > 1] == []
    assert {own["href"][1:] for own in page.all("a")} <= set(ids)
    named = [name for _, own, _ in page.elements for name in own.get("aria-labelledby", "").split()]
    assert set(named) <= set(ids)


def test_tables_and_pictures_say_what_they_are(source: str) -> None:
    page = Page(source)
    assert all(own.get("scope") in ("col", "row") for own in page.all("th"))
    pictures = [own for own in page.all("svg") if "aria-hidden" not in own]
    hidden = [
        parents for tag, own, parents in page.elements if tag == "svg" and own.get("role") != "img"
    ]
    assert len(pictures) > 40
    # an axis' numbers, a legend's marks
    assert all("th" in parents or "p" in parents for parents in hidden)
    assert len(page.all("desc")) == len(
        [own for own in pictures if "picture" in own.get("class", "")]
    )
    assert all(
        own.get("aria-label") and own.get("tabindex") == "0"
        for own in page.all("div")
        if own.get("class") == "scroll"
    )
    assert [tag for tag, _, _ in page.elements if tag == "h1"] == ["h1"]
    assert page.all("html") == [{"lang": "en"}]


def test_what_a_reader_wants_is_on_the_page(source: str) -> None:
    text = Page(source).text
    for words in (
        "Benchmarks on aurora",
        "37 runs on h100, submitted 2025-11-20 to 2025-11-21",
        "5 of 14 compared configurations are worse than published",
        "GPU out of memory: 2 runs",
        "Fix: check that nothing else runs on these GPUs",
        "window: iterations 11-44 here, the last iteration of 50 in the published run",
        "SM clock: 1395 MHz under load",
        "nvcr.io/nvidia/nemo:25.04.01 sha256:4f1c0de2",
        "NCCL_ALGO=Ring",
        "0.920 – 0.928",
        "release 25.04, table of Nemotron4 340b on H100",
        "pretrain_nemotron4/experiments/",
        "made by llmb",
    ):
        assert words.lower() in text.lower()


def test_no_secret_reaches_the_page(source: str, morning: Report) -> None:
    assert "never-shown" not in source + to_markdown(morning)
    assert "HF_TOKEN" not in source


def test_the_same_data_give_the_same_page(night: Night, gather: Gather, source: str) -> None:
    assert to_html(gather(night)) == source


def test_one_value_gives_both(morning: Report, source: str, wording: Wording) -> None:
    markdown, page = to_markdown(morning), Page(source).text
    wording("report", "\n".join(line for line in markdown.splitlines() if "37 runs" in line))
    for run in morning.runs:
        assert run.id in markdown
        assert run.id in page
    for group in morning.failures:
        assert group.cause.fix in markdown
        assert group.cause.fix in page


def test_a_report_on_nothing(empty_night: Night, gather: Gather, wording: Wording) -> None:
    text = Page(to_html(gather(empty_night))).text
    assert "Failures" not in text
    wording("report", text.split("Results")[-1].partition(" Conditions")[0])


def test_what_nothing_is_published_for_needs_no_ratio(empty_night: Night, gather: Gather) -> None:
    empty_night.measured(3.1, "nemotron4_15b", "bf16", 96)
    heads = Page(to_html(gather(empty_night))).text.split("Window")[0]
    assert "Step time (s)" in heads
    assert "Ratio" not in heads
    assert "Published" not in heads


def hostile(report: Report) -> Report:
    """The report with markup, control characters and half a character in every text that others
    have written.
    """
    bad = HOSTILE + "\x1b]0;x\x07\u202e\udc80\x00"
    runs = []
    for number, run in enumerate(report.runs):
        own, result = run.result.identity.configuration, run.result
        assert own is not None
        job = replace(
            run.job, workload=bad, model_size=bad, image=bad, experiment_name=bad, env={bad: bad}
        )
        result = replace(
            result,
            identity=Identity(
                experiment=bad,
                path=bad,
                run=f"{number}{bad}",
                configuration=replace(own, workload=bad, image=bad, env={bad: bad}),
            ),
            reason=bad,
            verdict=replace(
                result.verdict,
                reason=bad,
                reference=result.verdict.reference
                and replace(result.verdict.reference, release=bad, source=bad),
            ),
            log=result.log
            and replace(
                result.log,
                networks=(bad,),
                nccl_version=bad,
                framework=bad,
                hosts=(bad,),
                drivers=(bad,),
                gpu_models=(bad,),
            ),
        )
        figure = run.figure and replace(run.figure, source=bad, flops_convention=bad)
        runs.append(
            replace(
                run,
                job=job,
                result=result,
                directory=f"/{bad}",
                scheduler_id=bad,
                environment={bad: bad},
                figure=figure,
                llmb_version=bad,
                cause=run.cause and replace(run.cause, kind=bad, line=bad),
            )
        )
    failures = [
        replace(group, cause=replace(group.cause, line=bad), runs=(bad,))
        for group in report.failures
    ]
    points = [
        replace(point, configuration=replace(point.configuration, workload=bad))
        for point in report.points
    ]
    return replace(
        report,
        cluster_name=bad,
        cluster_type=bad,
        gpu_type=bad,
        llmb_version=bad,
        runs=tuple(runs),
        failures=tuple(failures),
        points=tuple(points),
        digests={bad: bad},
        faulty=(bad,),
        release=bad,
    )


def test_hostile_texts_are_only_texts(morning: Report, source: str) -> None:
    written = to_html(hostile(morning))
    written.encode()
    page = Page(written)
    assert {tag for tag, _, _ in page.elements} <= {tag for tag, _, _ in Page(source).elements}
    assert len(page.all("script")) == 1
    assert not [name for _, own, _ in page.elements for name in own if name.startswith("on")]
    assert "<script>alert(1)</script>" in page.text
    assert "49" not in page.text.split("{{7*7}}")[1][:4]
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e\udc80]", written)


def many(report: Report, number: int) -> Report:
    """The report with that many runs, each of a configuration of its own and with long texts."""
    runs = []
    for n in range(number):
        run = report.runs[n % len(report.runs)]
        own, result = run.result.identity.configuration, run.result
        assert own is not None
        long = f"{n} " + 40 * "a long reason for it "
        variables = {f"VARIABLE_{n}": "x" * 500}
        identity = replace(result.identity, run=f"r{n}", configuration=replace(own, env=variables))
        result = replace(result, identity=identity, reason=long)
        runs.append(
            replace(run, result=result, job=replace(run.job, env=variables), environment=variables)
        )
    groups = [
        replace(group, runs=tuple(f"r{n}" for n in range(number))) for group in report.failures
    ] * 20
    return replace(report, runs=tuple(runs), failures=tuple(groups))


@pytest.mark.parametrize("number", [1000, 3000])
def test_the_page_of_a_thousand_runs_can_be_sent(
    number: int, morning: Report, wording: Wording
) -> None:
    written = to_html(many(morning, number))
    assert len(written) < 1_500_000
    page = Page(written)
    wording(
        "report",
        "\n".join(
            re.findall(
                r"\d+ (?:runs|configurations|causes [a-z ]+); the worst \d+ [a-z ]+", page.text
            )
        ),
    )
    assert f"and {number - caps.NAMED} more" in page.text
    assert len(page.all("article")) == caps.FAILURES


def test_the_formulas_of_ratios_give_their_figures(morning: Report) -> None:
    page = html.unescape(to_html(morning))
    ratios = [
        (run, lines[0])
        for run in morning.runs
        for name, lines in run.formulas
        if name == "ratio" and run.result.verdict.ratio is not None
    ]
    assert ratios
    for run, line in ratios:
        assert line in page
        above, below, ratio = map(float, re.findall(r"\d+(?:\.\d+)?", line)[:3])
        assert above / below == pytest.approx(ratio, abs=1e-4)
        assert ratio == pytest.approx(run.result.verdict.ratio, abs=1e-4)
    assert '<details class="formulas">' in page
    assert "<details open" not in page
