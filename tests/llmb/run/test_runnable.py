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
    """15b has rows for H100 in fp8 and bf16 at 16 to 2048 GPUs; its size tiny needs torch, which
    the image lacks.
    """
    install = cluster(workloads={"installed": ["pretrain_nemotron4"]})
    before = here(install)["pretrain_nemotron4 15b"]
    assert (before["runs"], before["code"]) == (False, "image-missing")
    found = here(with_image(install, smallest_image))
    own = found["pretrain_nemotron4 15b"]
    assert (own["runs"], own["dtypes"], own["scales"][0], own["scales"][-1]) == (
        True,
        ["fp8", "bf16"],
        16,
        2048,
    )
    assert (own["why"], own["most_gpus"]) == (None, None)
    assert not found["pretrain_nemotron4 tiny"]["runs"]
    absent = found["pretrain_nemotronh 56b"]
    assert (absent["code"], absent["hint"]) == (
        "not-installed",
        "llmb-install add pretrain_nemotronh",
    )


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


def test_the_memory_of_the_gpus_decides(
    cluster: Cluster, here: Here, smallest_image: bytes
) -> None:
    small = {"h100": {"memory_gb": 40}}
    found = here(with_image(cluster(gpu_types=small, workloads=ALL), smallest_image))
    assert found["pretrain_nemotron4 15b"]["code"] == "gpu-memory"


def test_the_gpus_of_one_machine_decide(cluster: Cluster, here: Here) -> None:
    """A machine of 8 GPUs: 15b needs 16; a size of 8 needs its environment."""
    found = here(cluster("local", "h100", workloads=ALL))
    assert found["pretrain_nemotron4 15b"]["code"] == "machine-too-small"
    assert found["pretrain_nemotron4 15b"]["why"] == "needs 16 GPUs"
    assert found["pretrain_llama3.1 8b"]["code"] in ("venv-not-set", "venv-missing")


def test_gpus_of_the_nodes_promise_nothing_to_jobs_on_cpus(
    cluster: Cluster, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have a rank for each node, so that 4 nodes of 2 GPUs take no job of 8 ranks."""
    monkeypatch.setattr(lookups, "most_gpus", lambda partition, clusters: 8)
    found = here(cluster("slurm", "cpu", slurm={"partition": "batch"}, workloads=ALL))
    assert {size["most_gpus"] for size in found.values()} == {None}


def test_the_gpus_of_the_partition_decide(
    cluster: Cluster,
    here: Here,
    smallest_image: bytes,
    monkeypatch: pytest.MonkeyPatch,
    llmb_here: Command,
) -> None:
    asked: list[str | None] = []

    def most(partition: str | None, _clusters: str | None) -> int:
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
    lines = {tuple(words[:2]): words[2:] for line in table.splitlines() if (words := line.split())}
    assert lines["pretrain_nemotron4", "15b"][-5:] == ["16..64", "up", "to", "64", "GPUs"]
    # The released rows for H100: 405b from 512 GPUs, 70b from 64, both in fp8 and bf16; other types
    # have more of both.
    assert lines["pretrain_llama3.1", "405b"] == [
        "fp8,",
        "bf16",
        "512..2048",
        "no:",
        "needs",
        "512",
        "GPUs",
    ]
    assert lines["pretrain_nemotron4", "340b"] == [
        "fp8,",
        "bf16",
        "128..2048",
        "no:",
        "needs",
        "128",
        "GPUs",
    ]


def test_a_size_that_is_not_for_this_gpu_type_has_nothing_here(
    cluster: Cluster, llmb_here: Command
) -> None:
    """No release has a row of Nemotron-4 15B for B300."""
    table = llmb_here("list", "--install", cluster(gpu_type="b300", workloads=ALL)).stdout
    (line,) = (line for line in table.splitlines() if " 15b " in line)
    assert line.split() == ["pretrain_nemotron4", "15b", "no:", "not", "on", "b300"]


def test_the_framework_that_is_asked_for_is_judged(
    cluster: Cluster, llmb_here: Command, smallest_image: bytes
) -> None:
    """NeMo's image is there, that of Megatron-Bridge 26.08 is not; 405b-proxy has no row of
    Megatron-Bridge.
    """
    install = with_image(cluster(workloads=ALL), smallest_image)
    found = {}
    for words in ((), ("--framework", "bridge"), ("--release", "26.02.01")):
        done = llmb_here("list", *words, "--install", install, "--format", "json")
        rows = [row for row in json.loads(done.stdout) if row["workload"] == "pretrain_llama3.1"]
        found[words] = {row["size"]: row["here"] for row in rows}
    assert found[()]["8b"]["runs"]
    own = found["--framework", "bridge"]["8b"]
    assert (own["code"], own["dtypes"], own["scales"]) == (
        "image-missing",
        ["bf16", "fp8_cs"],
        [8, 64],
    )
    assert "nvidia+nemo+26.08.sqsh" in own["reason"]
    assert "405b-proxy" not in found["--framework", "bridge"]
    own = found["--release", "26.02.01"]["8b"]
    assert ("nvidia+nemo+26.02.01.sqsh" in own["reason"], own["scales"]) == (True, [8])
    notes = llmb_here(
        "list", "-w", "llama3.1_8b", "--framework", "bridge", "--install", install
    ).stderr
    assert "nvidia+nemo+26.08.sqsh" in notes
    assert "25.04.01" not in notes


def test_the_table_fits_80_columns_without_breaking_a_word(
    cluster: Cluster, llmb_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = llmb_here("list", "--install", cluster(workloads=ALL)).stdout.splitlines()
    rows = json.loads(llmb_here("list", "--format", "json").stdout)
    assert max(map(len, lines)) <= 80
    # A cell may need several lines. The first two columns fill the first of them alone.
    first_lines = [line for line in lines[2:] if not line.startswith("  ")]
    assert [line.split()[:2] for line in first_lines] == [
        [row["workload"], row["size"]] for row in rows
    ]
    words = {word.strip(",") for line in lines for word in line.split()}
    assert {"missing", "installed", "fp8_cs", "fp8_sc"} <= words
