# SPDX-License-Identifier: Apache-2.0
"""Compares every row of the three workloads, and the jobs made of it, with the tables as the
releases print them.
"""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pluggy
import pytest
import yaml

import llmb_llama31
import llmb_nemotron4
import llmb_nemotronh
from llmb import hookspecs
from llmb.contract.rows import BatchRule, Row
from llmb.contract.spec import Size, Workload

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Cluster = Callable[..., Path]

BOTH = ("fp8", "bf16")
MODULES = {"nemotron4": llmb_nemotron4, "llama3.1": llmb_llama31, "nemotronh": llmb_nemotronh}


def offered(module: ModuleType) -> Workload:
    """The workload as the runtime asks for it."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(module)
    (workload,) = manager.hook.llmb_workload()
    assert isinstance(workload, Workload)
    return workload


WORKLOADS = {name: offered(module) for name, module in MODULES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """One line of a published table."""

    workload: str
    size: str
    gpu: str
    dtype: str
    gpus: int
    strong: bool
    layers: int
    tp: int
    pp: int
    cp: int
    vp: int | None
    mbs: int
    gbs: int
    dp: int
    ga: int


def table(
    text: str,
    workload: str,
    size: str,
    gpus: str,
    dtypes: tuple[str, ...] = BOTH,
    strong: bool = False,
    up_to: dict[str, int] | None = None,
) -> list[Printed]:
    """The lines of a table, for each GPU type (its lines ``up_to`` a scale) and dtype."""
    found = []
    for line in text.strip().splitlines():
        count, layers, tp, pp, cp, vp, mbs, gbs, dp, ga = line.split()
        found += [
            Printed(
                workload=workload,
                size=size,
                gpu=gpu,
                dtype=dtype,
                gpus=int(count),
                strong=strong,
                layers=int(layers),
                tp=int(tp),
                pp=int(pp),
                cp=int(cp),
                vp=None if vp == "NA" else int(vp),
                mbs=int(mbs),
                gbs=int(gbs),
                dp=int(dp),
                ga=int(ga),
            )
            for gpu in gpus.split()
            for dtype in dtypes
            if int(count) <= (up_to or {}).get(gpu, int(count))
        ]
    return found


# Columns: GPUs, layers, TP, PP, CP, VP, MBS, GBS, DP, GA. Misprints of a release are in the table's
# comment.

# Release 25.04; 25.07 prints 16 to 512, there with DP 8 in every line.
NEMOTRON4_15B_H100 = """
  16  32  2  1  1  NA  2    64     8  4
  32  32  2  1  1  NA  2   128    16  4
  64  32  2  1  1  NA  2   256    32  4
 128  32  2  1  1  NA  2   512    64  4
 256  32  2  1  1  NA  2  1024   128  4
 512  32  2  1  1  NA  2  2048   256  4
1024  32  2  1  1  NA  2  4096   512  4
2048  32  2  1  1  NA  2  8192  1024  4
"""
# Releases after 25.07.
NEMOTRON4_15B_BLACKWELL = """
  16  32  1  1  1  1  2    64    16  2
  32  32  1  1  1  1  2   128    32  2
  64  32  1  1  1  1  2   256    64  2
 128  32  1  1  1  1  2   512   128  2
 256  32  1  1  1  1  2  1024   256  2
 512  32  1  1  1  1  2  2048   512  2
1024  32  1  1  1  1  2  4096  1024  2
"""
# Release 24.11 from 128, 25.04 from 256 (there VP NA), 25.07 has 256 and 512 (there DP 4 for both).
NEMOTRON4_340B_HOPPER = """
 128  96  8  8  1  12  1   32   2  16
 256  96  8  8  1  12  1   64   4  16
 512  96  8  8  1  12  1  128   8  16
1024  96  8  8  1  12  1  256  16  16
2048  96  8  8  1  12  1  512  32  16
"""
# Release 25.07, both tables.
NEMOTRON4_340B_BLACKWELL = """
 128  96  8  4  1  12  1   32   4  8
 256  96  8  4  1  12  1   64   8  8
 512  96  8  4  1  12  1  128  16  8
