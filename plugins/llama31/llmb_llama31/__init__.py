# SPDX-License-Identifier: Apache-2.0
"""Llama 3.1 pretraining as an llmb workload. Its sizes and rows are in workload.yaml."""

from pathlib import Path

from llmb import api


@api.hookimpl
def llmb_workload() -> "api.Workload":
    """Sizes 8b, 70b, 405b, 405b-proxy, smoke for a first run, and tiny for any machine."""
    return api.read_workload(Path(__file__).with_name("workload.yaml"))
