# SPDX-License-Identifier: Apache-2.0
"""Everything that a plugin imports from llmb: hookimpl, the values of hooks, read_workload.

Each name is imported on first use. Every start of llmb-run imports every plugin, so a plugin should
import only ``hookimpl`` at its top, and values inside its hooks.
"""

import ast
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmb.hookspecs import CONTRACT as CONTRACT, hookimpl as hookimpl

__all__: list[str]

# The one list of names. Type checkers run these imports, and export each name because of its "as".
# At run time _find_modules reads them, since running them would import half of llmb at every start.
if TYPE_CHECKING:
    from llmb.contract.cluster import (
        Cluster as Cluster,
        Pace as Pace,
        QueueFullError as QueueFullError,
        UnclearError as UnclearError,
    )
    from llmb.contract.cluster_type import (
        ClusterQuestion as ClusterQuestion,
        ClusterTraits as ClusterTraits,
        ClusterType as ClusterType,
    )
    from llmb.contract.command_context import CommandContext as CommandContext
    from llmb.contract.entry import JobEntry as JobEntry, JobList as JobList
    from llmb.contract.failures import Failure as Failure
    from llmb.contract.finding import Finding as Finding
    from llmb.contract.flops import Flops as Flops
    from llmb.contract.foreign_install import ForeignInstall as ForeignInstall
    from llmb.contract.formats import ParseSpec as ParseSpec
    from llmb.contract.gpus import GpuType as GpuType, processor as processor
    from llmb.contract.job import Job as Job, Training as Training
    from llmb.contract.launch import (
        Command as Command,
        Launch as Launch,
        Program as Program,
        Server as Server,
        Site as Site,
        StagedFile as StagedFile,
        Stamp as Stamp,
        Wrapper as Wrapper,
    )
    from llmb.contract.launch_variable import (
        LaunchVariable as LaunchVariable,
        read_variables as read_variables,
    )
    from llmb.contract.log_settings import LogSettings as LogSettings
    from llmb.contract.metrics import MetricSpec as MetricSpec
    from llmb.contract.model import (
        MambaShape as MambaShape,
        MlaShape as MlaShape,
        ModelShape as ModelShape,
        MoeShape as MoeShape,
        MtpShape as MtpShape,
        WindowShape as WindowShape,
    )
    from llmb.contract.needs import (
        HubAsset as HubAsset,
        Image as Image,
        Needs as Needs,
        Repo as Repo,
        Task as Task,
        Venv as Venv,
    )
    from llmb.contract.nemo_recipe import NemoRecipe as NemoRecipe
    from llmb.contract.parameters import Parameter as Parameter
    from llmb.contract.record import RunRecord as RunRecord
    from llmb.contract.report_section import ReportSection as ReportSection
    from llmb.contract.rows import BatchRule as BatchRule, Row as Row, Scales as Scales
    from llmb.contract.samples import (
        CheckpointEvent as CheckpointEvent,
        Environment as Environment,
        Node as Node,
        Samples as Samples,
        Step as Step,
    )
    from llmb.contract.schema import ClusterConfig as ClusterConfig
    from llmb.contract.settings import Settings as Settings
    from llmb.contract.spec import (
        BridgeModel as BridgeModel,
        Checkpoint as Checkpoint,
        Framework as Framework,
        ImageRelease as ImageRelease,
        SampleLog as SampleLog,
        Size as Size,
        Workload as Workload,
        read_workload as read_workload,
    )
    from llmb.contract.state import JobState as JobState
    from llmb.core.addresses import name_fault as name_fault, url_fault as url_fault
    from llmb.core.digits import in_enough_digits as in_enough_digits
    from llmb.core.names import suggest as suggest
    from llmb.core.secrets import SECRETS_FILE as SECRETS_FILE, is_secret_name as is_secret_name
    from llmb.core.tables import Column as Column
    from llmb.core.units import base_unit as base_unit
    from llmb.errors import (
        Fault as Fault,
        KeyFaultError as KeyFaultError,
        LlmbError as LlmbError,
        UsageError as UsageError,
        as_fault as as_fault,
    )
    from llmb.kit.beside import beside as beside
    from llmb.kit.checks import preview_stamp as preview_stamp
    from llmb.kit.cluster_kit import (
        find_secrets as find_secrets,
        job_environment as job_environment,
        launch_faults as launch_faults,
        programs_folder as programs_folder,
        stage_programs as stage_programs,
    )
    from llmb.kit.command_kit import (
        expand_nodes as expand_nodes,
        fold_nodes as fold_nodes,
        hold_lock as hold_lock,
        parse_yaml as parse_yaml,
        read_nodes as read_nodes,
        read_yaml as read_yaml,
        render_table as render_table,
        say as say,
        write_file as write_file,
    )
    from llmb.kit.http_kit import (
        TryAgainError as TryAgainError,
        connection_fault as connection_fault,
        connection_may_recover as connection_may_recover,
        http_client as http_client,
        retry_after as retry_after,
        with_retries as with_retries,
    )
    from llmb.kit.node_script import (
        job_by_files as job_by_files,
        node_script as node_script,
        state_by_files as state_by_files,
    )
    from llmb.kit.seen_state import seen_state as seen_state
else:

    def __getattr__(name: str) -> Any:
        modules = _find_modules()
        if name == "__all__":
            return ["CONTRACT", "hookimpl", *modules]
        if name not in modules:
            raise AttributeError(f"module 'llmb.api' has no attribute '{name}'")
        value = getattr(import_module(modules[name]), name)
        globals()[name] = value
        return value


@cache
def _find_modules() -> dict[str, str]:
    """Return the module of each name that is imported above for type checkers."""
    statements = ast.parse(Path(__file__).read_bytes()).body
    for_types = next(statement for statement in statements if isinstance(statement, ast.If))
    return {
        alias.name: statement.module
        for statement in for_types.body
        if isinstance(statement, ast.ImportFrom) and statement.module
        for alias in statement.names
    }
