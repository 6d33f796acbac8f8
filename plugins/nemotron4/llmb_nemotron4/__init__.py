# SPDX-License-Identifier: Apache-2.0
"""Nemotron-4 pretraining as an llmb workload. Its sizes and rows are in workload.yaml."""

from pathlib import Path

from llmb import api


@api.hookimpl
def llmb_workload() -> "api.Workload":
    """Sizes 15b, 340b, smoke for a first run, and tiny for any machine."""
    return api.read_workload(Path(__file__).with_name("workload.yaml"))


@api.hookimpl
def llmb_parse(size: str) -> "api.ParseSpec | None":
    """Return NeMo 2's step lines, for smoke without TFLOPS, which NeMo gets for another model."""
    if size != "smoke":
        return None
    note = (
        "TFLOPS_per_GPU is omitted: NeMo computes it for a vocabulary of 256000, and smoke has"
        " 64000"
    )
    return api.ParseSpec(tflops_valid=False, tflops_note=note)
