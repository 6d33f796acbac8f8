# SPDX-License-Identifier: Apache-2.0
"""Tests of a whole installation: from an empty folder, by the questions, to jobs that llmb-run can
plan.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmb_installer.images.adapter import builder_faults
from llmb_testing.real_registry import RealRegistry, missing_packages
from llmb_testing.sample_images import Layer, SampleImage, file, make_index
from llmb_testing.slurm import SlurmKit

pytestmark = pytest.mark.slow

ENTER = "\r"
# Others need files of a model hub, which no test asks.
WORKLOADS = "workloads=[microbench, pretrain_llama3.1, pretrain_nemotron4, pretrain_nemotronh]"
INSTALL = Path(sys.executable).with_name("llmb-install")
JOB = (
    "single",
    "-w",
    "nemotron4",
    "-s",
    "15b",
    "--dtype",
    "fp8",
    "--scale",
    "16",
    "--dry-run",
    "--format",
    "json",
)
Open = Callable[..., Any]
Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The option that makes a registry of this machine a mirror of nvcr.io; its image is for both
    architectures.
    """
    if missing := missing_packages():
        pytest.skip(
            f"no real registry here: apt-get install --no-install-recommends {' '.join(missing)}"
        )
    images = [
        SampleImage(layers=(Layer(entries=(file("etc/hello", b"x"),)),), architecture=a)
        for a in ("amd64", "arm64")
    ]
    with RealRegistry(tmp_path_factory.mktemp("registry")) as registry:
        registry.push("nvidia/nemo", "25.04.01", make_index(images))
        yield f"images.registry_mirrors={{nvcr.io: '{registry.host}'}}"


def test_slurm_with_pyxis(
    terminal: Open, slurm: SlurmKit, mirror: str, tmp_path: Path, llmb_run: Command
) -> None:
    """A real Slurm whose srun reports pyxis."""
    if (fault := builder_faults()["mksquashfs"]) is not None:
        pytest.skip(f"no images can be built here: {fault.message}")
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(
        f'#!/bin/sh\n[ "$1" = --help ] && echo --container-image || exec {shutil.which("srun")}'
        ' "$@"\n'
    )
    srun.chmod(0o755)
    path = f"{srun.parent}:{Path(sys.executable).parent}:/usr/bin:/bin:/usr/sbin"
    user = terminal(INSTALL, "--set", mirror, "--set", WORKLOADS, PATH=path, **slurm.environ)
    user.reads("Which scheduler?", ENTER).reads("Install folder:", ENTER).reads(
        "Partition for GPU jobs:", ENTER
    )
    user.reads("Account for jobs:", ENTER).reads("in containers (pyxis)?", ENTER).reads(
        "images and environments be built", ENTER
    )
    user.reads("Choose one to change it:", ENTER)
    user.reads("image nvcr.io/nvidia/nemo:25.04.01").reads("Continue?", ENTER).reads("Installed in")
    assert user.ends() == 0
    assert (user.folder / "images" / "nvidia+nemo+25.04.01.sqsh").is_file()
    config = yaml.safe_load((user.folder / "cluster_config.yaml").read_text())
    assert (config["cluster_name"], config["slurm"]["container"]) == ("kit", "pyxis")
    planned = llmb_run(*JOB, "--install", user.folder)
    assert planned.returncode == 0, planned.stderr
    script = json.loads(planned.stdout)["jobs"][0]["script"]
    assert f"--container-image={user.folder}/images/nvidia+nemo+25.04.01.sqsh" in script.replace(
        "'", ""
    )
    assert "#SBATCH --account=benchmarks" in script


def test_runai(terminal: Open, mirror: str, llmb_run: Command) -> None:
    user = terminal(
        INSTALL,
        "--set",
        mirror,
        "--set",
        WORKLOADS,
        BASE_URL="https://localhost/api/v1",
        PROJECT_NAME="team",
        CUSTOM_MOUNT="w:/work:claim",
        APP_ID="me",
        APP_SECRET="x",
        PATH=f"{Path(sys.executable).parent}:/bin",
    )
    user.chooses("Which scheduler?", "runai").reads("Install folder:", ENTER).reads(
        "Run:ai's API", ENTER
    )
    user.reads("Run:ai project", ENTER).reads("name:path:claim", ENTER).reads(
        "signs in", ENTER
    ).reads("Which GPUs?", ENTER)
    user.reads("Choose one to change it:", ENTER)
    user.reads("used by its reference").reads("Continue?", ENTER).reads("Installed in")
    assert user.ends() == 0
    config = yaml.safe_load((user.folder / "cluster_config.yaml").read_text())
    assert config["runai"]["pvc"] == {"name": "w", "path": "/work", "claim": "claim"}
    planned = llmb_run(*JOB, "--install", user.folder)
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["jobs"][0]["image"] == "nvcr.io/nvidia/nemo:25.04.01"
