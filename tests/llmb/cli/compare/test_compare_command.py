# SPDX-License-Identifier: Apache-2.0
"""Tests of results, compare, baseline, explain and report through the real command, on installs
made by hand.
"""

import csv
import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from xml.etree import ElementTree

import pytest

from llmb.contract.job import Job
from llmb.contract.record import RunRecord
from llmb.contract.spec import Workload
from llmb.contract.state import RUNNING, JobState
from llmb.errors import Fault, InputFaults
from llmb.judge.export import why_rejected
from llmb.measure.result import Identity, Result
from llmb.plan import published_tables
from llmb.plan.published import Figure

Wording = Callable[..., None]

Command = Callable[..., "subprocess.CompletedProcess[str]"]


class HandMade(Protocol):
    """The fixture of conftest.py."""

    folder: Path

    def job(self, workload: str, dtype: str, scale: int, **how: Any) -> Job: ...
    def run(
        self, run_id: str, job: Job, log: str | None, state: Any = ..., **how: Any
    ) -> RunRecord: ...
    def measured(
        self,
        run_id: str,
        seconds: float,
        workload: str = ...,
        dtype: str = ...,
        scale: int = ...,
        **how: Any,
    ) -> RunRecord: ...


class Run(Protocol):
    """Runs llmb-run on the install."""

    def __call__(self, *words: object) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def rows(run: Run) -> Callable[..., dict[str, dict[str, Any]]]:
    """The results by run id, as JSON."""

    def parsed(*words: object) -> dict[str, dict[str, Any]]:
        return {
            row["run"]: row
            for row in json.loads(run("results", *words, "--format", "json").stdout)["results"]
        }

    return parsed


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\x1b[31m\x07\n"


def test_results_have_reference_ratio_and_verdict(install: HandMade, run: Run, rows: Any) -> None:
    install.measured("a1", 2.746 / 0.97)
    row = rows()["a1"]
    source = "release 25.05, figures of Nemotron4 15b on H100"  # of published.yaml
    assert row["reference"] == {
        **{"release": "25.05", "window": "11-44", "step_time_s": 2.746, "source": source},
        **{"metric": "step_time", "value": 2.746, "unit": "s"},
    }
    assert row["ratio"] == pytest.approx(0.97, abs=1e-4)
    assert (row["verdict"], row["repeats"], row["ratio_interval"], row["same_window"]) == (
        "WARN",
        1,
        None,
        True,
    )
    table = run("results")
    assert table.returncode == 0
    assert "ratio" in table.stdout.splitlines()[0]
    assert re.search(r"0\.970 +WARN \(n=1\)", table.stdout)
    assert table.stderr == ""
    (from_csv,) = csv.DictReader(io.StringIO(run("results", "--format", "csv").stdout))
    assert (from_csv["verdict"], from_csv["run"], from_csv["gbs"], from_csv["gpu_type"]) == (
        "WARN",
        "a1",
        "64",
        "h100",
    )


@pytest.mark.parametrize(
    ("ratio", "verdict", "code"),
    [(1.0, "PASS", 0), (0.97, "WARN", 0), (0.9, "FAIL", 3), (1.1, "SUSPICIOUS", 0)],
)
def test_the_exit_code_follows_the_verdict(
    ratio: float, verdict: str, code: int, install: HandMade, run: Run, rows: Any
) -> None:
    install.measured("a1", 2.746 / ratio)
    assert rows()["a1"]["verdict"] == verdict
    for words in (
        ["results"],
        ["compare"],
        ["report"],
        ["results", "--format", "junit"],
        ["compare", "--format", "md"],
    ):
        assert run(*words).returncode == code


def test_repeats_share_a_verdict_and_only_true_repeats_do(
    install: HandMade, rows: Any, wording: Wording
) -> None:
    install.measured("a1", 2.8)
    install.measured("a2", 3.0)
    install.measured("b1", 3.2, params={"mbs": 1})
    install.measured("c1", 3.2, NCCL_ALGO="Ring")
    found = rows()
    assert found["a1"]["verdict"] == found["a2"]["verdict"] == "INCONCLUSIVE"
    wording("compare", str(found["a1"]["verdict_reason"]))
    assert found["a1"]["ratio"] != found["a2"]["ratio"]
    assert [found[name]["repeats"] for name in ("a1", "a2", "b1", "c1")] == [2, 2, 1, 1]
    assert found["b1"]["verdict"] == found["c1"]["verdict"] == "FAIL"


def test_another_window_is_marked_and_explained(
    install: HandMade, run: Run, rows: Any, wording: Wording
) -> None:
    install.measured("c1", 4.5, "nemotron4_340b", scale=512)
    assert rows()["c1"]["same_window"] is False
    done = run("results")
    assert "0.976*" in done.stdout
    wording("compare", done.stderr)
    assert rows("--window", "last")["c1"]["same_window"] is True


def test_another_release_and_one_that_is_not_known(
    install: HandMade, run: Run, rows: Any, wording: Wording
) -> None:
    install.measured("c1", 4.6, "nemotron4_340b", scale=256)
    times = {
        name: rows("--reference", name)["c1"]["reference"]["step_time_s"]
        for name in ("24.11", "25.04", "25.05")
    }
    assert times == {"24.11": 4.67, "25.04": 4.36, "25.05": 4.606}
    assert rows()["c1"]["reference"]["step_time_s"] == 4.606
    for command in ("results", "compare", "report"):
        done = run(command, "--reference", "25.06")
        assert (done.returncode, done.stdout) == (2, "")
        wording("compare", done.stderr)
        assert "24.11, 25.04, 25.05" in done.stderr


@pytest.mark.parametrize(
    "how",
    [{"scale": 96}, {"gpu_type": "h200"}, {"params": {"gbs": 128}}, {"params": {"num_layers": 16}}],
)
def test_what_is_not_comparable_has_no_ratio(
    how: dict[str, Any], install: HandMade, rows: Any, wording: Wording
) -> None:
    install.measured("a1", 2.7, **how)
    row = rows()["a1"]
    assert row["verdict"] == "NO_REFERENCE"
    wording("compare", str(row["verdict_reason"]))
    assert row["reference"] is row["ratio"] is None


def test_a_profiled_run_does_not_count(
    install: HandMade, run: Run, rows: Any, wording: Wording
) -> None:
    install.measured("a1", 2.7)
    install.measured("p1", 3.7, profile=True)
    found = rows()
    assert (found["a1"]["verdict"], found["a1"]["repeats"], found["p1"]["verdict"]) == (
        "PASS",
        1,
        "INVALID",
    )
    done = run("results")
    assert done.returncode == 3
    wording("compare", done.stdout)


def test_what_the_log_says_against_a_run(install: HandMade, rows: Any) -> None:
    job = replace(install.job("nemotron4_15b", "bf16", 16), nodes=2)
    good = install.measured("a1", 2.7).log.read_text()
    install.run("n1", job, good.replace("loss: 12.81", "loss: nan"))
    tcp = "".join(f"node{i}:1:2 [0] NCCL INFO Using network Socket\n" for i in range(2))
    install.run("t1", job, tcp + good)
    found = rows()
    assert (found["a1"]["verdict"], found["a1"]["repeats"]) == ("PASS", 1)
    assert [found[name]["verdict"] for name in ("n1", "t1")] == ["INVALID", "INVALID"]
    assert "loss" in found["n1"]["verdict_reason"]
    assert "TCP" in found["t1"]["verdict_reason"]


def test_a_tiny_run_has_no_reference_and_its_table_no_empty_column(
    make_install: Any, llmb_here: Command, wording: Wording
) -> None:
    install = make_install(gpu_type="cpu")
    run = install.measured("a1", 0.1, "llama3.1_tiny", "fp32", 2)
    run.log.write_text(run.log.read_text().replace("TFLOPS_per_GPU", "other"))
    done = llmb_here("results", "--install", install.folder)
    assert done.returncode == 0
    wording("results", done.stderr)
    head, *_ = done.stdout.splitlines()
    assert re.split(r"\s{2,}", head.strip()) == [
        *("run", "experiment", "status", "step (s)", "±", "tokens/s/GPU", "TFLOPS/GPU", "tokens/s")
    ]
    (row,) = json.loads(
        llmb_here("results", "--install", install.folder, "--format", "json").stdout
    )["results"]
    assert (row["verdict"], row["ratio"], row["reference"]) == ("NO_REFERENCE", None, None)


def test_junit(install: HandMade, run: Run, wording: Wording) -> None:
    install.measured("a1", 2.7)
    install.measured("b1", 9.9, dtype="fp8")
    install.run("f1", install.job("llama3.1_8b", "bf16", 8), OOM, "FAILED")
    done = run("results", "--format", "junit")
    assert done.returncode == 3
    suite = ElementTree.fromstring(done.stdout)
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "2", "0")
    cases = {str(case.get("name")).split("[")[1][:-1]: case for case in suite}
    assert cases["a1"].find("failure") is None
    assert cases["a1"].get("classname") == "pretrain_nemotron4"
    failure = cases["b1"].find("failure")
    assert failure is not None
    wording("results", str(failure.get("message")))
    failure = cases["f1"].find("failure")
    assert failure is not None
    wording("compare", str(str(failure.get("message"))))
    compared = ElementTree.fromstring(run("compare", "a1", "b1", "--format", "junit").stdout)
    assert (compared.get("tests"), compared.get("skipped")) == ("1", "1")


