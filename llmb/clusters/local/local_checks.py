# SPDX-License-Identifier: Apache-2.0
"""What stands in the way of a local run: whether this machine has the GPUs that it needs."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from llmb.clusters import checks
from llmb.config import ClusterConfig
from llmb.errors import Fault, LlmbError
from llmb.runs.launch import Launch
from llmb.system import shell
from llmb.workload.gpus import CPU

_GPUS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What there is on this machine for jobs; ``gpus`` None where the jobs are for CPUs."""

    cpus: int
    gpus: int | None


def find(config: ClusterConfig) -> Found:
    """What this machine has."""
    return Found(cpus=count_cpus(), gpus=None if config.rows_for(config.gpu_type) == CPU else count_gpus())


def count_cpus() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def count_gpus() -> int:
    """The GPUs of this machine: what the driver shows, else what nvidia-smi lists."""
    if _GPUS.is_dir():
        return sum(1 for _ in _GPUS.iterdir())
    try:
        listed = shell.run(["nvidia-smi", "-L"], timeout=30)
    except LlmbError:  # no driver here, or one that hangs
        return 0
    return sum(line.startswith("GPU ") for line in listed.out.splitlines())


def faults_of(launch: Launch, config: ClusterConfig, found: Found) -> Iterator[Fault]:
    """What stands in the way of one launch."""
    if launch.nodes != 1:
        yield Fault(
            message=f"{launch.name} needs {launch.nodes} nodes, and a local cluster is one machine",
            hint="choose a smaller scale",
        )
    elif found.gpus is not None and launch.ranks_per_node > found.gpus:
        yield Fault(
            message=f"{launch.name} needs {launch.ranks_per_node} GPUs, and this machine has {found.gpus}",
            hint="choose a smaller scale; nvidia-smi -L lists the GPUs",
        )
    yield from checks.faults_of_launch(launch, config)
    yield from checks.faults_of_venv(launch, config)
