# SPDX-License-Identifier: Apache-2.0
"""Tests of the benchmarks: each runs on a small size, and `make bench` fails above a limit."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
LIMITS = yaml.safe_load((BENCHMARKS / "limits.yaml").read_text(encoding="utf-8"))
#: These have files of counts instead of limits. growth and suspects print a table for people.
COUNTERS = {"calls", "growth", "instructions", "modules", "suspects"}
PARTS = {"guard", "measuring", "piece"}

Guard = Callable[..., "subprocess.CompletedProcess[str]"]


def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, str(BENCHMARKS / "guard.py"), *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    """Runs the guard over one benchmark, a script, with one limit of 2."""

    def run_script(script: str, *options: str) -> "subprocess.CompletedProcess[str]":
        (tmp_path / "limits.yaml").write_text(
            "speed: {ours / theirs: {was: 1, limit: 2, goal: 0.5}}\n"
        )
        (tmp_path / "speed.py").write_text(script)
        return run("--folder", tmp_path, *options)

    return run_script


def test_every_benchmark_has_limits() -> None:
    assert set(LIMITS) == {path.stem for path in BENCHMARKS.glob("*.py")} - COUNTERS - PARTS


@pytest.mark.parametrize("name", LIMITS)
def test_each_benchmark_runs_on_a_small_size(name: str) -> None:
    done = run("--small", name)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_table_of_growth_has_each_command_and_size() -> None:
    argv = [sys.executable, str(BENCHMARKS / "growth.py"), "--sizes", "10", "20"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    header, _, *rows = done.stdout.splitlines()
    assert [cell.strip() for cell in header.split("|")[2:-1]] == ["10", "20", "growth"]
    names = {row.split("|")[1].strip() for row in rows}
    assert names >= {"plan repeats", "plan lines", "results", "jobs", "archive"}


@pytest.mark.parametrize(("value", "code", "note"), [(1.9, 0, ""), (2.1, 1, "ABOVE THE LIMIT")])
def test_a_figure_above_its_limit_fails(guard: Guard, value: float, code: int, note: str) -> None:
    done = guard(f"print('a table')\nprint('{{\"ours / theirs\": {value}}}')")
    assert done.returncode == code
    *_, header, row = done.stdout.splitlines()
    assert header.split() == ["was", "is", "limit", "goal"]
    assert row.split(maxsplit=7) == [
        "ours",
        "/",
        "theirs",
        "1",
        str(value),
        "2",
        "0.5",
        *([note] if note else []),
    ]
    assert bool(done.stderr) == bool(code)


def test_a_figure_of_a_small_size_is_not_compared(guard: Guard) -> None:
    assert guard("print('{\"ours / theirs\": 99}')", "--small").returncode == 0


@pytest.mark.parametrize(
    "script", ["1 / 0", "print('{}')", 'print(\'{"ours / theirs": 1, "other": 1}\')']
)
def test_a_benchmark_that_fails_or_measures_something_else_fails(guard: Guard, script: str) -> None:
    assert guard(script).returncode == 1


def test_a_skipped_benchmark_is_reported(guard: Guard) -> None:
    done = guard("print('no such program here')\nraise SystemExit(77)")
    assert done.returncode == 0
    assert "NOT MEASURED" in done.stdout
    assert "no such program here" in done.stdout.splitlines()[-1]