@pytest.mark.parametrize("command", ["results", "compare"])
def test_junit_skips_what_has_nothing_to_compare_with(
    command: str, install: HandMade, run: Run, wording: Wording
) -> None:
    install.measured("t1", 2.7, "nemotron4_tiny", scale=4)
    done = run(command, "--format", "junit")
    suite = ElementTree.fromstring(done.stdout)
    assert (done.returncode, suite.get("tests"), suite.get("skipped")) == (0, "1", "1")
    skipped = suite.find("testcase/skipped")
    assert skipped is not None
    wording("results", str(skipped.get("message")))


@pytest.mark.parametrize("words", [["results"], ["compare"], ["report"], ["explain", "f1"]])
@pytest.mark.parametrize("fmt", ["table", "json", "csv", "md", "junit"])
def test_a_terminals_escapes_in_a_log_never_come_out(
    words: list[str], fmt: str, install: HandMade, run: Run
) -> None:
    install.run("f1", install.job("llama3.1_8b", "bf16", 8), "\x1b]0;owned\x07" + OOM, "FAILED")
    done = run(*words, *(["--format", fmt] if words[0] in ("results", "compare") else []))
    assert "out of memory" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert "\x07" not in done.stdout + done.stderr


def compared(run: Run, *words: object) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run("compare", *words, "--format", "json").stdout)
    return document


