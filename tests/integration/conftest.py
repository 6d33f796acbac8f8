# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the main job: install directories with the torch of the test suite or with a fake,
and their queue.
"""

import contextlib
import copy
import json
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """An install directory, the state folder of its queue, and the command."""

    install: Path
    state: Path
    run: Callable[..., Any]

    def llmb(self, *arguments: object) -> Any:
        """Run llmb-run on this install directory."""
        return self.run(*arguments, "--install", self.install, LLMB_STATE_DIR=str(self.state))

    def jobs(self) -> list[dict[str, Any]]:
        """The rows of `jobs list`, oldest first."""
        done = self.llmb("jobs", "list", "--session", "all", "--format", "json")
        assert done.returncode == 0, done.stderr
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        return rows

    def job(self, number: int) -> dict[str, Any]:
        """One row of `jobs list`."""
        return self.jobs()[number]

    def journal(self, number: int) -> dict[str, Any]:
        """The scheduler.json of a run, by its number in order of submission."""
        wanted = self.job(number)["id"]
        records = self.install.glob("workloads/*/experiments/*/*/llmb-run.json")
        record = next(path for path in records if json.loads(path.read_text())["id"] == wanted)
        data: dict[str, Any] = json.loads(record.with_name("scheduler.json").read_text())
        return data

    def ranks(self) -> list[int]:
        """Process ids of the running ranks."""
        paths = self.install.glob("workloads/*/experiments/*/*/scheduler.json")
        journals = [json.loads(path.read_text()) for path in paths]
        return [
            rank["pid"]
            for journal in journals
            if journal["end"] is None
            for rank in journal["ranks"]
        ]

    def trains(self) -> bool:
        """Whether a log has a training step."""
        logs = self.install.glob("workloads/*/experiments/*/*/*/log-*.out")
        return any("train_step_timing" in path.read_text() for path in logs)

    def wait_for(self, what: Callable[[], Any], seconds: float = 300.0) -> Any:
        """Wait until ``what`` returns a true value, and return it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                if found := what():
                    return found
            except (FileNotFoundError, IndexError, KeyError, StopIteration):
                pass  # not written yet
            time.sleep(0.1)
        pytest.fail(f"not within {seconds:g} s; jobs: {self.jobs()}")


def end_supervisor(state: Path) -> None:
    """Kill the supervisor of one queue and its descendants."""
    for path in state.glob("supervisor.lock.*"):
        try:
            pid = json.loads(path.read_text())["pid"]
            tree = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        except (ValueError, KeyError, psutil.NoSuchProcess, FileNotFoundError):
            continue
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):  # already ended
                process.kill()


@pytest.fixture
def machine_at(
    torch_install: Path, torchless_venv: Path, tmp_path: Path, llmb_run: Callable[..., Any]
) -> Iterator[Callable[..., Machine]]:
    """Creates install directories that share one queue. Torch trains the workloads ``trained``
    (default: all).
    """
    state = tmp_path / "state"
    config = yaml.safe_load((torch_install / "cluster_config.yaml").read_text())
    # Threads that busy-wait for each other are extremely slow where CPUs are shared.
    config["environment"] = {**(config.get("environment") or {}), "OMP_NUM_THREADS": "1"}

    def make(name: str, trained: Collection[str] | None = None) -> Machine:
        install = tmp_path / name
        install.mkdir()
        made = copy.deepcopy(config) | {"llmb_install": str(install)}
        for key, installed in made["workloads"]["config"].items():
            if trained is not None and key not in trained:
                installed["venv_path"] = str(torchless_venv)
        (install / "cluster_config.yaml").write_text(yaml.safe_dump(made, sort_keys=False))
        return Machine(install=install, state=state, run=llmb_run)

    yield make
    end_supervisor(state)


@pytest.fixture
def machine(machine_at: Callable[..., Machine]) -> Machine:
    """One install directory without torch."""
    return machine_at("install", trained=())


@pytest.fixture
def torch_machine(machine_at: Callable[..., Machine]) -> Machine:
    """One install directory whose jobs run torch."""
    return machine_at("install")
