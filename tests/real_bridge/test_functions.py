# SPDX-License-Identifier: Apache-2.0
"""The recorded functions are those of the library, and one of them trains a stranger's model."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.bridge.bridge_recipe import recipe
from llmb.builtin.bridge.bridge_rows import table_of
from llmb.builtin.bridge.framework import framework
from llmb.builtin.bridge.functions import FILE
from llmb.builtin.nvidia_images import releases
from llmb.contract.spec import read_workload

HERE = Path(__file__).parent
WORKLOAD = """\
key: pretrain_acme
title: Acme
bridge: {function: "megatron.bridge.recipes.llama:llama3_8b_pretrain_config", release: "%s"}
sizes:
  8b:
    model: {architecture: llama, layers: 32, hidden: 4096, ffn: 14336, heads: 32, kv_groups: 8,
            gated: true, vocab: 128256, seq_length: 4096}
    rows: [{gpu: h100, dtype: [bf16, fp8_cs], scales: 16, tp: 2, cp: 2, mbs: 1, gbs: 4N}]
"""


def test_the_recorded_functions_are_those_of_the_library(
    run_bridge: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = run_bridge("0.6.0", HERE / "functions.py", tmp_path / "found.txt", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "found.txt").read_text("utf-8") == FILE.read_text("utf-8")


@pytest.mark.parametrize("dtype", ["bf16", "fp8_cs"])
def test_a_model_of_workload_yaml_is_built_with_its_row(
    version: str, dtype: str, build: Any, planned_job: Any, tmp_path: Path
) -> None:
    release = next(name for name, known in releases().items() if known.bridge == version)
    file = tmp_path / "workload.yaml"
    file.write_text(WORKLOAD % release)
    workload = read_workload(file)
    size = table_of(workload).sizes["8b"]
    (row,) = size.rows[release]
    job = planned_job(
        framework().of_release(workload, release),
        "8b",
        row,
        gpu="h100",
        dtype=dtype,
        scale=16,
        release=release,
    )
    made = recipe(job, size, row, releases()[release], "h100")
    found = build("ours", version, {"acme": {"recipe": made, "gpu": "h100", "gpus": 16}})["acme"]
    assert found["invalid"] is None
    leaves = found["leaves"]
    assert {
        "model.tensor_model_parallel_size": "2",
        "model.context_parallel_size": "2",
        "model.seq_length": "4096",
        "train.global_batch_size": "64",
        "mixed_precision.fp8": "None" if dtype == "bf16" else "'hybrid'",
    }.items() <= leaves.items()