def test_compare_with_what_was_published(install: HandMade, run: Run, wording: Wording) -> None:
    install.measured("a1", 2.75)
    install.measured("a2", 2.74)
    install.measured("b1", 2.0, dtype="fp8")
    for words in ([], ["a1,a2,b1"], ["a1,a2,b1", "published"]):
        document = compared(run, *words)
        assert document["against"] == "published"
        assert [row["runs"] for row in document["comparisons"]] == [["a1", "a2"], ["b1"]]
        assert document["summary"] == {"PASS": 2}
    done = run("compare")
    wording("compare", done.stderr)
    (row,) = csv.DictReader(io.StringIO(run("compare", "b1", "--format", "csv").stdout))
    assert (row["runs"], row["against"], row["ratio"], row["verdict"]) == (
        "b1",
        "25.05",
        "0.994",
        "PASS",
    )


def test_compare_runs_and_experiments(install: HandMade, run: Run) -> None:
    first = install.measured("a1", 2.75)
    install.measured("a2", 2.749)
    install.measured("b1", 2.95, params={"tp": 4})
    (row,) = compared(run, "b1", first.job.experiment_name)["comparisons"]
    assert row["reference"]["source"] == "a1, a2"
    assert row["ratio"] == pytest.approx(2.7495 / 2.95, abs=1e-4)
    (difference,) = row["differences"]
    assert re.findall(r"\w+", difference.replace("not", "")) == ["tp", "4", "2"]
    assert row["verdict"] == "FAIL"
    (row,) = compared(run, "a1", "a2")["comparisons"]
    assert (row["verdict"], row["repeats"]) == ("PASS", 1)
    assert run("compare", "b1", "a1,a2").returncode == 3


@pytest.mark.parametrize("fmt", ["table", "md"])
def test_results_name_the_setting_in_which_runs_of_one_name_differ(
    fmt: str, install: HandMade, run: Run
) -> None:
    values = {"a1": "110", "a2": "110", "b1": "95"}
    for name, value in values.items():
        install.measured(name, 2.75, FOO=value, BAR="same")
    install.measured("c1", 2.75, dtype="fp8", FOO="other")
    shown = run("results", "--format", fmt).stdout
    for name, value in values.items():
        (line,) = (line for line in shown.splitlines() if name in line)
        assert f"FOO={value}" in line
    assert "BAR" not in shown
    assert "other" not in shown


