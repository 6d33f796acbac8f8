# SPDX-License-Identifier: Apache-2.0
"""Tests of reports against an accepted baseline: the verdicts of `compare`, its name and date, in
every form.
"""

import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

Command = Callable[..., "subprocess.CompletedProcess[str]"]
DAY = 86400
FORMATS = ("table", "md", "csv", "json", "junit")  # of compare


class Night(Protocol):
    """The fixture of conftest.py."""

    folder: Path

    def measured(
        self, seconds: float, workload: str, dtype: str, scale: int, **how: Any
    ) -> None: ...
    def later(self, seconds: int) -> None: ...


@pytest.fixture
def report(empty_night: Night, llmb_here: Command) -> Command:
    """Runs llmb-run on an install whose first night is the baseline `april`, with a later, slower
    night.
    """
    # nothing is published for 96 GPUs; 2.746 s are for 16
    for scale, seconds in ((16, 2.0), (96, 3.0)):
        empty_night.measured(seconds, "nemotron4_15b", "bf16", scale, repeats=3)
    here: Command = lambda *words: llmb_here(*words, "--install", empty_night.folder)  # noqa: E731
    assert here("baseline", "accept", "april").returncode == 0
    empty_night.later(DAY)
    empty_night.measured(2.4, "nemotron4_15b", "bf16", 16, repeats=2, clock=1395)
    empty_night.measured(3.0, "nemotron4_15b", "bf16", 96, repeats=2)
    return here


def words_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page.partition("<main>")[2]).split())


def test_verdicts_are_those_of_compare(report: Command, tmp_path: Path) -> None:
    compared = {row["configuration"]["scale"]: row for row in _compared(report)}
    assert {scale: row["verdict"] for scale, row in compared.items()} == {16: "FAIL", 96: "PASS"}
    done = report("report", "--baseline", "april", "-o", tmp_path / "page.html")
    assert done.returncode == 3
    page = (tmp_path / "page.html").read_text()
    text = words_of(page)
    for row in compared.values():
        assert f"{row['ratio']:.3f}" in text
        assert f"{row['ratio_interval'][0]:.3f} – {row['ratio_interval'][1]:.3f}" in text
    rest = re.sub(r'<section id="scaling".*?</section>', "", page, flags=re.DOTALL)  # it has both
    assert "published" not in words_of(rest).lower()


def _compared(report: Command) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        report("compare", "--baseline", "april", "--format", "json").stdout
    )["comparisons"]
    return found


@pytest.mark.parametrize("words", [[], ["--history"]])
@pytest.mark.parametrize("fmt", ["md", "html"])
def test_the_baseline_is_named_with_its_date(words: list[str], fmt: str, report: Command) -> None:
    text = report("report", "--baseline", "april", *words, "--format", fmt).stdout
    today = time.strftime("%Y-%m-%d")
    assert re.search(rf"baseline april \({today}\), 6 runs", text)


def test_runs_of_the_baseline_are_not_compared_with_themselves(
    report: Command, wording: Callable[..., None]
) -> None:
    done = report("report", "--baseline", "april")
    wording("report", done.stderr)
    assert "4 runs:" in done.stdout
    assert "| FAIL (n=2)" in done.stdout


def test_the_differences_from_the_baseline_are_listed(report: Command, tmp_path: Path) -> None:
    report("report", "--baseline", "april", "-o", tmp_path / "page.html")
    text = words_of((tmp_path / "page.html").read_text())
    _, why, repeats = (
        text.rpartition(name)
        for name in ("Verdicts", "Why it differs from baseline april", "Repeats")
    )
    assert "SM clock in MHz 1395, not 1980" in why[2]
    assert repeats[2] in why[2]


def test_each_night_is_judged_against_it(report: Command) -> None:
    table = report("report", "--baseline", "april", "--history").stdout
    (slow,) = [line for line in table.splitlines() if "| nemotron4 15b bf16, 16 GPUs" in line]
    cells = [cell.strip() for cell in slow.strip("|").split("|")]
    assert cells[1] == "1.000"  # the baseline itself
    assert cells[2].endswith(" FAIL")
    assert cells[-1] == "baseline april"


