# SPDX-License-Identifier: Apache-2.0
"""Nemotron-H pretraining as an llmb workload; its sizes and rows stand in workload.yaml."""

from pathlib import Path

from llmb import api


@api.hookimpl
def llmb_workload() -> "api.Workload":
    """Nemotron-H 56b, and a tiny one for any machine."""
    return api.read_workload(Path(__file__).with_name("workload.yaml"))