def test_runs_of_a_are_no_part_of_b(install: HandMade, run: Run, wording: Wording) -> None:
    for name, seconds in (("a1", 2.75), ("a2", 2.75), ("b1", 2.95)):
        install.measured(name, seconds)
    (row,) = compared(run, "a1,b1", "a1,a2")["comparisons"]
    assert (row["runs"], row["reference"]["source"]) == (["a1", "b1"], "a2")
    everything = install.folder / "all.json"
    everything.write_text(run("results", "--session", "all", "--format", "json").stdout)
    (row,) = compared(run, "b1", everything)["comparisons"]
    assert row["reference"]["source"] == "a1, a2"
    same = run("compare", "a1", "a1")
    assert (same.returncode, "1.000" in same.stdout) == (0, True)
    wording("compare", same.stderr.splitlines()[0])


def test_compare_with_another_cluster(
    install: HandMade, run: Run, make_install: Any, llmb_here: Command
) -> None:
    there = make_install(name="there")
    there.measured("x1", 2.6)
    exported = there.folder / "results.json"
    text = llmb_here("results", "--install", there.folder, "--format", "json").stdout
    exported.write_text(text.replace('"invalid": []', '"invalid": [], "of_next_year": 1'))
    install.measured("a1", 2.75)
    (row,) = compared(run, "a1", exported)["comparisons"]
    assert (row["reference"]["release"], row["reference"]["source"]) == ("results.json", "x1")
    assert (row["verdict"], row["ratio"]) == ("FAIL", pytest.approx(2.6 / 2.75))
    (row,) = compared(run, exported, "a1")["comparisons"]
    assert row["verdict"] == "SUSPICIOUS"
    assert row["differences"] == []
    exported.write_text(
        exported.read_text().replace('"nccl_version": null', '"nccl_version": "2.0", "driver": 1')
    )
    ours = install.measured("a9", 2.75)
    ours.log.write_text(
        "node1:1:2 [0] NCCL INFO NCCL version 2.26.3+cuda12.9\n" + ours.log.read_text()
    )
    (row,) = compared(run, "a9", exported)["comparisons"]
    (difference,) = row["differences"]
    assert re.findall(r"\S+\d", difference) == ["2.26.3+cuda12.9", "2.0"]
    (row,) = json.loads(llmb_here("compare", exported, "--format", "json").stdout)["comparisons"]
    assert row["reference"]["release"] == "25.05"  # no install is needed for that


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[1]",
        "{",
        '{"results": [{"status": "Success"}]}',
        '{"results": [{"experiment": "e", "status": "Good"}]}',
        '{"results": [{"experiment": "e", "status": "Success", "window": [1]}]}',
        '{"results": [{"experiment": "e", "status": "Success", "configuration": {}}]}',
    ],
)
def test_a_file_that_is_no_export(
    text: str, install: HandMade, run: Run, tmp_path: Path, wording: Wording
) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    done = run("compare", path)
    assert done.returncode in (1, 2)
    wording("compare", done.stderr)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["nosuch"],
        ["nofile.json"],
        ["a1", "over/there/results"],
        ["a1", "nosuch"],
        ["published"],
        ["a1", "a2", "--baseline", "x"],
        ["a1", "a2", "--reference", "25.05"],
        ["--baseline", "x"],
        ["--baseline", "../x"],
        ["--scaling", "--format", "junit"],
        ["a1", "a2", "--scaling"],
        ["--window", "44-11"],
    ],
)
def test_compare_used_wrongly(
    words: list[str], install: HandMade, run: Run, wording: Wording
) -> None:
    install.measured("a1", 2.75)
    install.measured("a2", 2.75)
    done = run("compare", *words)
    assert (done.returncode, done.stdout) == (2, "")
    wording("compare", done.stderr)
    assert "hint:" in done.stderr


def test_compare_without_a_run(run: Run, wording: Wording) -> None:
    done = run("compare")
    assert (done.returncode, done.stdout) == (0, "")
    wording("compare", done.stderr)
    empty = {"schema_version": 1, "against": "published", "comparisons": [], "summary": {}}
    assert compared(run) == empty


