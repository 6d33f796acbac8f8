# SPDX-License-Identifier: Apache-2.0
"""Tests of what is looked at of images and mounts before a submission, by their files alone."""

import json
import shlex
import shutil
import struct
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.clusters.slurm import commands
from llmb.clusters.slurm.commands import Client
from llmb.clusters.slurm.slurm_checks import faults_of_image, faults_of_mounts, faults_of_writable
from llmb.config import ClusterConfig
from llmb.config.locate import place_in_config
from llmb.config.slurm import SlurmConfig
from llmb.runs.launch import Launch, Program

REFERENCE = "nvcr.io/nvidia/nemo:25.04.01"
LAUNCH = Launch(
    name="x", nodes=1, ranks_per_node=1, time_limit=60, program=Program(module="m"), image=REFERENCE, workload="w"
)


@pytest.fixture
def config(tmp_path: Path) -> ClusterConfig:
    (tmp_path / "images").mkdir()
    return ClusterConfig(cluster_type="slurm", gpu_type="h100", llmb_install=tmp_path, slurm=SlurmConfig())


@pytest.fixture
def image(tmp_path: Path, config: ClusterConfig) -> Path:
    """A superblock that says 4096 bytes, and as many."""
    path = tmp_path / "images/nvidia+nemo+25.04.01.sqsh"
    path.write_bytes(b"hsqs" + bytes(36) + struct.pack("<Q", 4096) + bytes(4048))
    return path


def hints(config: ClusterConfig, launch: Launch = LAUNCH) -> dict[str, str]:
    return {fault.message: fault.hint or "" for fault in faults_of_image(launch, config)}


def test_a_whole_image_passes(image: Path, config: ClusterConfig) -> None:
    assert hints(config) == {}
    image.with_name(f"{image.name}.json").write_text(json.dumps({"size": 4096}))
    assert hints(config) == {}


@pytest.mark.skipif(shutil.which("mksquashfs") is None, reason="no mksquashfs here: apt-get install squashfs-tools")
def test_one_that_mksquashfs_made_passes_and_cut_does_not(image: Path, config: ClusterConfig) -> None:
    image.unlink()
    (folder := image.parent / "root").mkdir()
    (folder / "file").write_bytes(bytes(range(256)) * 99)
    subprocess.run(["mksquashfs", folder, image, "-quiet"], check=True, capture_output=True)
    assert hints(config) == {}
    data = image.read_bytes()
    image.write_bytes(data[:200])
    assert [message.partition(": ")[2] for message in hints(config)] == [
        f"it is cut: 200 of {struct.unpack_from('<Q', data, 40)[0]:,} bytes are there"
    ]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.write_bytes(b""), "it is empty"),
        (lambda path: path.write_bytes(path.read_bytes()[:300]), "it is cut: 300 of 4,096 bytes are there"),
        (lambda path: path.write_text("<html>" * 99), "it is not a squashfs image"),
        (
            lambda path: path.with_name(f"{path.name}.json").write_text('{"size": 8192}'),
            "it has 4,096 bytes, and 8,192 by the record beside it",
        ),
    ],
)
def test_what_is_cut_or_empty_is_refused(
    damage: Callable[[Path], Any], said: str, image: Path, config: ClusterConfig
) -> None:
    damage(image)
    again = f"rm {shlex.quote(str(image))}; llmb-install image {REFERENCE} --install {image.parent.parent}"
    assert hints(config) == {f"the image {image} cannot be used: {said}": again}


def test_an_image_that_is_not_there(config: ClusterConfig) -> None:
    """``add`` builds the workload's own image, and no other: one of --image has its own command."""
    (hint,) = hints(config).values()
    assert hint == f"llmb-install add w --install {config.llmb_install} --yes"
    fix = "llmb-install image own:1 --install /i"
    (hint,) = hints(config, replace(LAUNCH, image="own:1", fixes={"own:1": fix})).values()
    assert hint == fix
    (hint,) = hints(config, replace(LAUNCH, image="/nowhere/own.sqsh")).values()
    assert hint == "name a file that is there: llmb-install image REFERENCE -o FILE builds one"


def test_mounts_must_be_there(tmp_path: Path) -> None:
    there = replace(LAUNCH, mounts=(f"{tmp_path}:/data:ro",))
    assert list(faults_of_mounts(there)) == []
    wrong = replace(LAUNCH, mounts=(f"{tmp_path}/no:/data", f"{tmp_path}:/a:ro:rw", "/a,b:/c"))
    assert [fault.message for fault in faults_of_mounts(wrong)] == [
        f"{tmp_path}/no cannot be mounted: it is not there",
        f"{tmp_path}:/a:ro:rw cannot be mounted: pyxis takes commas and colons for its own",
        "/a,b:/c cannot be mounted: pyxis takes commas and colons for its own",
    ]


def test_a_pyxis_that_cannot_make_the_image_writable(config: ClusterConfig) -> None:
    lacks = frozenset({"container-writable"})
    asked = replace(LAUNCH, container_writable=True)
    assert [fault.message for fault in faults_of_writable(asked, config, lacks)] == [
        "container_writable is true, and this srun has no --container-writable"
    ]
    assert list(faults_of_writable(asked, config, frozenset())) == []
    assert list(faults_of_writable(LAUNCH, config, lacks)) == []


@pytest.mark.parametrize(("kind", "said"), [("none", None), ("pmix", "has no MPI plugin 'pmix'"), ("pmi2", None)])
def test_no_mpi_at_all_is_taken_though_it_is_not_listed(kind: str, said: str | None, tmp_path: Path) -> None:
    """What Slurm 24.11 lists, and does."""
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\ncase $* in *--mpi=list*) printf 'MPI plugin types are...\\n\\tpmi2\\n' ;; esac\n")
    srun.chmod(0o755)
    client = Client(environ={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert commands.no_mpi(client, kind) == said


def test_the_line_of_a_key(tmp_path: Path) -> None:
    (tmp_path / "cluster_config.yaml").write_text("cluster_type: slurm\nslurm:\n  mpi: pimx\n")
    assert place_in_config(tmp_path, "slurm", "mpi") == f"{tmp_path}/cluster_config.yaml:3"
    assert place_in_config(tmp_path, "slurm", "qos") == ""