1024  96  8  4  1  12  1  256  32  8
"""
NEMOTRON4_340B_STRONG = """
 128  96  8  4  1  12  1  512   4  128
 256  96  8  4  1  12  1  512   8   64
 512  96  8  4  1  12  1  512  16   32
1024  96  8  4  1  12  1  512  32   16
"""
# Release 25.04.
LLAMA_8B = """
  8  32  1  1  2  NA  1   128   4  32
 16  32  1  1  2  NA  1   256   8  32
 32  32  1  1  2  NA  1   512  16  32
 64  32  1  1  2  NA  1  1024  32  32
128  32  1  1  2  NA  1  2048  64  32
"""
LLAMA_70B_BF16 = """
  64  80  4  4  2  5  1   128   2  64
 128  80  4  4  2  5  1   256   4  64
 256  80  4  4  2  5  1   512   8  64
 512  80  4  4  2  5  1  1024  16  64
1024  80  4  4  2  5  1  2048  32  64
2048  80  4  4  2  5  1  4096  64  64
"""
LLAMA_70B_FP8 = """
  64  80  4  8  1  5  1   128   2  64
 128  80  4  8  1  5  1   256   4  64
 256  80  4  8  1  5  1   512   8  64
 512  80  4  8  1  5  1  1024  16  64
1024  80  4  8  1  5  1  2048  32  64
2048  80  4  8  1  5  1  4096  64  64
"""
LLAMA_405B_PROXY = """
 32   8  8  1  2  NA  1   64  2  32
 64  30  8  4  2   8  1   64  1  64
128  62  8  4  2   8  1  128  2  64
"""
LLAMA_405B_H100 = """
 512  126  8  8  2  8  1   256   4  64
1024  126  8  8  2  8  1   512   8  64
2048  126  8  8  2  8  1  1024  16  64
"""
# From release 25.05 on.
LLAMA_405B_BLACKWELL = """
 128  126  4  8  2  8  1   64   2  32
 256  126  4  8  2  8  1  128   4  32
 512  126  4  8  2  8  1  256   8  32
1024  126  4  8  2  8  1  512  16  32
"""
# Release 25.05. Its sample log is named gpus128 with gbs768; that batch belongs to 256 GPUs.
NEMOTRONH_H100 = """
  32  118  8  1  1  NA  1    96    4  24
  64  118  8  1  1  NA  1   192    8  24
 128  118  8  1  1  NA  1   384   16  24
 256  118  8  1  1  NA  1   768   32  24
 512  118  8  1  1  NA  1  1536   64  24
1024  118  8  1  1  NA  1  3072  128  24
2048  118  8  1  1  NA  1  6144  256  24
"""
# Release 25.07.
NEMOTRONH_BLACKWELL = """
 32  118  2  1  1  NA  1    96   16  6
 64  118  2  1  1  NA  1   192   32  6