def test_a_baseline_is_accepted_listed_and_compared_with(
    install: HandMade, run: Run, wording: Wording
) -> None:
    install.measured("a1", 2.75)
    install.measured("p1", 9.0, profile=True)
    install.run("f1", install.job("llama3.1_8b", "bf16", 8), OOM, "FAILED")
    wording("compare", run("baseline", "list").stderr)
    done = run("baseline", "accept", "good")
    assert done.returncode == 0
    wording("compare", done.stderr)
    skipped = {line.split()[1] for line in done.stderr.splitlines() if line.startswith("skipped: ")}
    assert skipped == {"p1", "f1"}
    path = install.folder / ".llmb" / "baselines" / "good.json"
    assert [row["run"] for row in json.loads(path.read_text())["results"]] == ["a1"]
    install.measured("a2", 2.75 / 0.9)
    done = run("compare", "a2", "--baseline", "good")
    assert done.returncode == 3
    assert "baseline good" in done.stdout
    (row,) = compared(run, "a2", "--baseline", "good")["comparisons"]
    assert (row["verdict"], row["ratio"]) == ("FAIL", pytest.approx(0.9, abs=1e-4))
    (listed,) = json.loads(run("baseline", "list", "--format", "json").stdout)
    assert (listed["name"], listed["runs"], listed["file"]) == ("good", 1, str(path))


def test_the_runs_of_a_baseline_are_shown(install: HandMade, run: Run) -> None:
    """With all that a comparison needs, also after they were deleted."""
    kept = install.measured("a1", 2.75)
    assert run("baseline", "accept", "good").returncode == 0
    (before,) = json.loads(run("results", "a1", "--format", "json").stdout)["results"]
    shutil.rmtree(kept.directory)
    (shown,) = json.loads(run("baseline", "show", "good", "--format", "json").stdout)["results"]
    for name in ("run", "session", "configuration", "window", "tokens_per_second", "mfu"):
        assert shown[name] == before[name]
    table = run("baseline", "show", "good")
    assert table.returncode == 0
    assert "a1" in table.stdout
    assert "did you mean 'good'?" in run("baseline", "show", "god").stderr


def test_runs_of_a_baseline_are_compared_with_it_only_if_named(
    install: HandMade, run: Run, wording: Wording
) -> None:
    install.measured("a1", 0.582)
    install.measured("a2", 3.233)
    assert run("baseline", "accept", "april").returncode == 0
    refused = run("compare", "--baseline", "april")
    assert (refused.returncode, refused.stdout) == (2, "")
    wording("compare", refused.stderr)
    done = run("compare", "a1,a2", "--baseline", "april")
    assert done.stdout.count("1.907") == 2
    assert re.search(r"1\.000 \(0\.0", done.stdout)


def test_only_later_runs_are_compared_with_a_baseline(install: HandMade, run: Run) -> None:
    install.measured("a1", 2.0)
    assert run("baseline", "accept", "april").returncode == 0
    install.measured("b1", 4.0)
    (row,) = compared(run, "--baseline", "april")["comparisons"]
    assert (row["runs"], row["repeats"], row["ratio"]) == (["b1"], 1, pytest.approx(0.5))


def test_the_other_run_that_has_not_ended_is_named(
    install: HandMade, run: Run, wording: Wording
) -> None:
    install.measured("a1", 2.75)
    install.run("b1", install.job("nemotron4_15b", "bf16", 16), "", JobState(state=RUNNING))
    (row,) = compared(run, "a1", "b1")["comparisons"]
    wording("compare", row["verdict_reason"])


def test_a_baseline_is_not_replaced_unasked(install: HandMade, run: Run, wording: Wording) -> None:
    install.measured("a1", 2.75)
    install.measured("a2", 2.5)
    assert run("baseline", "accept", "good", "a1").returncode == 0
    done = run("baseline", "accept", "good", "a2")
    assert done.returncode == 2
    assert "--replace" in done.stderr
    path = install.folder / ".llmb" / "baselines" / "good.json"
    assert '"a1"' in path.read_text()
    assert run("baseline", "accept", "good", "a2", "--replace").returncode == 0
    assert '"a1"' not in path.read_text()
    wording("compare", run("compare", "--baseline", "goood").stderr)


def test_a_run_far_from_its_repeats_is_no_remark_of_a_clear_verdict(
    install: HandMade, run: Run
) -> None:
    for number, seconds in enumerate((55.0, 55.2, 110.0), start=1):  # 2.746 s are published
        install.measured(f"a{number}", seconds)
    results = json.loads(run("results", "--format", "json").stdout)["results"]
    assert {result["verdict"] for result in results} == {"FAIL"}
    assert not any("widens" in result["verdict_reason"] for result in results)


