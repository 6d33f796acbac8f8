# SPDX-License-Identifier: Apache-2.0
"""Launches llmb_workloads.bridge_pretrain: one process for each GPU, as NVIDIA's scripts start it."""

import json
from typing import Any

from llmb.errors import UsageError
from llmb.frameworks import wrappers
from llmb.frameworks.bridge import bridge_needs as needs, environment
from llmb.frameworks.bridge.bridge_recipe import recipe
from llmb.runs.job import Job
from llmb.runs.launch import Launch, Program, Site, StagedFile
from llmb.workload.bridge import BridgeRow, BridgeSize, Release, read_bridge, releases
from llmb.workload.spec import Workload

RECIPE = "recipe.json"


def launch(workload: Workload, job: Job, site: Site) -> Launch:
    """``job`` in the image of its release, or in the installed environment. Raises UsageError."""
    size, row, release = _rows(workload, job, site)
    config = needs.config_of(size, site)
    values = recipe(job, size, row, release, site.gpu_type)
    values["hub"] = dict(config.hub)
    values["environment"] |= config.environment
    exported = environment.launcher(site.gpu_type) | dict(config.environment)
    if release.bridge.startswith("0.3."):
        # Its launcher exports all of them; from 0.6 on the program sets those that neither a user nor the image set.
        exported = values["environment"]
    venv = None if site.container else needs.venv_at(site, release)
    loaded = job.switches.load_checkpoint
    folders = (loaded, config.folder)
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
        mounts=tuple(f"{folder}:{folder}:ro" for folder in folders if folder is not None) if site.container else (),
        environment={**exported, **job.env},
        secrets=config.secrets,
        wrappers=wrappers.of_job(job, site, venv),
        files=(StagedFile(name=RECIPE, text=to_text(values)),),
        inputs=config.inputs,
        fixes=config.fixes,
        gpu_memory_gb=row.memory_gb,
    )


def _rows(workload: Workload, job: Job, site: Site) -> tuple[BridgeSize, BridgeRow, Release]:
    table = read_bridge(workload.bridge) if workload.bridge is not None else None
    size = table.sizes.get(job.model_size) if table is not None else None
    row = size.row(job.release or "", site.gpu_type, job.dtype, job.scale) if size is not None else None
    if size is None or row is None:
        raise UsageError(
            f"{job.experiment_name}: NVIDIA has no configuration of Megatron-Bridge for it on {site.gpu_type}",
            hint=f"llmb-run list -w {job.workload}",
            code="row-missing",
            value=site.gpu_type,
        )
    return size, row, releases()[job.release or ""]


def packages_of(release: Release) -> tuple[str, ...]:
    """What the environment must have, as far as its files say; the program compares the exact versions."""
    return f"megatron-bridge>={release.bridge}", f"megatron-core>={release.core}"


def to_text(values: dict[str, Any]) -> str:
    """The recipe as JSON with a line for each setting."""
    return json.dumps(values, indent=2) + "\n"
