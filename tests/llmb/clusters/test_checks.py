# SPDX-License-Identifier: Apache-2.0
"""Tests of what is looked at before a submission on any cluster: memory, inputs, secrets, packages, disk."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from llmb.clusters import checks
from llmb.config import ClusterConfig
from llmb.config.schema import GpuTypeConfig
from llmb.runs.launch import Launch, Program


def launch(**changes: Any) -> Launch:
    fields = {"name": "x", "nodes": 1, "ranks_per_node": 8, "time_limit": 60, "gpu_type": "b200"}
    return Launch(**{**fields, "program": Program(module="m"), **changes})


def config(tmp_path: Path, **types: GpuTypeConfig) -> ClusterConfig:
    return ClusterConfig(cluster_type="slurm", gpu_type="b200", llmb_install=tmp_path, gpu_types=types)


@pytest.mark.parametrize(
    ("needs", "has", "message"),
    [
        (180, None, None),
        (192, None, "x needs GPUs with 192 GB of memory, and b200 has 180 GB"),
        (180, 96, "x needs GPUs with 180 GB of memory, and b200 has 96 GB"),
        (None, 1, None),
    ],
)
def test_gpus_with_too_little_memory(
    needs: float | None, has: float | None, message: str | None, tmp_path: Path
) -> None:
    place = config(tmp_path, b200=GpuTypeConfig(memory_gb=has))
    faults = list(checks.faults_of_launch(launch(gpu_memory_gb=needs), place))
    assert [fault.message for fault in faults] == ([message] if message else [])
    assert all("gpu_types.b200.memory_gb" in (fault.hint or "") for fault in faults)


def test_a_type_whose_memory_nobody_knows_is_let_be(tmp_path: Path) -> None:
    place = ClusterConfig(cluster_type="local", gpu_type="cpu", llmb_install=tmp_path)
    assert list(checks.faults_of_launch(launch(gpu_memory_gb=80, gpu_type="cpu"), place)) == []


def test_a_checkpoint_must_be_there(tmp_path: Path) -> None:
    pattern = f"{tmp_path}/c/weights/*.distcp"
    wanted = launch(inputs=(pattern,), fixes={pattern: "name its folder"})
    (fault,) = checks.faults_of_launch(wanted, config(tmp_path))
    assert (fault.message, fault.hint) == (f"x reads {pattern}, and no such file is there", "name its folder")
    weights = tmp_path / "c" / "weights"
    weights.mkdir(parents=True)
    (weights / "metadata.json").touch()
    assert not checks.matches(pattern)
    (weights / "__0_0.distcp").touch()
    assert list(checks.faults_of_launch(wanted, config(tmp_path))) == []


def test_a_checkpoints_folder_may_hold_any_sign(tmp_path: Path) -> None:
    weights = tmp_path / "default--reduced_train_loss=[nan]-epoch=0" / "weights"
    weights.mkdir(parents=True)
    (weights / "__0_0.distcp").touch()
    assert checks.matches(f"{weights}/*.distcp")


def test_secrets_with_the_cure_of_the_launch_or_the_usual_one() -> None:
    launches = [launch(secrets=("HF_TOKEN", "NGC_API_KEY"), fixes={"HF_TOKEN": "ask there"}), launch()]
    assert [(fault.message, fault.hint) for fault in checks.faults_of_secrets(launches, {})] == [
        ("HF_TOKEN is not set", "ask there"),
        ("NGC_API_KEY is not set", "export it, or keep it in ~/.config/llmb/secrets"),
    ]
    assert list(checks.faults_of_secrets(launches, {"HF_TOKEN": "a", "NGC_API_KEY": "b"})) == []


def test_secrets_that_others_can_read_are_told(home: Path) -> None:
    (home / ".config/llmb").mkdir(parents=True)
    (home / ".config/llmb/secrets").write_text("HF_TOKEN=x\n")
    (home / ".config/llmb/secrets").chmod(0o644)
    (fault,) = checks.faults_of_secrets([launch(secrets=("HF_TOKEN",))], {})
    assert "others can read" in fault.message
    assert list(checks.faults_of_secrets([launch()], {})) == []


@pytest.mark.parametrize(
    ("installed", "settings", "missing"),
    [
        ((), "", "has no nemo and no megatron"),
        (("nemo",), "include-system-site-packages = false\n", "has no megatron"),
        (("nemo", "megatron"), "", None),
        ((), "include-system-site-packages = true\n", None),
    ],
)
def test_packages_of_an_environment(
    installed: tuple[str, ...], settings: str, missing: str | None, tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").touch(mode=0o755)
    for name in installed:
        (venv / "lib" / "python3.12" / "site-packages" / name).mkdir(parents=True)
    if settings:
        (venv / "pyvenv.cfg").write_text(settings)
    faults = list(checks.faults_of_venv(launch(venv=str(venv), packages=("nemo", "megatron")), config(tmp_path)))
    assert [fault.message for fault in faults] == ([f"the environment {venv} of x {missing}"] if missing else [])


@pytest.mark.parametrize(
    ("installed", "said"),
    [
        (("torch-2.7.0", "transformers-4.51.3"), "transformers 4.51.3 (needed: 5.6 or newer)"),
        (("torch-2.13.0+cu128", "transformers-5.6.0", "torch_c_dlpack_ext-0.1"), None),
        (("Torch-2.10.0",), "no transformers"),
        (("torchvision-0.22.0",), "no torch and no transformers"),
    ],
)
def test_versions_in_an_environment(installed: tuple[str, ...], said: str | None, tmp_path: Path) -> None:
    venv, wanted = tmp_path / "venv", ("torch>=2.4", "transformers>=5.6")
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").touch(mode=0o755)
    for name in installed:
        (venv / "lib" / "python3.12" / "site-packages" / f"{name}.dist-info").mkdir(parents=True)
    tiny = launch(venv=str(venv), packages=wanted, fixes=dict.fromkeys(wanted, "another one"))
    faults = [(fault.message, fault.hint) for fault in checks.faults_of_venv(tiny, config(tmp_path))]
    assert faults == ([(f"the environment {venv} of x has {said}", "another one")] if said else [])


@pytest.mark.parametrize(
    ("free", "sizes", "message"),
    [
        (2e9, (0.0,), None),
        (5e8, (0.0,), "0.5 GB free, a run needs 1 GB"),
        (300e9, (204.0, 204.0), "300.0 GB free, these runs need 408 GB for checkpoints"),
        (500e9, (204.0, 204.0), None),
    ],
)
def test_room_for_all_checkpoints_together(
    free: float, sizes: tuple[float, ...], message: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=int(free)))
    faults = list(checks.faults_of_place(config(tmp_path), "0", [launch(disk_gb=size) for size in sizes]))
    assert len(faults) == (message is not None)
    assert all(message is not None and message in fault.message for fault in faults)
