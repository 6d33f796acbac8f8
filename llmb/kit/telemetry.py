# SPDX-License-Identifier: Apache-2.0
"""Telemetry: each node has a process beside its ranks that samples the GPUs. Pure."""

from dataclasses import replace

from llmb.contract.launch import Launch
from llmb.kit.beside import beside

NAME = "telemetry"


def with_telemetry(launch: Launch) -> Launch:
    """Return ``launch`` with a process on each node that samples its GPUs while the ranks run."""
    python = f"{launch.venv}/bin/python" if launch.venv is not None else "python3"
    module = ("-S", "-m", "llmb_workloads.telemetry", f"log-{launch.name}.out")
    wrapper = beside(NAME, (python, *module), into_log=True)
    return replace(launch, wrappers=(wrapper, *launch.wrappers))
