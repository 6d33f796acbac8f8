# SPDX-License-Identifier: Apache-2.0
"""The size smoke on a real Slurm, from llmb-run to results, trained by the real NeMo on two CPU
ranks.

Real: the commands, the batch script, srun and the ranks it starts with their environment, the
staged program, NeMo's recipe and trainer, Megatron's model split over two tensor parallel ranks,
the log and how it is read. Mocked: the GPUs (pretended in Slurm; on_cpu.py computes on CPUs, in
FP32), Transformer Engine's layers (Megatron's instead), and the widths: on_cpu.py --narrow trains
smoke's four layers with 64 hidden units instead of 4096. Instead of pyxis, srun has a plugin that
knows its options and starts no container: an image's Python is a script on PATH.
"""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmb_testing.slurm import Shape, SlurmKit, missing_packages

HERE = Path(__file__).parent
SMOKE = ("single", "-w", "llama3.1", "-s", "smoke", "--dtype", "bf16", "--scale", "2")
# Replaces the environment's Python: runs the program with mocks of what only GPUs have.
PYTHON = """\
#!/bin/bash
[[ $1 == -m && $2 == llmb_workloads.nemo_pretrain ]] || exec {python} "$@"
shift 2
exec {python} {on_cpu} "$@" --narrow
"""

Command = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def kit() -> Iterator[SlurmKit]:
    """One node with eight pretended GPUs."""
    if missing := missing_packages(accounting=False):
        pytest.skip(
            f"no real Slurm here: apt-get install --no-install-recommends {' '.join(missing)}"
        )
    with SlurmKit(Shape(nodes=1, accounting=False)) as kit:
        yield kit


