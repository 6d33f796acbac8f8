# SPDX-License-Identifier: Apache-2.0
"""Everything that a plugin imports from llmb: the hook marker, the values that hooks take and return, read_workload.

Each name is imported on first use. Every start of llmb-run imports every plugin, so a plugin should import only
``hookimpl`` at its top, and values inside its hooks.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from llmb.hookspecs import CONTRACT, hookimpl

if TYPE_CHECKING:
    from llmb.clusters.base import Cluster, Pace, UnclearError
    from llmb.clusters.kit import job_environment, launch_faults, stage_programs
    from llmb.clusters.node_script import job_by_files, node_script, state_by_files
    from llmb.config.cluster_type import ClusterQuestion, ClusterTraits, ClusterType
    from llmb.config.schema import ClusterConfig
    from llmb.errors import Fault, KeyFaultError, LlmbError, UsageError
    from llmb.logs.formats import ParseSpec
    from llmb.logs.samples import CheckpointEvent, Environment, Node, Samples, Step
    from llmb.runs.command_context import CommandContext
    from llmb.runs.job import Job, Training
    from llmb.runs.launch import Launch, Program, Server, Site, StagedFile, Stamp, Wrapper
    from llmb.runs.record import RunRecord
    from llmb.runs.state import JobState
    from llmb.stats.metrics import MetricSpec
    from llmb.workload.flops import Flops
    from llmb.workload.gpus import GpuType
    from llmb.workload.model import MambaShape, MlaShape, ModelShape, MoeShape
    from llmb.workload.needs import HubAsset, Image, Needs, Repo, Task, Venv
    from llmb.workload.nemo_recipe import NemoRecipe
    from llmb.workload.parameters import Parameter
    from llmb.workload.rows import BatchRule, Row, Scales
    from llmb.workload.spec import Checkpoint, SampleLog, Size, Workload, read_workload

_MODULES = {
    "clusters.base": ("Cluster", "Pace", "UnclearError"),
    "clusters.kit": ("job_environment", "launch_faults", "stage_programs"),
    "clusters.node_script": ("job_by_files", "node_script", "state_by_files"),
    "config.cluster_type": ("ClusterQuestion", "ClusterTraits", "ClusterType"),
    "config.schema": ("ClusterConfig",),
    "errors": ("Fault", "KeyFaultError", "LlmbError", "UsageError"),
    "runs.command_context": ("CommandContext",),
    "runs.job": ("Job", "Training"),
    "runs.launch": ("Launch", "Site", "Program", "Server", "StagedFile", "Stamp", "Wrapper"),
    "logs.samples": ("CheckpointEvent", "Environment", "Node", "Samples", "Step"),
    "logs.formats": ("ParseSpec",),
    "stats.metrics": ("MetricSpec",),
    "workload.flops": ("Flops",),
    "workload.gpus": ("GpuType",),
    "workload.model": ("MambaShape", "MlaShape", "ModelShape", "MoeShape"),
    "workload.parameters": ("Parameter",),
    "workload.needs": ("HubAsset", "Image", "Needs", "Repo", "Task", "Venv"),
    "runs.record": ("RunRecord",),
    "runs.state": ("JobState",),
    "workload.rows": ("BatchRule", "Row", "Scales"),
    "workload.nemo_recipe": ("NemoRecipe",),
    "workload.spec": ("Checkpoint", "SampleLog", "Size", "Workload", "read_workload"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["CONTRACT", "Checkpoint", "Size", "Workload", "hookimpl", "read_workload"]
__all__ += ["BatchRule", "GpuType", "NemoRecipe", "Row", "SampleLog", "Scales"]
__all__ += ["Flops", "MambaShape", "MlaShape", "ModelShape", "MoeShape"]
__all__ += ["HubAsset", "Image", "Needs", "Repo", "Task", "Venv"]
__all__ += ["Job", "Launch", "Program", "Server", "Site", "StagedFile", "Stamp", "Training", "Wrapper"]
__all__ += ["MetricSpec", "Parameter"]
__all__ += ["CheckpointEvent", "Environment", "Node", "ParseSpec", "RunRecord", "Samples", "Step"]
__all__ += ["ClusterConfig", "ClusterQuestion", "ClusterTraits"]
__all__ += ["Cluster", "ClusterType", "JobState", "Pace", "UnclearError"]
__all__ += ["CommandContext"]
__all__ += ["job_by_files", "job_environment", "launch_faults", "node_script", "stage_programs", "state_by_files"]
__all__ += ["Fault", "KeyFaultError", "LlmbError", "UsageError"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'llmb.api' has no attribute '{name}'")
    value = getattr(import_module(f"llmb.{_HOME[name]}"), name)
    globals()[name] = value
    return value
