# SPDX-License-Identifier: Apache-2.0
"""Tests of what a rank sets inside its image, run by bash, and of the options of srun for the
container.
"""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from llmb.builtin.slurm import container
from llmb.contract.launch import Launch, Program, Stamp
from llmb.contract.sbatch import SlurmConfig
from llmb.kit.bashscript import THREADS

LAUNCH = Launch(
    name="x",
    nodes=1,
    ranks_per_node=2,
    time_limit=60,
    program=Program(module="m"),
    image="nvcr.io/nvidia/nemo:25.04.01",
)
STAMP = Stamp(id="abc", timestamp="17", directory="/i/x_17")


def in_rank(
    folder: Path, launch: Launch = LAUNCH, given: tuple[str, ...] = (), **image: str
) -> dict[str, str]:
    """The variables of a rank that starts in ``folder``, whose image has set ``image``; /tmp is
    ``folder/tmp``.
    """
    lines = container.in_rank(launch, "/programs", given).replace(" /tmp ", f" {folder}/tmp ")
    lines = lines.replace(":-/tmp}", f":-{folder}/tmp}}")
    node = {
        "SLURM_JOB_ID": "7",
        "SLURM_NODEID": "1",
        "LLMB_LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1000000",
    }
    environ = {"PATH": os.environ["PATH"], "HOME": "/nowhere", **node, **image}
    done = subprocess.run(
        ["bash", "-c", lines + THREADS + "env -0"],
        env=environ,
        cwd=folder,
        capture_output=True,
        check=True,
        text=True,
    )
    found = dict(item.split("=", 1) for item in done.stdout.split("\0") if item)
    return {**found, "printed": done.stderr}


@pytest.fixture
def node(tmp_path: Path) -> Path:
    (tmp_path / "tmp").mkdir()
    return tmp_path


def test_the_images_own_pythonpath_is_extended(node: Path) -> None:
    assert in_rank(node, PYTHONPATH="/opt/megatron")["PYTHONPATH"] == "/programs:/opt/megatron"
    assert in_rank(node)["PYTHONPATH"] == "/programs"
    own = replace(LAUNCH, environment={"PYTHONPATH": "/mine"})
    assert (
        in_rank(node, own, PYTHONPATH="/opt/megatron")["PYTHONPATH"]
        == "/programs:/mine:/opt/megatron"
    )


def test_home_and_caches_are_in_a_folder_of_the_node(node: Path) -> None:
    found = in_rank(node)
    local = f"{node}/tmp/llmb-7.1"
    assert {name: found[name] for name in ("HOME", "TRITON_CACHE_DIR", "TMPDIR")} == {
        "HOME": f"{local}/home",
        "TRITON_CACHE_DIR": f"{local}/triton",
        "TMPDIR": f"{local}/tmp",
    }
    named = {"TORCHINDUCTOR_CACHE_DIR", "HF_HOME", "NEMO_HOME", "MPLCONFIGDIR", "XDG_CACHE_HOME"}
    assert all(Path(found[name]).is_dir() and found[name].startswith(local) for name in named)
    assert found["printed"] == ""


def test_what_can_be_written_or_the_user_names_stays(node: Path) -> None:
    found = in_rank(
        node, given=("HF_HOME",), HF_HOME="/hub", TMPDIR=str(node), NEMO_HOME="/read-only"
    )
    assert (found["HF_HOME"], found["TMPDIR"]) == ("/hub", str(node))
    assert found["NEMO_HOME"] == f"{node}/llmb-7.1/nemo"


def test_a_node_without_a_temporary_folder_takes_the_runs_own_and_says_so(node: Path) -> None:
    (node / "tmp").rmdir()
    (node / "tmp").touch()
    found = in_rank(node)
    assert found["HOME"] == f"{node}/.local/llmb-7.1/home"
    assert f" {node}/.local/llmb-7.1" in found["printed"]


@pytest.mark.parametrize(("image", "threads"), [({}, "1"), ({"OMP_NUM_THREADS": "3"}, "3")])
def test_threads_follow_from_the_ranks_unless_the_image_says(
    image: dict[str, str], threads: str, node: Path
) -> None:
    assert in_rank(node, LAUNCH, (), **image)["OMP_NUM_THREADS"] == threads


def test_programs_are_mounted_read_only() -> None:
    launch = replace(LAUNCH, mounts=("/data:/data:ro",))
    assert container.mounts(launch, STAMP, "/p") == [
        "/i/x_17:/i/x_17",
        "/p:/p:ro",
        "/data:/data:ro",
    ]


@pytest.mark.parametrize(
    ("image", "config", "job", "word"),
    [
        ("nemo:25.04.01", None, None, ""),
        ("nemo:25.04.01", True, None, " --container-writable"),
        ("own:1", None, True, " --container-writable"),
        ("nemo:25.09", None, None, " --container-writable"),
        ("nemo:25.09", False, None, " --container-readonly"),
        ("nemo:25.09", False, True, " --container-writable"),
    ],
)
def test_whether_the_image_can_be_written(
    image: str, config: bool | None, job: bool | None, word: str
) -> None:
    launch = replace(LAUNCH, image=f"registry.example/{image}", container_writable=job)
    slurm = SlurmConfig(container_writable=config)
    first, second = container.options(launch, slurm, ["A", "PYTHONPATH", "A"], ())
    assert first == f'--container-workdir="$llmb_work" --no-container-mount-home{word}'
    assert second == "--container-env=A"  # PYTHONPATH is the image's there
