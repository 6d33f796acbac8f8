# SPDX-License-Identifier: Apache-2.0
"""What may stand in the way of a run on any cluster type: environment of Python, folders, disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from llmb import programs
from llmb.config import ClusterConfig
from llmb.errors import Fault
from llmb.launch import Launch

MIN_FREE = 1_000_000_000  # bytes, for logs and profiles


def faults_of_venv(launch: Launch, config: ClusterConfig) -> Iterator[Fault]:
    """Whether the environment of Python that ``launch`` runs in is there."""
    hint = f"llmb-install add {workload_of(launch, config)}"
    if launch.venv is None:
        yield Fault(message=f"{launch.name} has no environment of Python installed", hint=hint)
    elif not os.access(python := f"{launch.venv}/bin/python", os.X_OK):
        yield Fault(message=f"{python} is not there", hint=hint)


def faults_of_place(config: ClusterConfig, digest: str) -> Iterator[Fault]:
    """What stands in the way of any run: where runs and the programs of that ``digest`` are written."""
    runs = config.experiments_root or config.llmb_install / "workloads"
    yield from _folder_faults(runs, "experiments_root in cluster_config.yaml names another place")
    staged = programs.path(config.llmb_install, digest)
    if not staged.is_dir():
        yield from _folder_faults(staged, "whoever owns the install directory submits once, or makes it writable")
    free = shutil.disk_usage(_existing(runs)).free
    if free < MIN_FREE:
        yield Fault(message=f"{runs} has {free / 1e9:.1f} GB free, a run needs 1 GB", hint="free some space there")


def workload_of(launch: Launch, config: ClusterConfig) -> str:
    """The workload of ``launch`` for a hint, as well as its name and environment tell it."""
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