def test_a_night_is_not_judged_with_its_own_baseline(
    empty_night: Night, llmb_here: Command
) -> None:
    """Accepted at 2.0 s, then 2.4 s in the same night: 2.0 / 2.4, where both together would have
    0.909.
    """
    here: Command = lambda *words: llmb_here(*words, "--install", empty_night.folder)  # noqa: E731
    empty_night.measured(2.0, "nemotron4_15b", "bf16", 16, jitter=0.0, noise=0.0)
    empty_night.measured(3.0, "nemotron4_15b", "bf16", 96, jitter=0.0, noise=0.0)
    assert here("baseline", "accept", "april").returncode == 0
    empty_night.measured(2.4, "nemotron4_15b", "bf16", 16, jitter=0.0, noise=0.0)
    done = here("report", "--baseline", "april", "--history")
    rows = [
        [cell.strip() for cell in line.split("|")]
        for line in done.stdout.splitlines()
        if line.startswith("| nem")
    ]
    assert {row[1].partition(", ")[2]: row[2] for row in rows} == {
        "16 GPUs": "0.833 FAIL",
        "96 GPUs": "1.000",
    }
    assert done.returncode == 3


def test_an_archive_is_a_baseline_too(report: Command, tmp_path: Path) -> None:
    path = tmp_path / "april.tar.zst"
    done = report("results", "--session", "all", "--format", "json")
    named = json.loads(done.stdout)["results"]
    first = [row["run"] for row in named if row["metrics"]["step_time"]["mean"] < 2.1]
    assert report("archive", *first, "-o", path).returncode == 0
    done = report("report", "--baseline", path)
    assert done.returncode == 3
    assert f"Compared with april.tar.zst ({time.strftime('%Y-%m-%d')}), 3 runs" in done.stdout
    rows = json.loads(report("compare", "--baseline", path, "--format", "json").stdout)
    assert rows["against"] == "april.tar.zst"
    assert {row["configuration"]["scale"]: row["verdict"] for row in rows["comparisons"]} == {
        16: "FAIL",
        96: "NO_REFERENCE",
    }


def test_a_release_is_of_published_figures_alone(
    report: Command, wording: Callable[..., None]
) -> None:
    done = report("report", "--baseline", "april", "--reference", "25.05")
    assert done.returncode == 2
    unknown = report("report", "--baseline", "apri")
    assert unknown.returncode == 2
    wording("report", unknown.stderr)


def test_a_known_difference_explains_a_verdict_at_a_glance(
    empty_night: Night, llmb_here: Command, tmp_path: Path
) -> None:
    here: Command = lambda *words: llmb_here(*words, "--install", empty_night.folder)  # noqa: E731
    empty_night.measured(2.0, "nemotron4_15b", "bf16", 16, repeats=3)
    assert here("baseline", "accept", "april").returncode == 0
    empty_night.later(DAY)
    empty_night.measured(2.4, "nemotron4_15b", "bf16", 16, repeats=2, how={"NCCL_ALGO": "Ring"})
    here("report", "--baseline", "april", "-o", tmp_path / "page.html")
    text = words_of((tmp_path / "page.html").read_text())
    why = "Known differences: NCCL_ALGO Ring, unset in the reference."
    assert f"is below 0.95. {why}" in text


