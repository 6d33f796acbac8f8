# SPDX-License-Identifier: Apache-2.0
"""Tests of environments that llmb-install builds on a node of a real Slurm, by srun or sbatch."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmb.contract.needs import Needs, Venv
from llmb.core.shell import StoppedError
from llmb_installer.execution.runner import Sbatch
from llmb_testing.plugin_writer import write_plugin
from llmb_testing.slurm import SlurmKit

pytestmark = pytest.mark.slow


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A folder with one small wheel."""
    folder, info = tmp_path / "wheels", "small-1.dist-info"
    folder.mkdir()
    with zipfile.ZipFile(folder / "small-1-py3-none-any.whl", "w") as archive:
        archive.writestr("small.py", "__version__ = '1'\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: small\nVersion: 1\n")
        archive.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in archive.namelist()))
    return folder


@pytest.fixture
def command(kit: SlurmKit, tmp_path: Path, wheel: Path) -> Any:
    """The arguments and variables of llmb-install for a workload with one environment; keywords are
    more answers.
    """
    write_plugin(
        tmp_path / "plugins",
        "pretrain_a",
        Needs(needs=(Venv(name="small", requirements=("small==1",)),)),
    )
    program = str(Path(sys.executable).with_name("llmb-install"))
    environ = {**os.environ, **kit.environ, "PYTHONPATH": str(tmp_path / "plugins")}

    def make(**answers: Any) -> dict[str, Any]:
        slurm = {"container": "none", "partition": "gpu", "gpu": {"gres": 8}}
        data = {
            "cluster_type": "slurm",
            "install": str(tmp_path / "install"),
            "gpu_type": "h100",
            "venv_type": "venv",
            "workloads": ["pretrain_a"],
            "wheelhouse": str(wheel),
            "python": sys.executable,
            "node_architecture": os.uname().machine,
            "slurm": slurm,
            **answers,
        }
        path = tmp_path / "answers.yaml"
        path.write_text(yaml.safe_dump(data))
        return {
            "args": [program, "--config", path, "--yes"],
            "env": environ,
            "stdin": subprocess.DEVNULL,
            "text": True,
        }

    return make


@pytest.fixture
def install(command: Any) -> Any:
    """Runs llmb-install; keywords are more answers."""
    return lambda **answers: subprocess.run(
        **command(**answers), capture_output=True, timeout=240, check=False
    )


def test_an_environment_is_made_on_a_node(install: Any, tmp_path: Path) -> None:
    done = install(method="srun")
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "install" / ".llmb" / "install.json").read_text())
    facts = record["steps"]["venv small"]["facts"]
    assert facts["where"] == "srun --partition=gpu"
    assert facts["packages"]["small"] == "1"
    python = tmp_path / "install" / "venvs" / "small" / "bin" / "python"
    done = subprocess.run(
        [python, "-c", "import small; print(small.__version__)"], capture_output=True, check=True
    )
    assert done.stdout == b"1\n"


@pytest.mark.parametrize("method", ["srun", "sbatch"])
def test_an_unknown_partition(install: Any, method: str, wording: Callable[..., None]) -> None:
    done = install(method=method, slurm={"container": "none", "partition": "nowhere"})
    assert done.returncode == 2, done.stderr
    wording("llmb-install", done.stderr)


def test_a_node_by_sbatch(kit: SlurmKit, tmp_path: Path) -> None:
    """The output of a program goes to the log or is returned, with its exit code."""
    runner = Sbatch(options=("--partition=gpu",), folder=tmp_path / "jobs")
    environ, stop = {**os.environ, **kit.environ}, threading.Event()
    argv = ["bash", "-c", "echo here; echo $SLURM_JOB_PARTITION; exit 3"]
    assert runner.run(argv, tmp_path / "log", env=environ, cwd=None, stop=stop) == 3
    assert (tmp_path / "log").read_text() == "here\ngpu\n"
    answer = runner.read(["echo", "two words"], env=environ, stop=stop)
    assert (answer.code, answer.out) == (0, "two words\n")


def test_an_interrupted_job_is_cancelled(kit: SlurmKit, tmp_path: Path) -> None:
    runner = Sbatch(options=("--partition=gpu",), folder=tmp_path / "jobs")
    stop, ended = threading.Event(), []

    def run() -> None:
        try:
            environ = {**os.environ, **kit.environ}
            runner.run(["sleep", "600"], tmp_path / "log", env=environ, cwd=None, stop=stop)
        except StoppedError as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(lambda: not kit.is_empty(), kit)
    stop.set()
    thread.join()
    assert len(ended) == 1
    wait_for(kit.is_empty, kit)


@pytest.mark.parametrize("signals", [1, 2])
def test_ctrl_c_leaves_no_batch_job(
    signals: int, command: Any, kit: SlurmKit, tmp_path: Path
) -> None:
    """A build that ignores the first: the second ends the command at once, and cancels the job all
    the same.
    """
    python, started = tmp_path / "slow-python", tmp_path / "started"
    slow = f"touch {started}; sleep 600"
    build = f"trap '' INT TERM; touch {started}; sleep 600 & wait; wait" if signals == 2 else slow
    on_node = f'if [ -n "$SLURM_JOB_ID" ]; then {build}; fi'
    python.write_text(f'#!/bin/bash\n{on_node}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    asked = command(method="sbatch", python=str(python))
    with subprocess.Popen(**asked, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            wait_for(started.exists, kit)
            process.send_signal(signal.SIGINT)
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(line)
                if "Press Ctrl-C again" in line and signals == 2:
                    process.send_signal(signal.SIGINT)
            assert process.wait(timeout=120) == 130
        finally:
            process.kill()
    wait_for(kit.is_empty, kit)
    states = kit.run("sacct", "--noheader", "--allocations", "--format=JobName%30,State%20")
    assert not [
        line for line in states.splitlines() if "llmb-install" in line and "RUNNING" in line
    ]
    assert "To continue: " in lines[-1]


def wait_for(condition: Callable[[], bool], kit: SlurmKit) -> None:
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline, kit.run("squeue")
        time.sleep(0.1)
