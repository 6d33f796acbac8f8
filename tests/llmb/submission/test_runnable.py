# SPDX-License-Identifier: Apache-2.0
"""Tests of what `list` says an install directory can run on its cluster, and why not."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.cli.completion import lookups

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Cluster = Callable[..., Path]
Here = Callable[..., dict[str, dict[str, Any]]]
ALL = {"installed": ["pretrain_nemotron4", "pretrain_llama3.1", "pretrain_nemotronh", "microbench"]}
IMAGE = "images/nvidia+nemo+25.04.01.sqsh"


@pytest.fixture
def here(llmb_here: Command) -> Here:
    """What `list --format json` says of each size, by ``workload size``."""

    def ask(install: Path) -> dict[str, dict[str, Any]]:
        done = llmb_here("list", "--install", install, "--format", "json")
        assert done.returncode == 0, done.stderr
        return {f"{row['workload']} {row['size']}": row["here"] for row in json.loads(done.stdout)}

    return ask


def with_image(install: Path, content: bytes) -> Path:
    path = install / IMAGE
    path.parent.mkdir()
    path.write_bytes(content)
    return install


def test_an_image_makes_its_sizes_run(cluster: Cluster, here: Here, smallest_image: bytes) -> None:
    """15b has rows for H100 in fp8 and bf16 at 16 to 2048 GPUs; its size tiny needs torch, which the image lacks."""
    install = cluster(workloads={"installed": ["pretrain_nemotron4"]})
    before = here(install)["pretrain_nemotron4 15b"]
    assert (before["runs"], before["code"]) == (False, "image-missing")
    found = here(with_image(install, smallest_image))
    own = found["pretrain_nemotron4 15b"]
    assert (own["runs"], own["dtypes"], own["scales"][0], own["scales"][-1]) == (True, ["fp8", "bf16"], 16, 2048)
    assert (own["why"], own["most_gpus"]) == (None, None)
    assert not found["pretrain_nemotron4 tiny"]["runs"]
    absent = found["pretrain_nemotronh 56b"]
    assert (absent["code"], absent["hint"]) == ("not-installed", "llmb-install add pretrain_nemotronh")


@pytest.mark.parametrize(
    ("gpu_type", "size", "code"),
    [
        ("a100", "pretrain_nemotron4 15b", "gpu-type-without-row"),
        ("a100", "pretrain_nemotron4 340b", None),
        ("b200", "pretrain_nemotron4 15b", None),
        ("b300", "pretrain_nemotron4 15b", "gpu-type-without-row"),
        ("h100", "microbench gemm", None),
    ],
)
def test_the_gpu_type_decides(
    gpu_type: str, size: str, code: str | None, cluster: Cluster, here: Here, smallest_image: bytes
) -> None:
    install = with_image(cluster(gpu_type=gpu_type, workloads=ALL), smallest_image)
    found = here(install)[size]
    assert (found["runs"], found["code"]) == (code is None, code)
    assert bool(found["scales"]) == (code != "gpu-type-without-row")


def test_the_memory_of_the_gpus_decides(cluster: Cluster, here: Here, smallest_image: bytes) -> None:
    small = {"h100": {"memory_gb": 40}}
    found = here(with_image(cluster(gpu_types=small, workloads=ALL), smallest_image))
    assert found["pretrain_nemotron4 15b"]["code"] == "gpu-memory"


def test_the_gpus_of_one_machine_decide(cluster: Cluster, here: Here) -> None:
    """A machine of 8 GPUs: 15b needs 16; a size of 8 needs its environment."""
    found = here(cluster("local", "h100", workloads=ALL))
    assert found["pretrain_nemotron4 15b"]["code"] == "machine-too-small"
    assert found["pretrain_nemotron4 15b"]["why"] == "needs 16 GPUs"
    assert found["pretrain_llama3.1 8b"]["code"] in ("venv-not-set", "venv-missing")


def test_the_gpus_of_the_partition_decide(
    cluster: Cluster, here: Here, smallest_image: bytes, monkeypatch: pytest.MonkeyPatch, llmb_here: Command
) -> None:
    asked: list[str | None] = []

    def most(partition: str | None) -> int:
        asked.append(partition)
        return 64

    monkeypatch.setattr(lookups, "most_gpus", most)
    install = cluster(slurm={"gpu": {"partition": "batch"}}, workloads=ALL)
    found = here(with_image(install, smallest_image))
    assert asked == ["batch"]
    own = found["pretrain_nemotron4 15b"]
    assert (own["runs"], own["scales"], own["most_gpus"]) == (True, [16, 32, 64], 64)
    large = found["pretrain_nemotron4 340b"]
    assert (large["runs"], large["code"], large["why"]) == (False, "too-few-gpus", "needs 128 GPUs")
    table = llmb_here("list", "--install", install).stdout
    (line,) = (line for line in table.splitlines() if " 15b " in line)
    assert line.split()[-5:] == ["16..64", "up", "to", "64", "GPUs"]


def test_the_table_fits_80_columns_without_breaking_a_word(
    cluster: Cluster, llmb_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = llmb_here("list", "--install", cluster(workloads=ALL)).stdout.splitlines()
    rows = json.loads(llmb_here("list", "--format", "json").stdout)
    assert max(map(len, lines)) <= 80
    assert [line.split()[:2] for line in lines[2:]] == [[row["workload"], row["size"]] for row in rows]
