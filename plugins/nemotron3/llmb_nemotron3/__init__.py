# SPDX-License-Identifier: Apache-2.0
"""Nemotron 3 pretraining as an llmb workload. Its rows are in bridge.yaml."""

from pathlib import Path

from llmb import api


@api.hookimpl
def llmb_workload() -> "api.Workload":
    """Hybrids of Mamba-2, attention and experts. Size nano trains on 8 GPUs."""
    return api.read_workload(Path(__file__).with_name("workload.yaml"))
