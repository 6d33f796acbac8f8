# SPDX-License-Identifier: Apache-2.0
"""The smallest workload plugin. workload.yaml has what it can run, and where."""

from pathlib import Path

from llmb import api


@api.hookimpl
def llmb_workload() -> "api.Workload":
    return api.read_workload(Path(__file__).with_name("workload.yaml"))
