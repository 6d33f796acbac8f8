# SPDX-License-Identifier: Apache-2.0
"""Tests of both pages on a phone and a desktop in a real browser: what the first screen has, gaps,
cues, axe-core.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from llmb.contract.job import Job
from llmb.contract.record import RunRecord
from llmb.judge.compare import judged_against
from llmb.judge.export import Baseline
from llmb.measure.result import Verdict
from llmb.show.report.history import history_of
from llmb.show.report.history_pages import history_html
from llmb.show.report.page import to_html
from llmb.show.report.value import Report

Gather = Callable[..., Report]
PHONE, DESKTOP, HEIGHT = 390, 1440, 844
OOM = "7: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB\n"
CONFIGURATIONS = 8


class Browser(Protocol):
    """The fixture of conftest.py."""

    def open(self, path: Path) -> None: ...
    def value(self, script: str) -> Any: ...
    def width(self, pixels: int, *, scheme: str = ..., height: int = ...) -> None: ...


class Night(Protocol):
    """The fixture of conftest.py."""

    def job(self, workload: str, dtype: str, scale: int, **how: Any) -> Job: ...
    def run(self, job: Job, log: str | None, state: str = ..., **how: Any) -> RunRecord: ...
    def measured(
        self, seconds: float, workload: str, dtype: str, scale: int, **how: Any
    ) -> None: ...
    def later(self, seconds: int, *, driver: str | None = ...) -> None: ...


@pytest.fixture
def typical(empty_night: Night, gather: Gather, kept: dict[str, Any]) -> Report:
    """A typical list of eight configurations: good and slow ones, with a low clock, over TCP, and
    one that failed.
    """
    if "typical" not in kept:
        empty_night.measured(2.757, "nemotron4_15b", "bf16", 16, repeats=3)
        empty_night.measured(2.79, "nemotron4_15b", "bf16", 64, repeats=3)
        empty_night.measured(1.99, "nemotron4_15b", "fp8", 16, repeats=2)
        empty_night.measured(4.3, "nemotron4_340b", "bf16", 256)
        empty_night.measured(4.95, "nemotron4_340b", "bf16", 512, clock=1395)
        empty_night.measured(2.33, "nemotron4_15b", "fp8", 64, clock=1395)
        empty_night.measured(3.5, "nemotron4_340b", "fp8", 256, network="Socket")
        empty_night.run(empty_night.job("llama3.1_8b", "bf16", 8), OOM, "FAILED", exit_code=1)
        kept["typical"] = gather(empty_night)
    found: Report = kept["typical"]
    return found


def against_baseline(report: Report) -> Report:
    """The report, compared with a baseline: its good runs of another day."""
    results = [replace(run.result, verdict=Verdict()) for run in report.runs]
    base = Baseline(
        called="baseline april", accepted="2025-04-30T08:00:00+00:00", results=tuple(results[:5])
    )
    judged = judged_against(results, base.results, base.called)
    runs = [
        replace(run, result=result, figure=None)
        for run, result in zip(report.runs, judged, strict=True)
    ]
    return replace(report, runs=tuple(runs), baseline=base)


@pytest.fixture(params=["report", "history", "baseline"])
def page(request: pytest.FixtureRequest, typical: Report, tmp_path: Path) -> Path:
    """Both pages, and that of a report against a baseline."""
    path = tmp_path / f"{request.param}.html"
    if request.param == "baseline":
        typical = against_baseline(typical)
    text = (
        history_html(typical, history_of(typical))
        if request.param == "history"
        else to_html(typical)
    )
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_first_screen_of_a_phone_has_every_verdict_share_and_cause(
    scheme: str, browser: Browser, typical: Report, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    path.write_text(to_html(typical), "utf-8")
    browser.width(PHONE, scheme=scheme, height=HEIGHT)
    browser.open(path)
    script = f"""[...document.querySelectorAll('.glance > li')]
        .filter(e => e.getBoundingClientRect().bottom <= {HEIGHT}).map(e => e.innerText).join('\\n')"""
    first = browser.value(script)
    for run in typical.runs:
        name = (
            f"{run.job.workload.removeprefix('pretrain_')} {run.job.model_size} {run.job.dtype},"
            f" {run.job.scale} GPUs"
        )
        assert name in first
        ratio = run.result.verdict.pooled_ratio
        assert ratio is None or f"{100 * ratio:.1f} %" in first
    # of two configurations
    assert first.count("SM clock 1395 MHz under load (passing runs have 1980 MHz)") == 1
    for words in ("FAIL", "PASS", "INVALID", "Failed", "TCP", "GPU out of memory"):
        assert words in first


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_nothing_overflows_without_a_cue(width: int, browser: Browser, page: Path) -> None:
    browser.width(width, height=HEIGHT)
    browser.open(page)
    assert browser.value("document.documentElement.scrollWidth") <= width
    silent = """[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth)
        .filter(e => !getComputedStyle(e).backgroundAttachment.includes('local')).length"""
    assert browser.value(silent) == 0


# The largest distance between the bottom of what is above and the top of what comes next.
GAP = """(() => {
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const boxes = [...document.querySelectorAll('svg')].map(e => e.getBoundingClientRect());
  while (walk.nextNode()) {
    if (!walk.currentNode.textContent.trim() || walk.currentNode.parentElement.closest('.skip, script')) continue;
    const range = document.createRange();
    range.selectNode(walk.currentNode);
    boxes.push(range.getBoundingClientRect());
  }
  let end = 0, most = 0;
  for (const box of boxes.filter(b => b.height).sort((a, b) => a.top - b.top)) {
    most = Math.max(most, box.top - end);
    end = Math.max(end, box.bottom);
  }
  return most;
})()"""


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_there_are_no_gaps(width: int, browser: Browser, page: Path) -> None:
    browser.width(width, height=HEIGHT)
    browser.open(page)
    assert 0 < browser.value(GAP) < HEIGHT / 6


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_axe_finds_no_fault(
    width: int, scheme: str, browser: Browser, page: Path, axe: str
) -> None:
    browser.width(width, scheme=scheme, height=HEIGHT)
    browser.open(page)
    browser.value(axe)
    script = """axe.run().then(found => JSON.stringify([found.passes.length, found.violations.map(
        one => [one.id, one.nodes.slice(0, 3).map(node => node.html.slice(0, 120) + node.failureSummary)])]))"""
    passed, faults = json.loads(browser.value(script))
    assert faults == []
    assert passed > 20
