# SPDX-License-Identifier: Apache-2.0
"""Tests that every command that gathers runs takes the same choice of them, through the real
commands.
"""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.state import CANCELLED, JobState

Wording = Callable[..., None]

Run = Callable[..., "subprocess.CompletedProcess[str]"]
OMITTED = "note: 1 cancelled run omitted\n"
COUNTED = "note: 1 cancelled run listed; --exclude-cancelled omits it\n"


@pytest.fixture
def mixed(install: Any) -> Any:
    """Good runs of two workloads, and one that was cancelled."""
    install.measured("a1", 2.75)
    install.measured("b1", 9.4, "llama3.1_8b", "fp8", 8)
    cancelled = JobState(state=CANCELLED, reason="by 1000", started=100.0, ended=200.0)
    install.run("x1", install.job("nemotron4_15b", "bf16", 32), None, cancelled)
    return install


@pytest.mark.parametrize("command", ["results", "compare", "report"])
def test_cancelled_runs_can_be_omitted(command: str, mixed: Any, run: Run) -> None:
    done = run(command)
    assert done.returncode == 3
    assert COUNTED in done.stderr
    done = run(command, "--exclude-cancelled")
    assert done.returncode == 0
    assert OMITTED in done.stderr
    assert "_gpus32_" not in done.stdout
    assert "CANCELLED" not in done.stdout


@pytest.mark.parametrize("command", ["results", "compare", "report"])
def test_workloads_are_chosen(command: str, mixed: Any, run: Run, wording: Wording) -> None:
    for word in ("llama3.1", "Llama-3.1_8b"):
        done = run(command, "-w", word)
        assert done.returncode == 0
        assert "llama3.1_8b" in done.stdout
        assert "nemotron4" not in done.stdout
    wording("results", run(command, "-w", "lama").stderr)
    wording(command, run(command, "-w", "nemotronh").stderr)


def test_scaling_and_baselines_take_the_choice_too(mixed: Any, run: Run, wording: Wording) -> None:
    assert OMITTED in run("compare", "--scaling", "--exclude-cancelled").stderr
    done = run("baseline", "accept", "good", "-w", "nemotron4", "--exclude-cancelled")
    assert done.returncode == 0
    wording("results", done.stderr)
    assert "omitted: " not in done.stderr


def test_another_clusters_results_are_chosen_alike(
    mixed: Any, run: Run, tmp_path: Path, wording: Wording
) -> None:
    exported = tmp_path / "other.json"
    exported.write_text(run("results", "--format", "json").stdout)
    assert [row["state"] for row in json.loads(exported.read_text())["results"]] == [
        "COMPLETED",
        "COMPLETED",
        "CANCELLED",
    ]
    rows = json.loads(run("compare", exported, "-w", "nemotron4", "--format", "json").stdout)[
        "comparisons"
    ]
    assert [row["runs"] for row in rows] == [["a1"], ["x1"]]
    done = run("compare", exported, "-w", "nemotron4", "--exclude-cancelled", "--format", "json")
    assert done.returncode == 0
    assert [row["runs"] for row in json.loads(done.stdout)["comparisons"]] == [["a1"]]
    wording("results", run("compare", exported, "-w", "nemotronh").stderr)


def test_cancelled_runs_are_no_failures_of_a_report(mixed: Any, run: Run, wording: Wording) -> None:
    text = run("report").stdout
    counted = next(line for line in text.splitlines() if "cancelled" in line)
    page = run("report", "--format", "html").stdout
    assert "runs failed" not in page
    wording("report", "\n".join([counted, *re.findall(r"[^<>]*cancelled\.", page)]))


def test_what_is_cancelled_comes_behind_all_causes(mixed: Any, run: Run, wording: Wording) -> None:
    job = mixed.job("nemotron4_15b", "fp8", 16)
    for name in ("x2", "x3"):
        mixed.run(name, job, None, CANCELLED)
    mixed.run("f1", job, "torch.OutOfMemoryError: CUDA out of memory\n", "FAILED")
    headings = [line for line in run("report").stdout.splitlines() if line.startswith("### ")]
    wording("report", "\n".join(headings))


def test_many_runs_end_in_a_few_lines(mixed: Any, run: Run, wording: Wording) -> None:
    assert "succeeded" not in run("results").stderr
    job = mixed.job("nemotron4_15b", "fp8", 16)
    for number in range(4):
        mixed.measured(f"s{number}", 2.5, dtype="fp8")
        mixed.run(f"o{number}", job, "torch.OutOfMemoryError: CUDA out of memory\n", "FAILED")
    mixed.run("q1", job, "nothing of note\n", "FAILED")
    mixed.measured("p1", 2.75, profile=True)
    lines = run("results").stderr.splitlines()
    wording("results", "\n".join(lines[-7:-1]))
    assert "13 runs" not in run("results", "--format", "md").stderr


def test_a_result_names_its_state_and_cause(mixed: Any, run: Run, wording: Wording) -> None:
    mixed.run(
        "f1",
        mixed.job("nemotron4_15b", "fp8", 16),
        "7: torch.OutOfMemoryError: CUDA out of memory\n",
        "FAILED",
    )
    found = {
        row["run"]: row for row in json.loads(run("results", "--format", "json").stdout)["results"]
    }
    assert (found["a1"]["state"], found["a1"]["cause"]) == ("COMPLETED", None)
    assert (found["x1"]["state"], found["x1"]["cause"]["kind"]) == ("CANCELLED", "cancelled")
    cause = found["f1"]["cause"]
    assert cause["rank"] == 7
    wording("results", str(cause["kind"]))
    head, *_ = run("results", "--format", "csv").stdout.splitlines()
    assert {"state", "cause_kind", "cause_line", "pooled_ratio"} <= set(head.split(","))


def test_narrow_tables_name_the_columns_that_they_omit(
    mixed: Any, run: Run, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = run("results")
    head, _, *lines = done.stdout.splitlines()
    assert max(map(len, (head, *lines))) <= 80
    assert head.split()[:2] == ["run", "experiment"]
    assert {line.split()[0] for line in lines if not line[:4].isspace()} == {"a1", "b1", "x1"}
    wording("results", done.stderr)
    assert "Cancelled" in done.stdout
    for words in (["compare"], ["compare", "--scaling"], ["jobs", "list"]):
        assert max(map(len, run(*words).stdout.splitlines() or [""])) <= 80


def test_many_comparisons_name_the_bad_ones_last(install: Any, run: Run, wording: Wording) -> None:
    for dtype in ("bf16", "fp8"):
        for scale in (16, 32, 64, 128, 256, 512):
            install.measured(
                f"{dtype[0]}{scale}", 2.0 if dtype == "fp8" else 2.7, dtype=dtype, scale=scale
            )
    install.measured("p1", 2.7, profile=True)
    install.measured("s1", 3.5, scale=16, NCCL_ALGO="Ring")
    lines = run("compare").stderr.splitlines()
    wording("compare", "\n".join(lines[:3]))
    assert "NCCL_ALGO=Ring" in run("compare").stdout
    assert f"- {lines[1]}\n" in run("report").stdout
