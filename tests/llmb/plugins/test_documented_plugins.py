# SPDX-License-Identifier: Apache-2.0
"""Tests that the plugins of docs/write-a-plugin.md run unchanged on this machine."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Cluster = Callable[..., Path]


@pytest.fixture
def install(cluster: Cluster) -> Path:
    return cluster("local", "cpu", workloads={"installed": ["storage", "requests"]})


@pytest.fixture
def llmb(llmb_run: Command, documented_plugins: Path, tmp_path: Path, install: Path) -> Command:
    """Runs llmb-run with the plugins, and a queue of its own."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        own = {"PYTHONPATH": str(documented_plugins), "LLMB_STATE_DIR": str(tmp_path / "state")}
        return llmb_run(*arguments, "--install", install, **own)

    return run


def result_of(llmb: Command) -> dict[str, object]:
    (result,) = json.loads(llmb("results", "--format", "json").stdout)["results"]
    found: dict[str, object] = result
    return found


def test_lines_of_bash_that_measure(llmb: Command) -> None:
    done = llmb(
        "single", "-w", "storage", "-s", "write", "--scale", 1, "--set", "megabytes=64", "--wait"
    )
    assert done.returncode == 0, done.stderr
    result = result_of(llmb)
    assert (result["status"], result["steps"], result["headline"]) == ("Success", 10, "bandwidth")
    metrics = result["metrics"]
    assert isinstance(metrics, dict)
    assert {name: one["unit"] for name, one in metrics.items()} == {
        "bandwidth": "MB/s",
        "time": "ms",
    }
    log = Path(str(result["path"])).read_text()
    assert [int(line.split("=")[1].split()[0]) > 0 for line in log.splitlines()] == [True] * 10


def test_a_server_with_a_client_that_writes_json(llmb: Command) -> None:
    """The figures are those of the file, which is not a log."""
    done = llmb("single", "-w", "requests", "-s", "files", "--scale", 1, "--wait")
    assert done.returncode == 0, done.stderr
    result = result_of(llmb)
    assert (result["status"], result["steps"], result["headline"]) == ("Success", 20, "latency")
    window = result["window"]
    assert isinstance(window, list)
    written = json.loads((Path(str(result["path"])).parent / "result.json").read_text())["latency"]
    used = written[window[0] : window[1] + 1]
    metrics = result["metrics"]
    assert isinstance(metrics, dict)
    assert metrics["latency"]["mean"] == pytest.approx(sum(used) / len(used))
    assert metrics["latency"]["better"] == "lower"


def test_they_have_no_faults(llmb_run: Command, documented_plugins: Path) -> None:
    done = llmb_run("plugins", "check", PYTHONPATH=str(documented_plugins))
    assert done.returncode == 0, done.stdout + done.stderr
