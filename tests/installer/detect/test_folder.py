# SPDX-License-Identifier: Apache-2.0
"""Tests of detecting folders, this machine, Run:ai's variables and an existing installation."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb_installer.cluster_types import all_types
from llmb_installer.detect.detected import (
    Damaged,
    Detected,
    InstallDirectory,
    detect,
    find_installed,
)
from llmb_installer.detect.machine import (
    MachineFound,
    find_file_system,
    find_folder,
    find_machine,
    is_shared,
)
from llmb_installer.detect.scheduler import SlurmFound
from llmb_runai.findings import read_mount

MOUNTS = [
    ("/", "overlay"),
    ("/lustre", "lustre"),
    ("/lustre/own", "xfs"),
    ("/home", "autofs"),
    ("/home", "nfs4"),
    ("/data", "fuse.mystery"),
]


@pytest.mark.parametrize(
    ("path", "mount", "kind", "shared"),
    [
        ("/lustre/me/llmb", "/lustre", "lustre", True),
        ("/lustre/own/x", "/lustre/own", "xfs", False),
        ("/lustrex", "/", "overlay", False),
        ("/home/me", "/home", "nfs4", True),
        ("/data", "/data", "fuse.mystery", None),
    ],
)
def test_file_systems(path: str, mount: str, kind: str, shared: bool | None) -> None:
    assert find_file_system(Path(path), MOUNTS) == (Path(mount), kind)
    assert is_shared(kind) is shared


def test_a_folder_that_does_not_exist_yet(tmp_path: Path) -> None:
    found = find_folder(tmp_path / "a" / "b")
    assert (found.nearest, found.writable) == (tmp_path, True)
    assert found.free > 0
    (tmp_path / "file").touch()
    assert not find_folder(tmp_path / "file").writable


def test_pythons_and_tools_of_a_machine(tmp_path: Path) -> None:
    for name in ("python3.12", "python3.9", "python3.11-config", "python3", "uv"):
        (tmp_path / name).touch(mode=0o755)
    (tmp_path / "python3.11").touch(mode=0o644)
    found = find_machine({"PATH": str(tmp_path)})
    assert found.pythons == {"3.12": str(tmp_path / "python3.12")}
    assert found.venv_types == ("uv", "venv")
    (tmp_path / "conda").touch(mode=0o755)
    (tmp_path / "uv").unlink()
    assert find_machine({"PATH": str(tmp_path)}).venv_types == ("venv", "conda")


@pytest.mark.parametrize("text", ["", "w:/w", "w:w:c", "w::c", "a:/b:c:d"])
def test_an_invalid_mount(text: str) -> None:
    assert read_mount(text) is None


def detected(**fields: object) -> Detected:
    machine = MachineFound(architecture="x86_64", pythons={}, venv_types=("venv",))
    return Detected(home=Path("/"), cwd=Path("/"), machine=machine, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, "local"),
        ({"slurm": SlurmFound()}, "slurm"),
        ({"slurm": SlurmFound(fault="Slurm does not answer")}, "slurm"),
        ({"slurm": SlurmFound(fault="no configuration", is_configured=False)}, "local"),
        ({"environ": {"BASE_URL": "https://h/api/v1"}}, "runai"),
    ],
)
def test_the_likely_cluster_type(fields: dict[str, object], kind: str) -> None:
    assert detected(**fields).likely_type(all_types()) == kind


def test_an_installation_above_this_folder(cluster: Callable[..., Path]) -> None:
    folder = cluster(
        cluster_name="big",
        slurm={"account": "a", "gpu": {"partition": "p", "gres": 8}, "cpu": {"gres": None}},
        workloads={"installed": ["pretrain_nemotron4"]},
    )
    (folder / "sub").mkdir()
    found = find_installed(None, {}, folder / "sub")
    assert isinstance(found, InstallDirectory)
    answers = found.answers()
    assert answers["slurm"]["gpu"] == {"partition": "p", "gres": 8}
    assert (answers["install"], answers["workloads"]) == (str(folder), ["pretrain_nemotron4"])
    assert "runai" not in answers
    assert detect({"PATH": ""}, folder).installed == found


def test_its_configuration_overrides_its_answers(cluster: Callable[..., Path]) -> None:
    folder = cluster(gpu_type="h100", slurm={"account": "changed"})
    (folder / ".llmb").mkdir()
    made_from = (
        "method: sbatch\nversions: {torch: 2.9.0}\nslurm: {account: first}\ngpu_type: a100\n"
    )
    (folder / ".llmb" / "answers.yaml").write_text(made_from)
    found = find_installed(folder, {}, folder)
    assert isinstance(found, InstallDirectory)
    answers = found.answers()
    assert (answers["method"], answers["gpu_type"], answers["slurm"]["account"]) == (
        "sbatch",
        "h100",
        "changed",
    )


def test_no_installation(tmp_path: Path) -> None:
    assert find_installed(None, {}, tmp_path) is None
    assert find_installed(tmp_path, {"LLMB_INSTALL": "/gone"}, tmp_path) is None


def test_an_invalid_configuration_is_damaged(cluster: Callable[..., Path]) -> None:
    folder = cluster(gpu_type="h1000")
    found = find_installed(None, {"LLMB_INSTALL": str(folder)}, Path("/"))
    assert isinstance(found, Damaged)
    assert (found.path, "'h1000'" in found.error.message) == (folder, True)
    assert shlex.split(str(found.error.hint))[-6:-1] == [
        "llmb-install",
        "verify",
        "--repair",
        "--install",
        str(folder),
    ]