@pytest.fixture
def install(tmp_path: Path, nemo_python: Path) -> Path:
    """An install directory whose NeMo environment is that of the tests, on CPUs."""
    folder = tmp_path / "install"
    (folder / "venv/bin").mkdir(parents=True)
    python = folder / "venv/bin/python"
    python.write_text(
        PYTHON.format(python=nemo_python, on_cpu=HERE / "on_cpu.py"), encoding="utf-8"
    )
    python.chmod(0o755)
    (folder / "venv/pyvenv.cfg").write_text(
        "include-system-site-packages = true\n", encoding="utf-8"
    )
    config = {
        "schema_version": 2,
        "cluster_type": "slurm",
        "cluster_name": "kit",
        "gpu_type": "h100",
        "slurm": {"container": "none", "gpu": {"gres": 8}},
        "environment": {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        "workloads": {
            "installed": ["pretrain_llama3.1"],
            "config": {"pretrain_llama3.1": {"venvs": {"nemo": str(folder / "venv")}}},
        },
    }
    (folder / "cluster_config.yaml").write_text(
        yaml.safe_dump(config, sort_keys=False), encoding="utf-8"
    )
    return folder


def test_smoke_goes_from_single_to_results(kit: SlurmKit, install: Path, llmb_run: Command) -> None:
    def llmb(*words: str) -> subprocess.CompletedProcess[str]:
        return llmb_run(*words, "--install", install, **kit.environ)

    done = llmb(*SMOKE, "--wait")
    (log,) = install.glob("workloads/*/experiments/*/*/*/log-*.out")
    text = log.read_text(encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr + text[-4000:]
    (result,) = results(llmb("results", "--format", "json"))
    assert (result["status"], result["steps"], result["max_iteration"]) == ("Success", 20, 19)
    assert result["window"] == [4, 18]
    assert result["time_mean_seconds"] > 0
    assert (result["verdict"], result["reference"]) == ("NO_REFERENCE", None)
    assert result["experiment"] == "pretrain_llama3.1_smoke_bf16_gpus2_tp2_pp1_cp1_vpNone_mbs1_gbs4"
    (opening,) = [line for line in text.splitlines() if "nemo_pretrain: llama3_8b" in line]
    assert {"llama31_8b", "bf16_mixed", "2", "2.3.1"} <= set(re.findall(r"[\w.]+", opening))
    # A rank has half of all but the norms: of both embeddings, whose 1025 rows are padded to 1280,
    # and of four layers.
    layer = (2 * 64 * 16 * (4 + 2) + 3 * 64 * 128) // 2 + 2 * 64
    megatrons = f"model parallel rank (0 ,0): {1280 * 64 + 4 * layer + 64}\n"
    assert megatrons in text


LIST = """\
llama3.1_smoke: {dtypes: [bf16], scales: [2]}
llama3.1_tiny: {dtypes: [fp32], scales: [1, 2], image: own.example/torch:1, max_steps: 4}
"""
# The Python of either image: NeMo's for its program, else one with torch and transformers.
IMAGE_PYTHON = """\
#!/bin/bash
[[ $1 == -m && $2 == llmb_workloads.nemo_pretrain ]] || exec {torch} "$@"
shift 2
exec {python} {on_cpu} "$@" --narrow
"""


@pytest.fixture
def containers(
    kit: SlurmKit,
    tmp_path: Path,
    nemo_python: Path,
    torch_install: Path,
    pyxis_mock: Callable[..., None],
    smallest_image: bytes,
) -> Path:
    """An install directory for pyxis with two images, each only a superblock, and their Python in
    ``path``.
    """
    pyxis_mock(kit)
    installed = yaml.safe_load((torch_install / "cluster_config.yaml").read_text(encoding="utf-8"))[
        "workloads"
    ]
    torch_python = Path(next(iter(installed["config"].values()))["venv_path"], "bin/python")
    folder = tmp_path / "install"
    for name in ("images", "path"):
        (folder / name).mkdir(parents=True)
    for image in ("nvidia+nemo+25.04.01.sqsh", "torch+1.sqsh"):
        (folder / "images" / image).write_bytes(smallest_image)
    python = folder / "path/python3"
    python.write_text(
        IMAGE_PYTHON.format(torch=torch_python, python=nemo_python, on_cpu=HERE / "on_cpu.py")
    )
    python.chmod(0o755)
    config = {
        "schema_version": 2,
        "cluster_type": "slurm",
        "cluster_name": "kit",
        "gpu_type": "h100",
        "slurm": {"container": "pyxis", "mpi": "none", "gpu": {"gres": 8}},
        "environment": {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        "workloads": {"installed": ["pretrain_llama3.1"], "config": {"pretrain_llama3.1": {}}},
    }
    (folder / "cluster_config.yaml").write_text(
        yaml.safe_dump(config, sort_keys=False), encoding="utf-8"
    )
    return folder


@pytest.mark.local_install
def test_a_list_of_smoke_and_tiny_jobs_in_images_becomes_results(
    kit: SlurmKit, containers: Path, llmb_run: Command, tmp_path: Path
) -> None:
    (tmp_path / "jobs.yaml").write_text(LIST)
    variables = {
        **kit.environ,
        "PATH": f"{containers}/path{os.pathsep}{kit.environ.get('PATH', os.environ['PATH'])}",
    }
    done = llmb_run(
        "submit-all", tmp_path / "jobs.yaml", "--wait", "--install", containers, **variables
    )
    logs = "".join(
        log.read_text() for log in containers.glob("workloads/*/experiments/*/*/*/log-*.out")
    )
    assert done.returncode == 0, done.stdout + done.stderr + logs[-4000:]
    found = results(llmb_run("results", "--format", "json", "--install", containers, **variables))
    ended = {
        (one["configuration"]["model_size"], one["configuration"]["scale"], one["steps"]): one
        for one in found
    }
    assert set(ended) == {("smoke", 2, 20), ("tiny", 1, 4), ("tiny", 2, 4)}
    assert {(one["status"], one["verdict"]) for one in found} == {("Success", "NO_REFERENCE")}
    assert re.search(r"ranks: 2\b.*nemo_toolkit 2\.3\.1", logs)


def results(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The results that llmb-run printed."""
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    return found
