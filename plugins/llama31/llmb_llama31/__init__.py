# SPDX-License-Identifier: Apache-2.0
"""Llama 3.1 pretraining as an llmb workload; its sizes and rows stand in workload.yaml."""

from pathlib import Path

from llmb import api


@api.hookimpl
def llmb_workload() -> "api.Workload":
    """Llama 3.1 8b, 70b, 405b and its proxy, smoke for a first run, and a tiny one for any machine."""
    return api.read_workload(Path(__file__).with_name("workload.yaml"))
