# SPDX-License-Identifier: Apache-2.0
"""Nemotron-H pretraining as an llmb workload. Its sizes and rows are in workload.yaml."""

from pathlib import Path

from llmb import api

_TORCH = "llmb_workloads.torch_pretrain"


@api.hookimpl
def llmb_workload() -> "api.Workload":
    """Sizes 56b, smoke for a first run, and tiny for any machine."""
    return api.read_workload(Path(__file__).with_name("workload.yaml"))


@api.hookimpl
def llmb_parse(run: "api.RunRecord") -> "api.ParseSpec | None":
    """NeMo 2's step lines without TFLOPS: 2.3 assumes a dense transformer, 2.4 a gated MLP.

    The torch program and Megatron-Bridge compute them correctly.
    """
    if run.launch.program.module == _TORCH or run.job.framework == "bridge":
        return None
    note = "TFLOPS_per_GPU is omitted: NeMo 2 computes it wrongly for hybrid models"
    return api.ParseSpec(tflops_valid=False, tflops_note=note)