@pytest.mark.parametrize("clock", [1980, 1395])  # no cause, and one
def test_a_wrong_loss_of_a_slow_run_is_named_everywhere(
    clock: int, empty_night: Night, llmb_here: Command
) -> None:
    here: Command = lambda *words: llmb_here(*words, "--install", empty_night.folder)  # noqa: E731
    empty_night.measured(2.0, "nemotron4_15b", "bf16", 16, repeats=3)
    assert here("baseline", "accept", "april").returncode == 0
    empty_night.later(DAY)
    before = {*empty_night.folder.rglob("log-*.out")}
    empty_night.measured(2.4, "nemotron4_15b", "bf16", 16, clock=clock)
    (log,) = {*empty_night.folder.rglob("log-*.out")} - before
    loss = re.compile(r"(?<=reduced_train_loss: )\S+")
    log.write_text(loss.sub(lambda match: str(1.2 * float(match[0])), log.read_text()))
    against = ("--baseline", "april")
    run = json.loads(here("results", "--format", "json").stdout)["results"][0]["run"]
    for words in (
        ("explain", run, *against),
        *(("compare", *against, "--format", fmt) for fmt in FORMATS),
        *(("report", run, *against, "--format", fmt) for fmt in ("md", "html")),
    ):
        text = " ".join(here(*words).stdout.split())
        assert "wrong loss against baseline april: 20 % above" in text.replace("Wrong", "wrong"), (
            words
        )


@pytest.mark.parametrize(
    ("factor", "memory", "fault"),
    [(1.2, 1.0, "a wrong loss"), (1.0, 1.2, "too high a peak memory")],
)
def test_a_fast_run_with_a_wrong_loss_or_memory_is_no_slow_run(
    factor: float,
    memory: float,
    fault: str,
    empty_night: Night,
    llmb_here: Command,
    wording: Callable[..., None],
) -> None:
    here: Command = lambda *words: llmb_here(*words, "--install", empty_night.folder)  # noqa: E731
    empty_night.measured(2.0, "nemotron4_15b", "bf16", 64, repeats=3)
    assert here("baseline", "accept", "april").returncode == 0
    empty_night.later(DAY)
    before = {*empty_night.folder.rglob("log-*.out")}
    empty_night.measured(1.95, "nemotron4_15b", "bf16", 64, clock=1395, repeats=2)
    for log in {*empty_night.folder.rglob("log-*.out")} - before:
        text = log.read_text()
        for key, by in (("reduced_train_loss", factor), ("peak_memory_usage", memory)):
            changed = lambda match, by=by: f"{by * float(match[0]):.12g}"  # noqa: E731
            text = re.sub(rf"(?<={key}: )\S+", changed, text)
        log.write_text(text)
    against = ("--baseline", "april")
    run = json.loads(here("results", "--format", "json").stdout)["results"][0]["run"]
    explained = here("explain", run, *against).stdout
    assert "likely" not in explained
    wording("explain", "\n".join(line for line in explained.splitlines() if "rules" in line))
    page = words_of(here("report", *against, "--format", "html").stdout)
    lines = here("report", *against, "--format", "md").stdout.splitlines()
    (pasted,) = (line for line in lines if line.startswith("aurora, "))
    wording("report", pasted)
    for text in (page, pasted):
        assert f"1 of 1 compared configuration has {fault}." in text
        assert "costs" not in text
    assert "steady steps" not in page
    for fmt in ("md", "html"):
        history = here("report", "--history", "--session", "all", *against, "--format", fmt).stdout
        assert "20 % above" in history


def test_results_without_a_verdict_name_the_baseline_that_has_them(
    empty_night: Night, llmb_here: Command
) -> None:
    here: Command = lambda *words: llmb_here(*words, "--install", empty_night.folder)  # noqa: E731
    advice, compare = "To judge later runs by these", "Compare with the accepted baseline: llmb-run"
    empty_night.measured(3.0, "nemotron4_15b", "bf16", 96, repeats=2)  # nothing is published
    first = here("results").stderr
    assert (advice in first, compare in first) == (True, False)
    assert here("baseline", "accept", "april").returncode == 0
    empty_night.later(DAY)
    empty_night.measured(3.0, "nemotron4_15b", "bf16", 96)
    second = here("results").stderr
    assert (advice in second, compare in second) == (False, True)
    assert second.endswith("--baseline april\n")
    assert compare not in here("results", "--format", "csv").stderr
    empty_night.measured(2.75, "nemotron4_15b", "bf16", 16)  # which has a published figure
    assert compare not in here("results", "--session", "all").stderr
    empty_night.later(DAY)
    empty_night.measured(3.0, "nemotron4_15b", "fp8", 96)  # which it does not have
    assert advice in here("results").stderr