def test_a_run_far_from_its_repeats_is_named(install: HandMade, run: Run) -> None:
    for number, seconds in enumerate((2.75, 2.76, 5.5, 2.74), start=1):
        install.measured(f"a{number}", seconds)
    done = run("baseline", "accept", "good")
    far = "a3 is 0.501 of the median of its 4 repeats"
    without = "good --replace a1 a2 a4"
    assert f"warning: {far}: it widens the intervals" in done.stderr
    assert re.search(rf"without it: llmb-run baseline accept .*{without}\n", done.stderr)
    install.measured("b1", 2.9)
    words = ("compare", "b1", "--baseline", "good")
    (row,) = compared(run, *words[1:])["comparisons"]
    assert row["verdict"] == "INCONCLUSIVE"
    assert f"; {far}, which widens the interval" in row["verdict_reason"]
    assert far in " ".join(run(*words).stdout.split())

    named = [f"a{number}" for number in range(1, 5)]
    results = json.loads(run("results", *named, "--format", "json").stdout)["results"]
    for result in results:
        assert result["verdict"] == "INCONCLUSIVE"
        assert f"; {far}, which widens the interval" in result["verdict_reason"]
    assert "a3 is 0.502 of the median" in " ".join(run("explain", "a1").stdout.split())
    assert f"Not decided: {far}" in run("report", *named, "--format", "html").stdout

    done = run("baseline", "accept", *without.split())
    assert done.returncode == 0
    assert "widens" not in done.stderr
    (row,) = compared(run, *words[1:])["comparisons"]
    assert row["verdict"] == "FAIL"
    assert "widens" not in run(*words).stdout


def test_nothing_good_is_no_baseline(install: HandMade, run: Run) -> None:
    install.run("f1", install.job("llama3.1_8b", "bf16", 8), OOM, "FAILED")
    done = run("baseline", "accept", "good")
    assert done.returncode == 2
    assert not (install.folder / ".llmb" / "baselines").exists()


def test_a_run_that_waits_is_skipped_with_the_reason() -> None:
    waiting = Result(
        identity=Identity(experiment="x", path="x"),
        status="Pending",
        reason="waiting: Slurm no longer knows job 96",
    )
    assert why_rejected(waiting) == "is waiting: Slurm no longer knows job 96"


def test_scaling(install: HandMade, run: Run, wording: Wording) -> None:
    install.measured("a1", 2.75)
    install.measured("b1", 2.85, scale=32)
    rows = json.loads(run("compare", "--scaling", "--format", "json").stdout)
    assert [(row["scaling"], row["scale"], round(row["efficiency"], 4)) for row in rows] == [
        ("weak", 16, 1.0),
        ("weak", 32, round(2.75 / 2.85, 4)),
    ]
    assert "96.5" in run("compare", "--scaling").stdout
    wording("compare", run("compare", "a1", "--scaling").stderr)


def test_scaling_says_why_it_ends_3(install: HandMade, run: Run, wording: Wording) -> None:
    install.measured("a1", 2.75)
    install.measured("p1", 9.0, profile=True)
    done = run("compare", "--scaling")
    assert done.returncode == 0
    wording("compare", done.stderr)
    install.run("f1", install.job("llama3.1_8b", "bf16", 8), OOM, "FAILED")
    done = run("compare", "--scaling", "--format", "json")
    assert (done.returncode, json.loads(done.stdout)) == (3, [])
    wording("compare", done.stderr)
    install.run("c1", install.job("llama3.1_8b", "bf16", 8), "", "CANCELLED")
    shown = run("compare", "--scaling").stderr
    wording("compare", str(shown))


@pytest.mark.parametrize("fmt", ["table", "json", "csv"])
def test_parse_of_a_folder_without_a_log(
    fmt: str, tmp_path: Path, llmb_here: Command, wording: Wording
) -> None:
    (tmp_path / "other.out").write_text(
        "Training epoch 0, iteration 0/49 | train_step_timing in s: 2.7\n"
    )
    done = llmb_here("parse", tmp_path, "--format", fmt)
    assert (done.returncode, done.stdout) == (2, "")
    wording("compare", done.stderr)


