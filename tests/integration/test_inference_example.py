# SPDX-License-Identifier: Apache-2.0
"""examples/inference as a stranger's distribution: wheels, a new environment, a server and its
client, a verdict.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hatchling.builders.wheel import WheelBuilder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parents[2]
NAME = "inference_tiny_fp32_gpus1_concurrency4_output_tokens16"


def members() -> list[str]:
    """The folders of the distributions that llmb requires, and llmb's own."""
    folders = [
        path.parent
        for pattern in ("*", "plugins/*")
        for path in ROOT.glob(f"{pattern}/pyproject.toml")
    ]
    return [".", *(str(folder.relative_to(ROOT)) for folder in folders if folder.name != "testing")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The commands of a new environment, into which only the example was installed by name, from
    wheels.
    """
    monkeypatch.setenv("LLMB_RELEASE", "1")
    for member in (*members(), "examples/inference"):
        next(
            WheelBuilder(str(ROOT / member)).build(
                directory=str(tmp_path / "wheels"), versions=["standard"]
            )
        )
    monkeypatch.delenv("LLMB_RELEASE")
    venv = tmp_path / "venv"
    pip = [sys.executable, "-m", "pip", "--python", str(venv), "install", "--quiet", "--no-compile"]
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    done = subprocess.run(
        [*pip, "--find-links", str(tmp_path / "wheels"), "llmb-inference"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return venv / "bin"


def test_it_runs_from_a_wheel_to_a_verdict(folder: Path, tmp_path: Path) -> None:
    install = tmp_path / "install"
    answers = tmp_path / "answers.yaml"
    answers.write_text(
        yaml.safe_dump({"cluster_type": "local", "gpu_type": "cpu", "workloads": ["inference"]})
    )

    def llmb(*words: object, command: str = "llmb-run") -> "subprocess.CompletedProcess[str]":
        argv = [str(folder / command), *map(str, words), "--install", str(install)]
        environment = {**os.environ, "LLMB_STATE_DIR": str(tmp_path / "state")}
        return subprocess.run(
            argv, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    done = llmb("--config", answers, "--yes", command="llmb-install")
    assert done.returncode == 0, done.stderr
    listed = json.loads(llmb("list", "--published", "-w", "inference", "--format", "json").stdout)
    (published,) = listed
    done = llmb("single", "-w", "inference", "--scale", 1, "--wait", "--format", "json")
    assert done.returncode in (0, 3), done.stderr  # by the verdict, which depends on the machine
    (result,) = json.loads(done.stdout)["results"]
    assert (result["experiment"], result["status"], result["steps"]) == (NAME, "Success", 20), (
        result
    )
    metrics = result["metrics"]
    assert {name: metric["better"] for name, metric in metrics.items()} == {
        "requests_per_second": "higher",
        "p50": "lower",
        "p99": "lower",
    }
    assert 0 < metrics["p50"]["mean"] <= metrics["p99"]["mean"]
    assert result["headline"] == "requests_per_second"
    assert result["reference"]["value"] == published["value"] == 150
    assert result["ratio"] == pytest.approx(metrics["requests_per_second"]["mean"] / 150)
    assert result["verdict"] in ("PASS", "WARN", "FAIL", "SUSPICIOUS")
