# SPDX-License-Identifier: Apache-2.0
"""Tests of the pre-submission checks of every cluster: memory, inputs, secrets, packages, disk."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.launch import Launch, Program
from llmb.contract.schema import ClusterConfig, GpuTypeConfig
from llmb.errors import PreflightError, describe
from llmb.kit import checks
from llmb_installer.cluster_types import all_types


def launch(**changes: Any) -> Launch:
    fields = {"name": "x", "nodes": 1, "ranks_per_node": 8, "time_limit": 60, "gpu_type": "b200"}
    return Launch(**{**fields, "program": Program(module="m"), **changes})


def config(tmp_path: Path, **types: GpuTypeConfig) -> ClusterConfig:
    return ClusterConfig(
        cluster_type="slurm",
        gpu_type="b200",
        llmb_install=tmp_path,
        gpu_types=types,
        kind=all_types()["slurm"],
    )


@pytest.mark.parametrize(
    ("needs", "has", "value"), [(180, None, None), (192, None, 180), (180, 96, 96), (None, 1, None)]
)
def test_gpus_with_too_little_memory(
    needs: float | None,
    has: float | None,
    value: float | None,
    tmp_path: Path,
    wording: Callable[..., None],
) -> None:
    place = config(tmp_path, b200=GpuTypeConfig(memory_gb=has))
    faults = list(checks.faults_of_launch(launch(gpu_memory_gb=needs), place))
    expected = [("gpu-memory", "gpu_types.b200.memory_gb", value)] if value else []
    assert [(fault.code, fault.key, fault.value) for fault in faults] == expected
    if faults:
        wording("submit-all", describe(PreflightError(faults)))


def test_a_type_whose_memory_nobody_knows_is_let_be(tmp_path: Path) -> None:
    place = ClusterConfig(
        cluster_type="local", gpu_type="cpu", llmb_install=tmp_path, kind=all_types()["local"]
    )
    assert list(checks.faults_of_launch(launch(gpu_memory_gb=80, gpu_type="cpu"), place)) == []


def test_a_checkpoint_must_be_there(tmp_path: Path) -> None:
    pattern = f"{tmp_path}/c/weights/*.distcp"
    wanted = launch(inputs=(pattern,), fixes={pattern: "name its folder"})
    (fault,) = checks.faults_of_launch(wanted, config(tmp_path))
    assert (fault.code, fault.value, fault.hint) == ("input-missing", pattern, "name its folder")
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


def test_secrets_with_the_fix_of_the_launch_or_the_usual_one(wording: Callable[..., None]) -> None:
    launches = [
        launch(secrets=("HF_TOKEN", "NGC_API_KEY"), fixes={"HF_TOKEN": "ask there"}),
        launch(),
    ]
    faults = list(checks.faults_of_secrets(launches, {}))
    assert [(fault.code, fault.key) for fault in faults] == [
        ("secret-missing", "HF_TOKEN"),
        ("secret-missing", "NGC_API_KEY"),
    ]
    wording("submit-all", describe(PreflightError(faults)))
    assert list(checks.faults_of_secrets(launches, {"HF_TOKEN": "a", "NGC_API_KEY": "b"})) == []


def test_secrets_that_others_can_read_are_reported(home: Path) -> None:
    (home / ".config/llmb").mkdir(parents=True)
    (home / ".config/llmb/secrets").write_text("HF_TOKEN=x\n")
    (home / ".config/llmb/secrets").chmod(0o644)
    (fault,) = checks.faults_of_secrets([launch(secrets=("HF_TOKEN",))], {})
    assert fault.hint is not None
    assert "chmod" in fault.hint
    assert list(checks.faults_of_secrets([launch()], {})) == []


@pytest.mark.parametrize(
    ("installed", "settings", "missing"),
    [
        ((), "", ("nemo", "megatron")),
        (("nemo",), "include-system-site-packages = false\n", ("megatron",)),
        (("nemo", "megatron"), "", None),
        ((), "include-system-site-packages = true\n", None),
    ],
)
def test_packages_of_an_environment(
    installed: tuple[str, ...], settings: str, missing: tuple[str, ...] | None, tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").touch(mode=0o755)
    for name in installed:
        (venv / "lib" / "python3.12" / "site-packages" / name).mkdir(parents=True)
    if settings:
        (venv / "pyvenv.cfg").write_text(settings)
    faults = list(
        checks.faults_of_venv(
            launch(venv=str(venv), packages=("nemo", "megatron")), config(tmp_path)
        )
    )
    expected = [("package-missing", str(venv), missing)] if missing else []
    assert [(fault.code, fault.key, fault.value) for fault in faults] == expected


@pytest.mark.parametrize(
    ("installed", "missing"),
    [
        (("torch-2.7.0", "transformers-4.51.3"), ("transformers>=5.6",)),
        (("torch-2.13.0+cu128", "transformers-5.6.0", "torch_c_dlpack_ext-0.1"), None),
        (("Torch-2.10.0",), ("transformers>=5.6",)),
        (("torchvision-0.22.0",), ("torch>=2.4", "transformers>=5.6")),
    ],
)
def test_versions_in_an_environment(
    installed: tuple[str, ...],
    missing: tuple[str, ...] | None,
    tmp_path: Path,
    wording: Callable[..., None],
) -> None:
    venv, wanted = tmp_path / "venv", ("torch>=2.4", "transformers>=5.6")
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").touch(mode=0o755)
    for name in installed:
        (venv / "lib" / "python3.12" / "site-packages" / f"{name}.dist-info").mkdir(parents=True)
    tiny = launch(venv=str(venv), packages=wanted, fixes=dict.fromkeys(wanted, "another one"))
    faults = list(checks.faults_of_venv(tiny, config(tmp_path)))
    assert [(fault.value, fault.hint) for fault in faults] == (
        [(missing, "another one")] if missing else []
    )
    if faults:
        wording("submit-all", describe(PreflightError(faults)))


@pytest.mark.parametrize(
    ("free", "sizes", "is_enough"),
    [
        (2e9, (0.0,), True),
        (5e8, (0.0,), False),
        (300e9, (204.0, 204.0), False),
        (500e9, (204.0, 204.0), True),
    ],
)
def test_space_for_all_checkpoints_together(
    free: float,
    sizes: tuple[float, ...],
    is_enough: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wording: Callable[..., None],
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=int(free)))
    faults = list(
        checks.faults_of_folders(config(tmp_path), "0", [launch(disk_gb=size) for size in sizes])
    )
    assert [fault.code for fault in faults] == ([] if is_enough else ["disk-full"])
    if faults:
        wording("submit-all", describe(PreflightError(faults)))
