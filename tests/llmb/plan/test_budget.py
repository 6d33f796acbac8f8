# SPDX-License-Identifier: Apache-2.0
"""Tests of budgets: how they are written, which jobs fit, and what the submitting commands do with
one.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from llmb.cli import app
from llmb.errors import LlmbError, UsageError, describe
from llmb.plan.budget import parse_budget, pick
from llmb.plan.estimate import LIMIT, PUBLISHED, JobEstimate

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Cluster = Callable[..., Path]
Wording = Callable[..., None]
# the newest release with the 15b on 16 H100 in bf16, and its seconds per step
PUBLISHED_15B = ("25.05", 2.746)


def estimates(*hours: float) -> list[JobEstimate]:
    return [
        JobEstimate(gpu_hours=one, most=one, seconds=3600 * one, how=PUBLISHED) for one in hours
    ]


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("5000gpuh", 5000),
        ("5,000 GPU-hours", 5000),
        ("12.5h", 12.5),
        ("7", 7),
        ("3cpuh", 3),
        (" 1GPUh ", 1),
    ],
)
def test_a_budget_is_read(text: str, hours: float) -> None:
    assert parse_budget(text) == hours


@pytest.mark.parametrize(
    "text", ["", "0", "0gpuh", "-1", "1e3", "5000 dollars", "gpuh", "1.2.3", "²"]
)
def test_what_is_no_budget(text: str) -> None:
    with pytest.raises(UsageError, match="GPU-hours") as caught:
        parse_budget(text)
    assert (caught.value.code, caught.value.key) == ("value-not-allowed", "--budget")


@pytest.mark.parametrize(
    ("hours", "budget", "picked", "used"),
    [
        ((10, 20, 30), 30, (0, 1), 30),
        ((10, 25, 20), 30, (0, 2), 30),  # a later, cheaper one may still fit
        ((40, 5, 40, 5), 12, (1, 3), 10),
        ((0.1,) * 10, 1, tuple(range(10)), 1),  # whose sum is above 1 by the rounding of a bit
        ((40,), 12, (), 0),
    ],
)
def test_the_rule(
    hours: tuple[float, ...], budget: float, picked: tuple[int, ...], used: float
) -> None:
    found = pick(estimates(*hours), budget)
    assert found.picked == picked
    assert found.used == pytest.approx(used)
    assert sorted([*found.picked, *found.skipped]) == list(range(len(hours)))


@given(st.lists(st.floats(0, 1e6)), st.floats(1e-3, 1e6))
def test_nothing_that_is_skipped_would_have_fitted(hours: list[float], budget: float) -> None:
    found = pick(estimates(*hours), budget)
    assert found.used <= budget * 1.001
    for place in found.skipped:
        before = sum(hours[one] for one in found.picked if one < place)
        assert before + hours[place] > budget


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """A list of the 15b at four scales, and one that no release has published."""
    path = tmp_path / "jobs.txt"
    path.write_text(
        "nemotron4_15b:\n('bf16', [64, 16, 32], 2)\n\nnemotron4_smoke:\n('bf16', [1], 1)\n"
    )
    return path


def test_a_dry_run_picks_what_fits_from_published_step_times(
    jobs: Path, cluster: Cluster, llmb_here: Command, wording: Wording
) -> None:
    words = (
        "submit-all",
        jobs,
        "--install",
        cluster("local", gpu_types={"h100": {"gpus_per_node": 64}}),
        "-d",
    )
    whole = json.loads(llmb_here(*words, "--format", "json").stdout)
    assert "budget" not in whole
    by_scale = {(job["model_size"], job["scale"]): job["estimate"] for job in whole["jobs"]}
    own = by_scale["15b", 16]
    assert (own["from"], own["release"]) == ("published", PUBLISHED_15B[0])
    assert own["gpu_hours"] == pytest.approx(16 * 50 * PUBLISHED_15B[1] / 3600)
    smoke = by_scale["smoke", 1]
    # 15 minutes
    assert (smoke["from"], smoke["release"], smoke["gpu_hours"]) == (LIMIT, None, 0.25)
    both = 2 * own["gpu_hours"] + 0.25
    done = llmb_here(*words, "--format", "json", "--budget", f"{both + 0.001:.4f}gpuh")
    data = json.loads(done.stdout)
    assert [(job["scale"], job["repeat"]) for job in data["jobs"]] == [(16, 1), (16, 2), (1, 1)]
    assert data["budget"]["used"] == pytest.approx(both)
    assert [one["repeat"] for one in data["budget"]["skipped"]] == [1, 2, 1, 2]
    assert {one["from"] for one in data["budget"]["skipped"]} == {"published"}
    wording("submit-all", done.stderr)
    table = llmb_here(*words, "--budget", f"{both + 0.001:.4f}")
    scale_and_repeats = [line.split()[5:7] for line in table.stdout.splitlines()[2:]]
    assert scale_and_repeats == [["16", "1-2"], ["1", "1"]]
    assert PUBLISHED_15B[0] in table.stderr


@pytest.mark.parametrize(
    ("budget", "code"),
    [
        ("0.01gpuh", "budget-too-small"),
        ("0.61gpuh", "budget-too-small"),
        ("much", "value-not-allowed"),
    ],
)
def test_a_budget_that_no_job_fits(
    budget: str,
    code: str,
    jobs: Path,
    cluster: Cluster,
    llmb_here: Command,
    monkeypatch: pytest.MonkeyPatch,
    wording: Wording,
) -> None:
    codes: list[str] = []

    def spy(error: LlmbError) -> str:
        codes.append(error.code)
        return describe(error)

    monkeypatch.setattr(app, "describe", spy)
    done = llmb_here("submit-all", jobs, "--install", cluster(), "--budget", budget)
    assert (done.returncode, done.stdout, codes) == (2, "", [code])
    wording("submit-all", done.stderr)
