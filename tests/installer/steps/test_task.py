# SPDX-License-Identifier: Apache-2.0
"""Tests of tasks with a list of what they create, through the real llmb-install."""

import json
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.needs import Task
from llmb.errors import KeyFaultError, LlmbError
from llmb_installer.steps import task

CORPUS = Task(
    name="corpus",
    argv=("sh", "-c", "mkdir -p data/corpus && echo words > data/corpus/part0 && echo x >> runs"),
    creates=("data/corpus",),
)


def times(site: Any) -> int:
    """How often the task has run."""
    return len((site.install / "runs").read_text().split())


@pytest.fixture
def made(site: Any) -> Any:
    """An installation with the task."""
    site.workload("pretrain_a", CORPUS)
    done = site.run()
    assert done.returncode == 0, done.stderr
    return site


def test_a_task_runs_again_when_what_it_creates_is_missing(made: Any) -> None:
    assert (made.run().returncode, times(made)) == (0, 1)
    assert made.run("verify", "--install", made.install).returncode == 0
    (made.install / "data/corpus/part0").unlink()
    (made.install / "data/corpus").rmdir()
    found = made.run("verify", "--install", made.install)
    assert found.returncode == 1
    assert "data/corpus is missing" in found.stdout + found.stderr
    status = json.loads(made.run("status", "--format", "json", "--install", made.install).stdout)
    assert {row["step"]: row["there"] for row in status["steps"]}["task corpus"] is False
    assert (made.run().returncode, times(made)) == (0, 2)
    assert (made.install / "data/corpus/part0").exists()
    assert made.run("verify", "--install", made.install).returncode == 0


def test_repair_runs_it_again(made: Any) -> None:
    (made.install / "data/corpus/part0").unlink()
    (made.install / "data/corpus").rmdir()
    assert made.run("verify", "--repair", "--yes", "--install", made.install).returncode == 0
    assert (times(made), (made.install / "data/corpus/part0").exists()) == (2, True)


def test_a_task_that_does_not_create_it_has_failed(site: Any) -> None:
    site.workload("pretrain_a", Task(name="lazy", argv=("true",), creates=("data/none", "data")))
    done = site.run()
    assert done.returncode == 1
    assert "data/none" in done.stderr


def test_only_what_it_creates_is_removed(made: Any, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (made.install / "data/corpus/link").symlink_to(elsewhere)
    (made.install / "data/own").touch()
    done = made.run("remove", "pretrain_a", "--yes", "--install", made.install)
    assert done.returncode == 0, done.stderr
    assert not (made.install / "data/corpus").exists()
    assert [path.name for path in (made.install / "data").iterdir()] == ["own"]
    assert (elsewhere / "kept").exists()


def test_nothing_outside_is_removed(tmp_path: Path) -> None:
    """A link may lead there, and a damaged record may name anything."""
    install, outside = tmp_path / "install", tmp_path / "outside"
    (outside / "data").mkdir(parents=True)
    install.mkdir()
    (install / "linked").symlink_to(outside)
    for name in ("linked/data", "../outside/data", str(outside / "data"), "."):
        with pytest.raises(LlmbError) as caught:
            task.remove("t", {"creates": [name]}, install)
        assert caught.value.code == "path-outside"
    task.remove("t", {"creates": ["linked", "never-made"]}, install)
    assert (outside / "data").exists()
    assert not (install / "linked").exists()


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("/etc/passwd", "path-outside"),
        ("a/../../b", "path-outside"),
        ("", "path-outside"),
        (".", "path-outside"),
        (".llmb/install.json", "path-shared"),
        ("workloads", "path-shared"),
        ("workloads/pretrain_a/experiments/x", "path-shared"),
        ("venvs", "path-shared"),
    ],
)
def test_a_task_creates_nothing_outside_or_shared(name: str, code: str) -> None:
    with pytest.raises(KeyFaultError) as caught:
        Task(name="t", argv=("true",), creates=(name,))
    assert (caught.value.code, caught.value.path, caught.value.value) == (code, ("creates",), name)