128  118  2  1  1  NA  1   384   64  6
256  118  2  1  1  NA  1   768  128  6
512  118  2  1  1  NA  1  1536  256  6
"""

PUBLISHED = [
    *table(NEMOTRON4_15B_H100, "nemotron4", "15b", "h100"),
    *table(NEMOTRON4_15B_BLACKWELL, "nemotron4", "15b", "b200 gb200", up_to={"gb200": 512}),
    *table(NEMOTRON4_340B_HOPPER, "nemotron4", "340b", "h100"),
    *table(NEMOTRON4_340B_HOPPER, "nemotron4", "340b", "a100", ("bf16",)),
    *table(NEMOTRON4_340B_BLACKWELL, "nemotron4", "340b", "b200 gb200", up_to={"gb200": 512}),
    *table(
        NEMOTRON4_340B_STRONG, "nemotron4", "340b", "b200 gb200", strong=True, up_to={"gb200": 512}
    ),
    *table(LLAMA_8B, "llama3.1", "8b", "h100"),
    *table(LLAMA_70B_BF16, "llama3.1", "70b", "h100", ("bf16",)),
    *table(LLAMA_70B_FP8, "llama3.1", "70b", "h100", ("fp8",)),
    *table(LLAMA_405B_PROXY, "llama3.1", "405b-proxy", "h100"),
    *table(LLAMA_405B_H100, "llama3.1", "405b", "h100"),
    *table(LLAMA_405B_BLACKWELL, "llama3.1", "405b", "b200 gb200", up_to={"gb200": 512}),
    *table(NEMOTRONH_H100, "nemotronh", "56b", "h100", ("fp8",)),
    *table(NEMOTRONH_BLACKWELL, "nemotronh", "56b", "b200 gb200", ("fp8",)),
]
GPUS_PER_NODE = {"a100": 8, "h100": 8, "b200": 8, "gb200": 4}


def name(line: Printed) -> str:
    return f"{line.workload}-{line.size}-{line.gpu}-{line.dtype}-{line.gpus}{'-strong' if line.strong else ''}"


def row_of(line: Printed) -> tuple[Size, Row]:
    size = WORKLOADS[line.workload].sizes[line.size]
    (row,) = (
        row
        for row in size.rows
        if row.fits(line.gpu, line.dtype)
        and row.strong_scaling == line.strong
        and line.gpus in row.scales.counts
    )
    return size, row


@pytest.mark.parametrize("line", PUBLISHED, ids=name)
def test_a_row_is_the_published_one(line: Printed) -> None:
    size, row = row_of(line)
    assert (row.layers or size.trained_model.layers) == line.layers
    assert (row.tp, row.pp, row.cp, row.vp, row.mbs) == (
        line.tp,
        line.pp,
        line.cp,
        line.vp,
        line.mbs,
    )
    assert row.ep == 1
    assert row.batch(line.gpus) == line.gbs


@pytest.mark.parametrize("line", PUBLISHED, ids=name)
def test_dp_and_ga_follow_by_the_formula_and_are_whole(line: Printed) -> None:
    _, row = row_of(line)
    dp, over = divmod(line.gpus, row.tp * row.pp * row.cp)
    assert (dp, over) == (line.dp, 0)
    assert row.batch(line.gpus) == (row.mbs or 0) * dp * line.ga


@pytest.mark.parametrize("line", PUBLISHED, ids=name)
def test_pipeline_and_nodes_divide(line: Printed) -> None:
    size, row = row_of(line)
    assert (line.layers + size.pipeline_extra) % (row.pp * (row.vp or 1)) == 0
    assert size.trained_model.heads % row.tp == 0
    assert row.vp in (None, 1) or line.ga % row.pp == 0
    assert line.gpus % GPUS_PER_NODE[line.gpu] == 0


UNPUBLISHED = ("smoke", "tiny")


def test_no_row_is_without_a_published_one() -> None:
    ours = {
        (key, size, gpu, dtype, count, row.strong_scaling)
        for key, workload in WORKLOADS.items()
        for size, content in workload.sizes.items()
        if size not in UNPUBLISHED
        for row in content.rows
        for gpu in row.gpu
        for dtype in row.dtype
        for count in row.scales.counts
    }
    assert ours == {
        (line.workload, line.size, line.gpu, line.dtype, line.gpus, line.strong)
        for line in PUBLISHED
    }


# Minutes by workload, and of strong scaling.
LIMITS = {"pretrain_nemotron4": 20, "pretrain_llama3.1": 30, "pretrain_nemotronh": 25}
STRONG_LIMIT = 35


def on(gpu: str) -> list[Printed]:
    return [line for line in PUBLISHED if line.gpu == gpu]


def key_of(line: Printed) -> str:
    return f"pretrain_{line.workload}"


def job_list(lines: list[Printed]) -> dict[str, Any]:
    """A YAML job list with one task for each line."""
    sections: dict[str, Any] = {}
    for line in lines:
        task = {"dtypes": line.dtype, "scales": [line.gpus], "strong_scaling": line.strong}
        sections.setdefault(f"{key_of(line)}_{line.size}", {"tasks": []})["tasks"].append(task)
    return sections


def expected(line: Printed) -> dict[str, Any]:
    """What a job of the line must be."""
    vp = "vpNone" if line.vp is None else f"vp{line.vp}"
    name = (
        f"{key_of(line)}_{line.size}_{line.dtype}_gpus{line.gpus}_tp{line.tp}_pp{line.pp}_cp{line.cp}_{vp}"
        f"_mbs{line.mbs}_gbs{line.gbs}"
    )
    minutes = STRONG_LIMIT if line.strong else LIMITS[key_of(line)]
    return {
        "workload": key_of(line),
        "model_size": line.size,
        "dtype": line.dtype,
        "gpu_type": line.gpu,
        "scale": line.gpus,
        "tp": line.tp,
        "pp": line.pp,
        "cp": line.cp,
        "vp": line.vp,
        "ep": 1,
        "dp": line.dp,
        "mbs": line.mbs,
        "gbs": line.gbs,
        "ga": line.ga,
        "seq_length": 4096 if line.workload == "nemotron4" else 8192,
        "num_layers": line.layers,
        "max_steps": 50,
        "nodes": line.gpus // GPUS_PER_NODE[line.gpu],
        "gpus_per_node": GPUS_PER_NODE[line.gpu],
        "time_limit": f"00:{minutes}:00",
        "image": "nvcr.io/nvidia/nemo:25.04.01",
        "experiment_name": name,
    }


@pytest.mark.parametrize("gpu", ["a100", "h100", "b200", "gb200"])
def test_a_dry_run_of_every_row(
    gpu: str, cluster: Cluster, llmb_here: Command, tmp_path: Path
) -> None:
    lines = on(gpu)
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text(yaml.safe_dump(job_list(lines)))
    done = llmb_here(
        "submit-all", jobs, "--install", cluster("slurm", gpu), "--dry-run", "--format", "json"
    )
    assert done.returncode == 0, done.stderr
    found = {job["experiment_name"]: job for job in json.loads(done.stdout)["jobs"]}
    wanted = {job["experiment_name"]: job for job in map(expected, lines)}
    assert len(wanted) == len(lines)
    assert found.keys() == wanted.keys()
    for name, job in wanted.items():
        assert {word: found[name][word] for word in job} == job


@pytest.mark.parametrize("workload", LIMITS)
def test_list_shows_every_row(workload: str, llmb_here: Command) -> None:
    done = llmb_here("list", "-w", workload, "--framework", "nemo", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = [
        (
            row["size"],
            gpu,
            dtype,
            scale,
            row["scaling"] == "strong",
            row["layers"],
            row["tp"],
            row["pp"],
            row["cp"],
            row["vp"],
            row["mbs"],
            BatchRule.parse(row["gbs"]).batch(scale),
            BatchRule.parse(row["dp"]).batch(scale),
            ga,
        )
        for row in json.loads(done.stdout)
        if row["size"] not in UNPUBLISHED
        for gpu in row["gpu"]
        for dtype in row["dtype"]
        for scale, ga in zip(row["scales"], row["ga"], strict=True)
    ]
    lines = [line for line in PUBLISHED if key_of(line) == workload]
    assert sorted(found, key=str) == sorted(
        (
            (
                line.size,
                line.gpu,
                line.dtype,
                line.gpus,
                line.strong,
                line.layers,
                line.tp,
                line.pp,
                line.cp,
                line.vp,
                line.mbs,
                line.gbs,
                line.dp,
                line.ga,
            )
            for line in lines
        ),
        key=str,
    )


@pytest.mark.parametrize(("gpu", "scale"), [("h100", 20), ("gb200", 130)])
def test_no_row_uses_part_of_a_node(
    gpu: str, scale: int, cluster: Cluster, llmb_here: Command, wording: Callable[..., None]
) -> None:
    done = llmb_here(
        "single",
        "-w",
        "nemotron4",
        "--scale",
        scale,
        "--install",
        cluster("slurm", gpu),
        "-d",
        "--force",
    )
    assert done.returncode == 2
    wording("single", done.stderr)


@pytest.mark.parametrize("scale", [16, 96, 256])
def test_the_proxy_is_for_its_three_scales(
    scale: int, cluster: Cluster, llmb_here: Command, wording: Callable[..., None]
) -> None:
    done = llmb_here(
        "single", "-w", "llama31_405b-proxy", "--scale", scale, "--install", cluster(), "-d"
    )
    assert done.returncode == 2
    wording("single", done.stderr)
