# SPDX-License-Identifier: Apache-2.0
"""Nemotron-H pretraining as an llmb workload; its sizes and rows stand in workload.yaml."""

from pathlib import Path

from llmb import api


@api.hookimpl
def llmb_workload() -> "api.Workload":
    """Nemotron-H 56b, smoke for a first run, and a tiny one for any machine."""
    return api.read_workload(Path(__file__).with_name("workload.yaml"))


@api.hookimpl
def llmb_parse(run: "api.RunRecord") -> "api.ParseSpec | None":
    """NeMo 2's lines, without their TFLOPS: 2.3 takes the hybrid for a dense transformer, 2.4 its MLP for a gated one.

    The torch program of this machine counts them right.
    """
    if run.cluster_type == "local":
        return None
    note = "TFLOPS_per_GPU is left out: NeMo 2 counts a hybrid's layers wrongly"
    return api.ParseSpec(tflops_valid=False, tflops_note=note)
