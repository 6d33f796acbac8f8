# SPDX-License-Identifier: Apache-2.0
"""A workload plugin; workload.yaml lists what it can run."""

from pathlib import Path

from llmb import api


@api.hookimpl
def llmb_workload() -> "api.Workload":
    return api.read_workload(Path(__file__).with_name("workload.yaml"))
