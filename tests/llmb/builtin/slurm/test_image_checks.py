# SPDX-License-Identifier: Apache-2.0
"""Tests of the pre-submission checks of images and mounts."""

import json
import shlex
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.slurm.commands import Client
from llmb.builtin.slurm.slurm_checks import (
    faults_of_image,
    faults_of_mounts,
    faults_of_writable,
    mpi_fault,
)
from llmb.contract.launch import Launch, Program
from llmb.contract.sbatch import SlurmConfig
from llmb.contract.schema import ClusterConfig
from llmb.errors import Fault, PreflightError, describe
from llmb.plan.locate import line_in_config
from llmb_installer.cluster_types import all_types

REFERENCE = "nvcr.io/nvidia/nemo:25.04.01"
LAUNCH = Launch(
    name="x",
    nodes=1,
    ranks_per_node=1,
    time_limit=60,
    program=Program(module="m"),
    image=REFERENCE,
    workload="w",
)


@pytest.fixture
def config(tmp_path: Path) -> ClusterConfig:
    (tmp_path / "images").mkdir()
    return ClusterConfig(
        cluster_type="slurm",
        gpu_type="h100",
        llmb_install=tmp_path,
        sections={"slurm": SlurmConfig()},
        kind=all_types()["slurm"],
    )


@pytest.fixture
def image(tmp_path: Path, config: ClusterConfig) -> Path:
    """4096 bytes with a superblock of that size."""
    path = tmp_path / "images/nvidia+nemo+25.04.01.sqsh"
    path.write_bytes(b"hsqs" + bytes(36) + struct.pack("<Q", 4096) + bytes(4048))
    return path


def found(config: ClusterConfig, launch: Launch = LAUNCH) -> list[Fault]:
    return list(faults_of_image(launch, config))


def text(faults: Iterable[Fault]) -> str:
    return describe(PreflightError([*faults]))


def test_a_whole_image_passes(image: Path, config: ClusterConfig) -> None:
    assert found(config) == []
    image.with_name(f"{image.name}.json").write_text(json.dumps({"size": 4096}))
    assert found(config) == []


@pytest.mark.skipif(
    shutil.which("mksquashfs") is None, reason="no mksquashfs here: apt-get install squashfs-tools"
)
def test_one_that_mksquashfs_made_passes_and_cut_does_not(
    image: Path, config: ClusterConfig
) -> None:
    image.unlink()
    (folder := image.parent / "root").mkdir()
    (folder / "file").write_bytes(bytes(range(256)) * 99)
    subprocess.run(["mksquashfs", folder, image, "-quiet"], check=True, capture_output=True)
    assert found(config) == []
    data = image.read_bytes()
    image.write_bytes(data[:200])
    (fault,) = found(config)
    assert (fault.code, f"{struct.unpack_from('<Q', data, 40)[0]:,} bytes" in fault.message) == (
        "image-damaged",
        True,
    )


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:300]),
        lambda path: path.write_text("<html>" * 99),
        lambda path: path.with_name(f"{path.name}.json").write_text('{"size": 8192}'),
    ],
    ids=["empty", "cut", "html", "size"],
)
def test_a_damaged_image_is_refused(
    damage: Callable[[Path], Any], image: Path, config: ClusterConfig, wording: Callable[..., None]
) -> None:
    damage(image)
    (fault,) = found(config)
    again = (
        f"rm {shlex.quote(str(image))}; llmb-install image {REFERENCE} --install"
        f" {image.parent.parent}"
    )
    assert (fault.code, fault.value, fault.hint) == ("image-damaged", str(image), again)
    wording("submit-all", text([fault]))


def test_a_missing_image(config: ClusterConfig, wording: Callable[..., None]) -> None:
    """``add`` builds only the workload's own image: one of --image has its own command."""
    (fault,) = found(config)
    add = ["llmb-install", "add", "w", "--install", str(config.llmb_install), "--yes"]
    assert (fault.code, str(fault.hint).split()) == ("image-missing", add)
    fix = "llmb-install image own:1 --install /i"
    (fault,) = found(config, replace(LAUNCH, image="own:1", fixes={"own:1": fix}))
    assert (fault.code, fault.hint) == ("image-missing", fix)
    (fault,) = found(config, replace(LAUNCH, image="/nowhere/own.sqsh"))
    assert (fault.code, fault.value) == ("image-missing", "/nowhere/own.sqsh")
    wording("submit-all", text([fault]))


def test_mounts_must_exist(tmp_path: Path, wording: Callable[..., None]) -> None:
    there = replace(LAUNCH, mounts=(f"{tmp_path}:/data:ro",))
    assert list(faults_of_mounts(there)) == []
    wrong = replace(LAUNCH, mounts=(f"{tmp_path}/no:/data", f"{tmp_path}:/a:ro:rw", "/a,b:/c"))
    assert [(fault.code, fault.key) for fault in faults_of_mounts(wrong)] == [
        ("mount-missing", f"{tmp_path}/no:/data"),
        ("mount-invalid", f"{tmp_path}:/a:ro:rw"),
        ("mount-invalid", "/a,b:/c"),
    ]
    wording("submit-all", text(faults_of_mounts(wrong)))


def test_a_pyxis_that_cannot_make_the_image_writable(config: ClusterConfig) -> None:
    lacks = frozenset({"container-writable"})
    asked = replace(LAUNCH, container_writable=True)
    assert [fault.code for fault in faults_of_writable(asked, config, lacks)] == [
        "writable-unsupported"
    ]
    assert list(faults_of_writable(asked, config, frozenset())) == []
    assert list(faults_of_writable(LAUNCH, config, lacks)) == []


@pytest.mark.parametrize(("kind", "is_missing"), [("none", False), ("pmix", True), ("pmi2", False)])
def test_no_mpi_at_all_is_accepted_though_it_is_not_listed(
    kind: str, is_missing: bool, tmp_path: Path
) -> None:
    """What Slurm 24.11 lists, and does."""
    srun = tmp_path / "srun"
    srun.write_text(
        "#!/bin/sh\ncase $* in *--mpi=list*) printf 'MPI plugin types are...\\n\\tpmi2\\n' ;;"
        " esac\n"
    )
    srun.chmod(0o755)
    client = Client(environ={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert (mpi_fault(client, kind) is not None) == is_missing


def test_the_line_of_a_key(tmp_path: Path) -> None:
    (tmp_path / "cluster_config.yaml").write_text("cluster_type: slurm\nslurm:\n  mpi: pimx\n")
    assert line_in_config(tmp_path, "slurm", "mpi") == f"{tmp_path}/cluster_config.yaml:3"
    assert line_in_config(tmp_path, "slurm", "qos") == ""
