# SPDX-License-Identifier: Apache-2.0
"""From jobs to recorded, submitted runs; a dry run stops before the first effect and shows the same values."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llmb import files
from llmb.clusters.base import Cluster
from llmb.config import ClusterConfig
from llmb.errors import Fault, LlmbError, PreflightError
from llmb.job import Job
from llmb.launch import PREVIEW_ID, PREVIEW_TIMESTAMP, Launch, Stamp
from llmb.loader import Plugins
from llmb.plan import Plan
from llmb.process import ProcessId
from llmb.runs import record, store
from llmb.runs.record import RunRecord
from llmb.site import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A job with its launch, None where nothing is built yet that could launch it on this cluster type."""

    job: Job
    launch: Launch | None


def site_of(config: ClusterConfig, job: Job) -> Site:
    """The cluster as a hook sees it for this job."""
    return Site(
        cluster_type=config.cluster_type,
        gpu_type=config.rows_for(job.gpu_type),
        gpus_per_node=job.gpus_per_node,
        node_architecture=config.install.node_architecture,
        install=config.llmb_install,
        container=job.image is not None,
        venv=config.workloads.of(job.workload).venv_path,
        environment=job.env,
    )


def prepare(plan: Plan, plugins: Plugins, config: ClusterConfig) -> tuple[list[Prepared], list[Fault]]:
    """The launch of each job, and what stands in the way of those that have none. Pure."""
    workloads = plugins.workloads()
    prepared, faults = [], []
    for job, place in zip(plan.jobs, plan.places, strict=True):
        try:
            launch = plugins.launch(workloads[job.workload], job, site_of(config, job))
        except LlmbError as error:
            faults.append(Fault(place=place, message=error.message, hint=error.hint))
            continue
        prepared.append(Prepared(job=job, launch=launch))
    return prepared, list(dict.fromkeys(faults))


def preview(item: Prepared, cluster: Cluster | None, config: ClusterConfig) -> str | None:
    """The script that would be sent, with placeholders for what only a submission knows."""
    if cluster is None or item.launch is None:
        return None
    name = item.launch.name
    directory = config.experiments(item.job.workload) / name / f"{name}_{PREVIEW_TIMESTAMP}"
    stamp = Stamp(id=PREVIEW_ID, timestamp=PREVIEW_TIMESTAMP, directory=str(directory))
    return cluster.render(item.launch, stamp)


def check(items: Sequence[Prepared], cluster: Cluster) -> None:
    """Raise PreflightError with all that stands in the way of a submission."""
    faults = cluster.preflight([item.launch for item in items if item.launch is not None])
    if faults:
        raise PreflightError(list(dict.fromkeys(faults)))


def submit(
    items: Sequence[Prepared],
    cluster: Cluster,
    config: ClusterConfig,
    version: str,
    *,
    on_submitted: Callable[[RunRecord], None] = lambda run: None,
) -> list[RunRecord]:
    """Record and submit each job in order; the runs. Raises LlmbError at the first that the cluster refuses.

    The record is on disk before the cluster hears of the run, so that nothing that runs is unknown.
    """
    runs = []
    for item in items:
        run = _record(item, cluster, config, version)
        run = run.submitted(cluster.submit(run))
        record.save(run)
        on_submitted(run)
        runs.append(run)
    return runs


def _record(item: Prepared, cluster: Cluster, config: ClusterConfig, version: str) -> RunRecord:
    if item.launch is None:
        raise LlmbError(
            f"{item.job.experiment_name}: no plugin says how it is launched on cluster type {config.cluster_type}",
            hint="--dry-run shows its numbers",
        )
    launch = item.launch
    now = int(time.time())
    stamp = store.new_directory(config.experiments(item.job.workload), launch.name, now)
    run = RunRecord(
        id=stamp.id, created=now, llmb_version=version, cluster_type=config.cluster_type, directory=stamp.path,
        job=item.job, launch=launch, script_name=f"launch_{launch.name}", submitter=ProcessId.current(),
    )  # fmt: skip
    record.save(run)
    files.write_text(run.script, cluster.render(launch, stamp))
    return run
