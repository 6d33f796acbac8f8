# SPDX-License-Identifier: Apache-2.0
"""All that a plugin imports from llmb: the hook marker, the values that hooks take and give, and read_workload.

Each name is loaded when it is first asked for. Every start of llmb-run imports every plugin, so a plugin that imports
its values inside its hooks, and only ``hookimpl`` at its top, costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from llmb.hookspecs import hookimpl

if TYPE_CHECKING:
    from llmb.clusters.base import Cluster, ClusterType, Pace, UnclearError
    from llmb.job import Job
    from llmb.launch import Launch, Program, StagedFile, Stamp, Wrapper
    from llmb.logs.samples import Samples, Step
    from llmb.logs.spec import ParseSpec
    from llmb.model import MambaShape, ModelShape
    from llmb.needs import HubAsset, Image, Needs, Repo, Task, Venv
    from llmb.runs.record import RunRecord
    from llmb.site import Site
    from llmb.state import JobState
    from llmb.workload import BatchRule, Checkpoint, NemoRecipe, Row, Scales, Size, Workload, read_workload

_MODULES = {
    "clusters.base": ("Cluster", "ClusterType", "Pace", "UnclearError"),
    "job": ("Job",),
    "launch": ("Launch", "Program", "StagedFile", "Stamp", "Wrapper"),
    "logs.samples": ("Samples", "Step"),
    "logs.spec": ("ParseSpec",),
    "model": ("MambaShape", "ModelShape"),
    "needs": ("HubAsset", "Image", "Needs", "Repo", "Task", "Venv"),
    "runs.record": ("RunRecord",),
    "site": ("Site",),
    "state": ("JobState",),
    "workload": ("BatchRule", "Checkpoint", "NemoRecipe", "Row", "Scales", "Size", "Workload", "read_workload"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "BatchRule", "Checkpoint", "Cluster", "ClusterType", "HubAsset", "Image", "Job", "JobState", "Launch",
    "MambaShape", "ModelShape", "Needs", "NemoRecipe", "Pace", "ParseSpec", "Program", "Repo", "Row", "RunRecord",
    "Samples", "Scales", "Site", "Size", "StagedFile", "Stamp", "Step", "Task", "UnclearError", "Venv", "Workload",
    "Wrapper", "hookimpl", "read_workload",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'llmb.api' has no attribute '{name}'")
    value = getattr(import_module(f"llmb.{_HOME[name]}"), name)
    globals()[name] = value
    return value
