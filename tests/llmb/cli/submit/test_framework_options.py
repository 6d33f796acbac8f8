# SPDX-License-Identifier: Apache-2.0
"""--framework, --release and dotted settings: what a dry run and `list` print, and what is
refused.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.core.files import write_folder

Command = Callable[..., "subprocess.CompletedProcess[str]"]
SINGLE = (
    "single",
    "-w",
    "llama3.1",
    "-s",
    "70b",
    "--scale",
    "64",
    "--dry-run",
    "--format",
    "json",
    "--install",
)


def job(llmb: Command, install: Path, *more: str) -> dict[str, Any]:
    done = llmb(*SINGLE, install, *more)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["jobs"]
    return dict(found)


def test_a_dry_run_has_the_framework(llmb_here: Command, cluster: Callable[..., Path]) -> None:
    install = cluster()
    found = job(llmb_here, install)
    assert found["framework"] == "nemo"
    assert not {"release", "rows_of", "dotted"} & {*found}
    words = ("--framework", "bridge", "--set", "optimizer.lr=1e-4", "--set", "model.recompute=null")
    found = job(llmb_here, install, *words, "--set", "max_steps=20")
    assert (found["framework"], found["release"], found["dtype"]) == ("bridge", "26.08", "fp8_cs")
    assert found["dotted"] == {"optimizer.lr": 1e-4, "model.recompute": None}
    assert (found["max_steps"], "rows_of" in found) == (20, False)


def test_a_table_has_the_framework_of_each_job(
    llmb_here: Command, cluster: Callable[..., Path], tmp_path: Path
) -> None:
    listed = tmp_path / "list.yaml"
    listed.write_text(
        "pretrain_llama3.1_70b:\n  scales: 64\n  dtypes: bf16\n  tasks:\n    - {}\n"
        "    - {framework: bridge}\n"
    )
    done = llmb_here("submit-all", listed, "-d", "--format", "md", "--install", cluster())
    head, _, *rows = [line.split("|") for line in done.stdout.splitlines() if line.startswith("|")]
    column = [cell.strip() for cell in head].index("Framework")
    assert [row[column].strip() for row in rows] == ["nemo", "bridge 26.08"]


def test_like_is_in_the_job(llmb_here: Command, cluster: Callable[..., Path]) -> None:
    install = cluster(gpu_type="h200", gpu_types={"h200": {"like": "h100"}})
    assert job(llmb_here, install, "--release", "26.02.01")["rows_of"] == "h100"


def test_a_list_selects_frameworks(
    llmb_here: Command, cluster: Callable[..., Path], tmp_path: Path
) -> None:
    listed = tmp_path / "jobs.yaml"
    listed.write_text(
        "pretrain_llama3.1_70b:\n  scales: [64]\n  tasks:\n    - {framework: nemo, dtypes: fp8}\n  "
        "  - {framework: bridge, dtypes: [fp8_cs, bf16], overrides: {params: {optimizer.lr:"
        " 1.0e-4}}}\n    - {release: '26.02.01'}\n"
    )
    done = llmb_here("submit-all", listed, "--dry-run", "--format", "json", "--install", cluster())
    jobs = json.loads(done.stdout)["jobs"]
    assert [
        (one["dtype"], one.get("framework"), one.get("release"), one.get("dotted")) for one in jobs
    ] == [
        ("fp8", "nemo", None, None),
        ("fp8_cs", "bridge", "26.08", {"optimizer.lr": 1e-4}),
        ("bf16", "bridge", "26.08", {"optimizer.lr": 1e-4}),
        ("fp8_cs", "bridge", "26.02.01", None),
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("--framework", "bidge"),
        ("--release", "26.2"),
        ("--framework", "bridge", "--dtype", "nvfp4"),
        ("--set", "optimizer.lr=1e-4"),
    ],
    ids=lambda words: " ".join(words),
)
def test_what_is_refused(
    words: tuple[str, ...],
    llmb_here: Command,
    cluster: Callable[..., Path],
    wording: Callable[..., None],
) -> None:
    done = llmb_here(*SINGLE, cluster(), *words)
    assert done.returncode == 2
    wording("single", done.stderr)


def test_list_shows_the_rows_of_a_framework(llmb_here: Command) -> None:
    done = llmb_here(
        "list",
        "-w",
        "nemotronh_56b",
        "--framework",
        "bridge",
        "--release",
        "26.02.01",
        "--format",
        "json",
    )
    rows = json.loads(done.stdout)
    assert {gpu for row in rows for gpu in row["gpu"]} == {"h100", "b200", "b300", "gb200", "gb300"}
    assert {(row["framework"], row["release"], *row["dtype"]) for row in rows} == {
        ("bridge", "26.02.01", "fp8_cs")
    }
    assert llmb_here("list", "--framework", "megatron").returncode == 2
    assert llmb_here("list", "--gpu-type", "h10").returncode == 2
    assert llmb_here("list", "--release", "26.2").returncode == 2


def test_a_size_that_its_plugin_launches_has_no_framework(
    llmb_here: Command,
    cluster: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "plugins"
    write_folder(folder, {"own.py": OWN_LAUNCH, "workload.yaml": OWN_TABLE})
    monkeypatch.setenv("LLMB_PLUGINS", str(folder))
    words = ("single", "-w", "own", "--scale", "8", "--dry-run", "--install", cluster())
    done = llmb_here(*words, "--format", "json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["jobs"]
    assert "framework" not in found
    assert "nemo" not in llmb_here(*words).stdout


OWN_LAUNCH = """
from pathlib import Path
from llmb.api import Command, Program, hookimpl, read_workload

@hookimpl
def llmb_workload():
    return read_workload(Path(__file__).with_name("workload.yaml"))

@hookimpl
def llmb_launch():
    return Command(program=Program(argv=("true",)), start="once")
"""
OWN_TABLE = """\
key: own
title: Trains with a program of its own
image: registry.example.com/own/train:1
default_size: a
default_dtype: bf16
sizes:
  a:
    model: {architecture: llama, layers: 2, hidden: 64, ffn: 64, heads: 2, kv_groups: 2, vocab: 64, seq_length: 64}
    rows: [{gpu: h100, dtype: bf16, scales: 8, mbs: 1, gbs: 4N}]
"""
