# SPDX-License-Identifier: Apache-2.0
"""GPT-OSS pretraining as an llmb workload. Its rows are in bridge.yaml."""

from pathlib import Path

from llmb import api


@api.hookimpl
def llmb_workload() -> "api.Workload":
    """Mixtures of experts. Size 30b-a3b trains on one node."""
    return api.read_workload(Path(__file__).with_name("workload.yaml"))