def test_a_report(install: HandMade, run: Run, tmp_path: Path, wording: Wording) -> None:
    install.measured("a1", 2.75)
    install.measured("b1", 2.85, scale=32)
    job = install.job("llama3.1_8b", "bf16", 8)
    install.run("f1", job, OOM, "FAILED")
    install.run("f2", job, OOM, "FAILED")
    path = tmp_path / "report.md"
    done = run("report", "-o", path)
    assert (done.returncode, done.stdout) == (3, "")
    text = path.read_text()
    assert run("report").stdout.splitlines()[4:] == text.splitlines()[4:]
    wording(
        "report",
        "\n".join(
            re.findall(
                r"^(?:#|\d+ runs|Verdicts|    torch).*|[\d.]+ s, release.*?(?= +\|)", text, re.M
            )
        ),
    )
    assert "f1 pretrain_llama3.1_8b" in text
    assert "| weak " in text


def test_a_report_on_some_runs_and_on_none(install: HandMade, run: Run, wording: Wording) -> None:
    assert "0 runs" in run("report").stdout
    install.measured("a1", 2.75)
    install.measured("b1", 2.0, dtype="fp8")
    text = run("report", "b1").stdout
    wording("report", next(line for line in text.splitlines() if line.startswith("1 run")))
    assert "## Failures" not in text
    assert "## Scaling" not in text
    assert "_bf16_" not in text


def test_parse_judges_logs_with_and_without_a_record(
    install: HandMade, run: Run, llmb_here: Command, wording: Wording
) -> None:
    ours = install.measured("a1", 2.75)
    (one,) = json.loads(llmb_here("parse", ours.directory, "--format", "json").stdout)["results"]
    assert (one["verdict"], one["reference"]["release"]) == ("PASS", "25.05")
    folder = install.folder / "old"
    folder.mkdir()
    (folder / ours.log.name).write_text(ours.log.read_text())
    (one,) = json.loads(llmb_here("parse", folder, "--format", "json").stdout)["results"]
    assert one["verdict"] == "NO_REFERENCE"
    wording("compare", str(one["verdict_reason"]))
    assert "--gpu-type" in llmb_here("parse", folder).stderr
    (folder / ours.log.name).rename(folder / "train.log")
    shown = llmb_here("parse", folder / "train.log").stderr
    wording("compare", str(shown))
    words = ["-w", "nemotron4_15b", "--dtype", "bf16", "--scale", 96, "--gpu-type", "h100"]
    shown = llmb_here("parse", folder / "train.log", *words).stderr
    shown = llmb_here("parse", folder / "train.log", *words, "--gbs", 64).stderr
    wording("parse", shown)
    (folder / "train.log").rename(folder / ours.log.name)
    (one,) = json.loads(
        llmb_here("parse", folder, "--gpu-type", "h100", "--format", "json").stdout
    )["results"]
    assert (one["verdict"], one["ratio"]) == ("PASS", pytest.approx(2.746 / 2.75))


def test_a_dry_run_says_what_it_will_cost(
    cluster: Callable[..., Path], llmb_here: Command, wording: Wording
) -> None:
    folder = cluster("slurm")
    words = ["single", "-w", "nemotron4_15b", "--dtype", "bf16", "-d", "--install", folder]
    done = llmb_here(*words, "--scale", 64)
    wording("compare", done.stderr)
    wording("compare", llmb_here(*words, "--scale", 16, "--set", "gbs=32").stderr)


def test_a_dry_run_counts_by_past_runs_here(
    make_install: Any, llmb_here: Command, wording: Wording
) -> None:
    install = make_install(gpu_type="cpu")
    job = install.job("llama3.1_tiny", "fp32", 2)
    for name, seconds in (("a1", 1000.0), ("a2", 2600.0)):
        install.run(name, job, "", seconds=seconds)
    install.run("f1", job, OOM, "FAILED", seconds=9.0)
    words = ["single", "-w", "llama3.1_tiny", "--dtype", "fp32", "-d", "--install", install.folder]
    wording("compare", llmb_here(*words, "--scale", 2).stderr)
    wording("compare", llmb_here(*words, "--scale", 1).stderr)
    (install.folder / "workloads").rename(install.folder / "kept")
    assert "at most" in llmb_here(*words, "--scale", 2).stderr


