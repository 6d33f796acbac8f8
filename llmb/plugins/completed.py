# SPDX-License-Identifier: Apache-2.0
"""Completes a plugin's launch with what holds for every program: its workload, and what a job says of its container."""

import shlex
from dataclasses import replace

from llmb.errors import UsageError
from llmb.runs.job import Job
from llmb.runs.launch import Launch, Site


def completed(launch: Launch, job: Job, site: Site) -> Launch:
    """``launch`` with the job's workload, GPU type and mounts. Raises UsageError for what nothing would obey."""
    switches = job.switches
    if switches.mounts and launch.image is None:
        raise UsageError(
            f"{job.experiment_name}: 'mounts' is for containers, and its program starts without one",
            hint="leave it out: the program sees the folders of its node",
        )
    if switches.container_writable is not None and site.cluster_type != "slurm":
        raise UsageError(
            f"{job.experiment_name}: 'container_writable' is for Slurm with pyxis, not for {site.cluster_type}",
            hint="leave it out",
        )
    fixes = dict(launch.fixes)
    if switches.image is not None and launch.image is not None:
        chosen = f"{shlex.quote(launch.image)} --install {shlex.quote(str(site.install))}"
        fixes.setdefault(launch.image, f"llmb-install image {chosen}")
    own = [mount for mount in switches.mounts or () if mount not in launch.mounts]
    return replace(
        launch,
        workload=job.workload,
        gpu_type=job.gpu_type,
        mounts=(*own, *launch.mounts),
        vboost=bool(job.vboost),
        container_writable=switches.container_writable,
        fixes=fixes,
    )
