# SPDX-License-Identifier: Apache-2.0
"""Loss beside speed with real trainings: torch, the same seed, an accepted baseline."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import llmb_workloads

# torch may be installed first
pytestmark = [pytest.mark.slow, pytest.mark.local_install, pytest.mark.timeout(1800)]

TRAINING = ("single", "-w", "llama3.1", "-s", "tiny", "--dtype", "fp32", "--scale", "1")
LOSS = re.compile(r"(?<=reduced_train_loss: )\S+")


@pytest.fixture
def trained(machine_at: Callable[..., Any]) -> tuple[Any, Path]:
    """An installation with the baseline ``good`` of one training, and the log of its repeat."""
    machine = machine_at("install", trained=("pretrain_llama3.1",))
    for _ in range(2):
        done = machine.llmb(*TRAINING, "--set", "max_steps=50", "--wait")
        assert done.returncode == 0, done.stderr
    first, second = json.loads(
        machine.llmb("results", "--session", "all", "--format", "json").stdout
    )["results"]
    assert first["losses"]["iterations"] == [*range(50)]
    assert machine.llmb("baseline", "accept", "good", first["run"]).returncode == 0
    return machine, Path(second["path"])


def compared(machine: Any) -> dict[str, Any]:
    done = machine.llmb("compare", "--baseline", "good", "--format", "json")
    (row,) = json.loads(done.stdout)["comparisons"]
    assert done.returncode == (3 if row["verdict"] == "FAIL" else 0)
    return dict(row)


def test_the_same_seed_has_the_same_loss(trained: tuple[Any, Path]) -> None:
    row = compared(trained[0])
    assert row["loss_not_compared"] is None
    assert row["metrics"]["loss"]["verdict"] == "PASS", row["metrics"]["loss"]
    assert "loss" not in row["verdict_reason"]


def test_a_changed_learning_rate_is_no_pass(trained: tuple[Any, Path], tmp_path: Path) -> None:
    """The program trains again with another rate, and its log replaces that of the run."""
    machine, log = trained
    (recipe_path,) = log.parents[1].rglob("recipe.json")
    recipe = json.loads(recipe_path.read_text())
    recipe["learning_rate"] *= 10
    changed = tmp_path / "recipe.json"
    changed.write_text(json.dumps(recipe))
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    environment["PYTHONPATH"] = str(Path(llmb_workloads.__file__).parents[1])
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(python_of(machine)), "-m", "llmb_workloads.torch_pretrain", str(changed)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    log.write_text(done.stdout)
    row = compared(machine)
    assert row["verdict"] == row["metrics"]["loss"]["verdict"] == "FAIL"
    assert row["verdict_reason"].startswith("wrong loss")


def test_a_planted_loss_is_no_pass_and_named_everywhere(
    trained: tuple[Any, Path], tmp_path: Path
) -> None:
    machine, log = trained
    lines = log.read_text().splitlines(keepends=True)
    steps = [number for number, line in enumerate(lines) if LOSS.search(line)]
    for number in steps[25:]:
        lines[number] = LOSS.sub(lambda match: str(1.2 * float(match[0])), lines[number])
    log.write_text("".join(lines))
    row = compared(machine)
    assert row["verdict"] == row["metrics"]["loss"]["verdict"] == "FAIL"
    assert row["metrics"]["loss"]["ratio"] == pytest.approx(1 / 1.2, rel=0.01)
    run = row["runs"][0]
    explained = machine.llmb("explain", run, "--baseline", "good")
    page = tmp_path / "report.md"
    machine.llmb("report", run, "--baseline", "good", "-o", page)
    for text in (explained.stdout, page.read_text()):
        flat = " ".join(text.split())
        assert "wrong loss against baseline good" in flat
        assert "25 of 50 steps beyond their tolerance" in flat


def python_of(machine: Any) -> Path:
    """Return the Python with which the runs trained."""
    (record, *_) = machine.install.glob("workloads/*/experiments/*/*/llmb-run.json")
    venv = json.loads(record.read_text())["launch"]["venv"]
    return Path(venv, "bin", "python")
