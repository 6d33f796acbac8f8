# SPDX-License-Identifier: Apache-2.0
"""Outputs of the commands, validated by jsonschema with docs/schemas, without unknown fields."""

import copy
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from llmb_testing.json_schemas import strict

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SCHEMAS = Path(__file__).parents[4] / "docs/schemas"
NCCL = "".join(f"node{i}:1:2 [0] NCCL INFO Using network Socket\n" for i in range(2))


@pytest.fixture(scope="module", params=[False, True], ids=["as shipped", "strict"])
def validate(request: pytest.FixtureRequest) -> Callable[..., Any]:
    def check(name: str, done: "subprocess.CompletedProcess[str]") -> Any:
        assert done.stdout, done.stderr
        schema = json.loads((SCHEMAS / f"{name}.json").read_text("utf-8"))
        schema = strict(schema) if request.param else schema
        jsonschema.Draft202012Validator.check_schema(schema)
        data = json.loads(done.stdout)
        jsonschema.Draft202012Validator(schema).validate(data)
        return data

    return check


@pytest.fixture
def night(install: Any) -> Any:
    """Runs of every kind: good, slow, failed, without a model's row, without a log."""
    job = install.job("nemotron4_15b", "bf16", 16)
    for number, seconds in enumerate((2.7, 2.72, 4.0)):
        install.measured(f"a{number}", seconds)
    install.run(
        "b1", job, NCCL + "Traceback (most recent call last):\nRuntimeError: bad\n", "FAILED"
    )
    install.run("c1", install.job("nemotron4_15b", "bf16", 32), None, "CANCELLED")
    install.measured("d0", 2.8, scale=32)
    install.measured("d1", 2.7, "nemotron4_tiny", scale=4)
    install.switched("e1", "", save_checkpoint=True)
    return install


def test_results(night: Any, run: Run, validate: Any) -> None:
    data = validate("results", run("results", "--format", "json"))
    assert len(data["results"]) == 8
    assert validate("results", run("results", "-w", "nemotron4_15b", "--format", "json"))


def test_results_of_no_runs(run: Run, validate: Any) -> None:
    assert validate("results", run("results", "--format", "json"))["results"] == []


def test_a_log_without_a_record(night: Any, llmb_here: Run, validate: Any, tmp_path: Path) -> None:
    content = next(night.folder.rglob("log-*.out")).read_text()
    (tmp_path / "other.log").write_text(NCCL + content)
    done = llmb_here("parse", tmp_path / "other.log", "--format", "json")
    assert len(validate("results", done)["results"]) == 1


def test_dry_run(night: Any, run: Run, validate: Any) -> None:
    words = ("submit", "-w", "nemotron4", "-s", "15b", "--dtype", "bf16", "--scale", "16", "-d")
    for more in ((), ("--budget", "5"), ("--profile",)):
        assert validate("dry-run", run(*words, *more, "--format", "json"))


def test_runs_and_workloads(night: Any, run: Run, validate: Any) -> None:
    assert len(validate("runs", run("jobs", "--format", "json"))) == 8
    assert validate("workloads", run("list", "--format", "json"))


@pytest.mark.parametrize("workload", ["nemotron4", "nemotron4_tiny", "microbench", "deepseek_v3"])
def test_rows_of_a_workload(night: Any, run: Run, validate: Any, workload: str) -> None:
    rows = validate("workload-rows", run("list", "-w", workload, "--format", "json"))
    assert {row["mbs"] is None for row in rows} == {workload == "microbench"}


def test_published_figures(night: Any, run: Run, validate: Any) -> None:
    data = validate("published", run("list", "--published", "--format", "json"))
    assert {figure["step_time_s"] is None for figure in data} == {True, False}
    words = ("list", "--published", "--check", "--format", "json")
    assert all(
        row["printed"] != row["recomputed"] for row in validate("published-check", run(*words))
    )
    assert validate("published-check", run(*words, "-w", "microbench")) == []


def test_comparisons_and_scaling(night: Any, run: Run, validate: Any) -> None:
    assert validate("comparisons", run("compare", "a0", "a2", "--format", "json"))
    assert validate("comparisons", run("compare", "--format", "json"))["comparisons"]
    assert validate("scaling", run("compare", "--scaling", "--format", "json"))


def test_a_wrong_type_and_a_missing_field_are_refused(night: Any, run: Run) -> None:
    schema = json.loads((SCHEMAS / "results.json").read_text("utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    data = json.loads(run("results", "--format", "json").stdout)
    assert validator.is_valid(data)
    changes: list[dict[str, Any]] = [
        {"status": 1},
        {"ratio": "1.0"},
        {"configuration": {}},
        {"causes": [{}]},
    ]
    for change in changes:
        wrong = copy.deepcopy(data)
        wrong["results"][0] |= change
        assert not validator.is_valid(wrong)
    del data["schema_version"]
    assert not validator.is_valid(data)
