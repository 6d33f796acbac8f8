# SPDX-License-Identifier: Apache-2.0
"""Nemotron-4 pretraining as an llmb workload; its sizes and rows stand in workload.yaml."""

from pathlib import Path

from llmb import api


@api.hookimpl
def llmb_workload() -> "api.Workload":
    """Nemotron-4 15b and 340b, and a tiny one for any machine."""
    return api.read_workload(Path(__file__).with_name("workload.yaml"))
