# SPDX-License-Identifier: Apache-2.0
"""Launches llmb_workloads.bridge_pretrain: one process for each GPU, as NVIDIA's scripts do."""

import json
from typing import Any

from llmb.builtin import wrappers
from llmb.builtin.bridge import bridge_needs, environment
from llmb.builtin.bridge.bridge_recipe import recipe
from llmb.builtin.bridge.bridge_rows import BridgeRow, BridgeSize, table_of
from llmb.builtin.bridge.functions import check_function
from llmb.builtin.bridge.script_settings import script_settings
from llmb.builtin.nvidia_images import Release, releases
from llmb.contract.job import Job
from llmb.contract.launch import Launch, Program, Site, StagedFile
from llmb.contract.spec import Workload
from llmb.errors import UsageError

RECIPE = "recipe.json"


def launch(workload: Workload, job: Job, site: Site) -> Launch:
    """Launch ``job`` in the image of its release or in its environment. Raises UsageError."""
    size, row, release = _rows(workload, job, site)
    function = size.function_of(row, job.scale, site.gpu_type, job.dtype)
    if function is not None and size.sets_layout:
        check_function(function, release.bridge, f"{job.workload} {job.model_size}")
    config = bridge_needs.config_of(size, site, release)
    scripted = script_settings(
        workload,
        job.release or "",
        size.model,
        gpu=site.gpu_type,
        dtype=job.dtype,
        count=row.count(job.scale),
    )
    values = recipe(job, size, row, release, site.gpu_type, scripted)
    values["hub"] = dict(config.hub)
    values["environment"] |= config.environment
    exported = environment.launcher(site.gpu_type) | dict(config.environment)
    if not release.has_functions:
        # Its launcher exports all of them; from 0.6 on the program sets those that neither a user
        # nor the image set.
        exported = values["environment"]
    venv = None if site.container else bridge_needs.venv_at(site, release)
    loaded = job.switches.load_checkpoint
    folders = (*([loaded] if loaded is not None else []), *config.hub.values())
    return Launch(
        name=job.experiment_name,
        nodes=job.nodes,
        ranks_per_node=job.gpus_per_node,
        time_limit=job.time_limit,
        program=Program(module="llmb_workloads.bridge_pretrain"),
        args=(RECIPE,),
        image=job.image,
        venv=str(venv) if venv is not None else None,
        packages=() if site.container else packages_of(release),
        mounts=(tuple(f"{folder}:{folder}:ro" for folder in folders) if site.container else ()),
        environment={**exported, **job.env},
        secrets=config.secrets,
        wrappers=wrappers.of_job(
            job,
            site,
            venv,
            binds_cores=environment.binds_cores(
                release.bridge, size.model, site.gpu_type, job.dtype
            ),
        ),
        one_rack=True,
        files=(StagedFile(name=RECIPE, text=to_text(values)),),
        inputs=config.inputs,
        fixes=config.fixes,
        gpu_memory_gb=row.memory_gb,
    )


def _rows(workload: Workload, job: Job, site: Site) -> tuple[BridgeSize, BridgeRow, Release]:
    size = table_of(workload).sizes.get(job.model_size)
    row, strong = None, bool(job.switches.strong_scaling)
    if size is not None:
        row = size.row(job.release or "", site.gpu_type, job.dtype, job.scale, strong=strong)
    if size is None or row is None:
        raise UsageError(
            f"{job.experiment_name}: NVIDIA has no configuration of Megatron-Bridge for it on"
            f" {site.gpu_type}",
            hint=f"llmb-run list -w {job.workload}",
            code="row-missing",
            value=site.gpu_type,
        )
    return size, row, releases()[job.release or ""]


def packages_of(release: Release) -> tuple[str, ...]:
    """Return the packages that the environment must have. The program compares exact versions."""
    return f"megatron-bridge>={release.bridge}", f"megatron-core>={release.core}"


def to_text(values: dict[str, Any]) -> str:
    """Return the recipe as JSON with a line for each setting."""
    return json.dumps(values, indent=2) + "\n"