@pytest.mark.parametrize("words", [["list"], ["--help"], ["list", "-w", "nemotron4"], ["plugins"]])
def test_figures_are_not_read_before_they_are_needed(
    words: list[str], llmb_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(workload: object) -> None:
        raise AssertionError(f"read the figures of {workload}")

    monkeypatch.setattr("llmb.plan.published_tables.read_published", refuse)
    assert llmb_here(*words).returncode == 0


def test_a_faulty_file_of_figures_is_reported_and_stops_nothing(
    install: HandMade,
    run: Run,
    llmb_here: Command,
    monkeypatch: pytest.MonkeyPatch,
    wording: Wording,
) -> None:
    install.measured("a1", 2.75)
    install.measured("b1", 9.4, "llama3.1_8b", "fp8", 8)

    def refuse(workload: Workload) -> tuple[Figure, ...]:
        if workload.key == "pretrain_nemotron4":
            raise InputFaults(
                [Fault(place="published.yaml:7", message="'stepps' is not a key here")]
            )
        return whole(workload)

    whole = published_tables.read_published
    monkeypatch.setattr(published_tables, "read_published", refuse)
    done = run("results", "--format", "json")
    assert done.returncode == 0
    wording("compare", done.stderr)
    assert done.stderr.count("published.yaml:7") == 1
    found = {row["run"]: row["verdict"] for row in json.loads(done.stdout)["results"]}
    assert found == {"a1": "NO_REFERENCE", "b1": "PASS"}
    checked = llmb_here("plugins", "check")
    assert checked.returncode == 1
    assert "published.yaml:7" in checked.stderr


def test_times_for_programs_are_iso_8601_with_their_offset(install: HandMade, run: Run) -> None:
    install.measured("a1", 2.75)
    run("baseline", "accept", "good")
    (listed,) = json.loads(run("baseline", "list", "--format", "json").stdout)
    (job,) = json.loads(run("jobs", "list", "--format", "json").stdout)
    shown = json.loads(run("jobs", "show", "a1", "--format", "json").stdout)
    for text in (listed["accepted"], job["submitted"], shown["submitted"]):
        when = datetime.fromisoformat(text)
        assert when.utcoffset() is not None
        assert when.isoformat() == text
    assert "T" not in run("jobs", "list").stdout.split("a1")[1].split("COMPLETED")[1].split()[0]


NODE_LINE = 'llmb node {}: {{"driver": "570.86.15"}}\n'


@pytest.fixture
def on_nodes(install: HandMade) -> Callable[..., None]:
    """Writes a run of a Slurm cluster whose log names its nodes."""
    config = install.folder / "cluster_config.yaml"
    config.write_text(config.read_text().replace("cluster_type: local", "cluster_type: slurm"))

    def measured(run_id: str, seconds: float, *hosts: str, dtype: str = "bf16") -> None:
        run = install.measured(run_id, seconds, dtype=dtype)
        lines = "".join(NODE_LINE.format(host) for host in hosts)
        run.log.write_text(lines + run.log.read_text())

    return measured


def test_other_nodes_are_a_warning_with_the_nodelist_that_repeats_the_other_side(
    on_nodes: Callable[..., None], run: Run, wording: Wording
) -> None:
    def compared(ours: str, theirs: str) -> str:
        return run("compare", ours, theirs).stderr

    on_nodes("a1", 2.8, "n1", "n2")
    on_nodes("a2", 2.8, "n1", "n2", dtype="fp8")
    on_nodes("b1", 2.9, "n2", "n3")
    on_nodes("b2", 2.9, "n4", "n5", dtype="fp8")
    wording("compare", compared("b1", "a1"))
    wording("compare", compared("a1,a2", "b1,b2"))
    assert "--nodelist" not in compared("a1", "a1")


def test_without_a_scheduler_there_is_no_nodelist(install: HandMade, run: Run) -> None:
    for run_id, host in (("a1", "n1"), ("b1", "n2")):
        log = install.measured(run_id, 2.8).log
        log.write_text(NODE_LINE.format(host) + log.read_text())
    shown = run("compare", "b1", "a1").stderr
    assert "ran on other nodes" in shown
    assert "--nodelist" not in shown


def test_nodes_of_another_cluster_are_not_asked_for(
    on_nodes: Callable[..., None], run: Run, tmp_path: Path
) -> None:
    on_nodes("a1", 2.8, "n1", "n2")
    on_nodes("b1", 2.9, "n2", "n3")
    there = tmp_path / "there.json"
    there.write_text(run("results", "a1", "--format", "json").stdout)
    shown = run("compare", "b1", there).stderr
    assert "ran on other nodes" in shown
    assert "--nodelist" not in shown
