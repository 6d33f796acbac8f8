# SPDX-License-Identifier: Apache-2.0
"""What stands in the way of a local run: GPUs, environment of Python, folders, disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from llmb import programs, shell
from llmb.clusters.local import script
from llmb.config import ClusterConfig
from llmb.errors import Fault, LlmbError
from llmb.gpus import CPU
from llmb.launch import Launch

MIN_FREE = 1_000_000_000  # bytes, for logs and profiles
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
    yield from _venv_faults(launch, config)


def faults_of_place(config: ClusterConfig, digest: str) -> Iterator[Fault]:
    """What stands in the way of any run: where runs and programs are written."""
    runs = config.experiments_root or config.llmb_install / "workloads"
    yield from _folder_faults(runs, "experiments_root in cluster_config.yaml names another place")
    staged = programs.path(config.llmb_install, digest)
    if not staged.is_dir():
        yield from _folder_faults(staged, "whoever owns the install directory submits once, or makes it writable")
    free = shutil.disk_usage(_existing(runs)).free
    if free < MIN_FREE:
        yield Fault(message=f"{runs} has {free / 1e9:.1f} GB free, a run needs 1 GB", hint="free some space there")


def _venv_faults(launch: Launch, config: ClusterConfig) -> Iterator[Fault]:
    hint = f"llmb-install add {_workload(launch, config)}"
    if launch.venv is None:
        yield Fault(message=f"{launch.name} has no environment of Python installed", hint=hint)
    elif not os.access(script.python(launch), os.X_OK):
        yield Fault(message=f"{script.python(launch)} is not there", hint=hint)


def _workload(launch: Launch, config: ClusterConfig) -> str:
    keys = [*config.workloads.config, *(config.workloads.installed or ())]
    by_venv = [key for key, own in config.workloads.config.items() if launch.venv and str(own.venv_path) == launch.venv]
    by_name = sorted((key for key in keys if launch.name.startswith(key)), key=len, reverse=True)
    return next(iter([*by_name, *by_venv]), "WORKLOAD")


def _folder_faults(folder: Path, hint: str) -> Iterator[Fault]:
    nearest = _existing(folder)
    if not os.access(nearest, os.W_OK | os.X_OK):
        yield Fault(message=f"{nearest} is not writable", hint=hint)


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())
