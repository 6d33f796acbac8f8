# SPDX-License-Identifier: Apache-2.0
"""Nemotron-4 pretraining as an llmb workload; its sizes and rows stand in workload.yaml."""

from pathlib import Path

from llmb import api


@api.hookimpl
def llmb_workload() -> "api.Workload":
    """Nemotron-4 15b and 340b, smoke for a first run, and a tiny one for any machine."""
    return api.read_workload(Path(__file__).with_name("workload.yaml"))


@api.hookimpl
def llmb_parse(run: "api.RunRecord") -> "api.ParseSpec | None":
    """NeMo 2's lines; those of smoke without their TFLOPS, which NeMo computes for a vocabulary of 256000."""
    if run.job.model_size != "smoke":
        return None
    note = "TFLOPS_per_GPU is omitted: NeMo computes it for a vocabulary of 256000, and smoke has 64000"
    return api.ParseSpec(tflops_valid=False, tflops_note=note)
