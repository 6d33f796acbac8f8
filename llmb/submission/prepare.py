# SPDX-License-Identifier: Apache-2.0
"""Prepares jobs for a submission: their launches, the script shown by a dry run, the pre-submission checks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from llmb.clusters.base import Cluster
from llmb.clusters.checks import preview_stamp
from llmb.config import ClusterConfig
from llmb.errors import Fault, LlmbError, PreflightError, UsageError, as_fault, collected
from llmb.planning.plan import Plan
from llmb.plugins.loaded import Plugins
from llmb.runs.job import Job
from llmb.runs.launch import Launch, Site

NO_ARGS: Mapping[str, str | bool] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A job with its launch; None where no plugin can launch it on this cluster type."""

    job: Job
    launch: Launch | None


def site_of(config: ClusterConfig, job: Job, *, has_pmix: bool = True) -> Site:
    """The cluster as a hook sees it for this job; ``has_pmix``: whether its Slurm has the plugin pmix."""
    own = config.workloads.of(job.workload)
    slurm = config.slurm if config.traits.sbatch_options else None
    chosen = {"framework": config.install.framework, "bridge_release": config.install.bridge_release}
    return Site(
        cluster_type=config.cluster_type,
        traits=config.traits,
        gpu_type=config.rows_for(job.gpu_type),
        gpus_per_node=job.gpus_per_node,
        node_architecture=config.install.node_architecture,
        install=config.llmb_install,
        container=job.image is not None,
        venv=own.venv_path,
        venvs=own.venvs,
        assets=own.assets,
        repos=own.repos,
        mpi=slurm.mpi_kind(has_pmix=has_pmix) if slurm is not None else None,
        environment=job.env,
        settings={name: value for name, value in chosen.items() if value is not None},
        plugins=config.plugins,
    )


def prepare(
    plan: Plan,
    plugins: Plugins,
    config: ClusterConfig,
    slurm_args: Mapping[str, str | bool] = NO_ARGS,
    *,
    has_pmix: bool = True,
) -> tuple[list[Prepared], list[Fault]]:
    """The launch of each job, and a fault for each that has none; ``has_pmix`` as in ``site_of``.

    Raises InputFaults for plugins of the configuration that change every launch and cannot be used.
    """
    workloads = plugins.workloads()
    prepared, faults = [], list[Fault]()
    wrong = plugins.require_settings(config) if config.plugins else {}
    for job, request in zip(plan.jobs, plan.requests, strict=True):
        if own := wrong.get(plugins.offers[job.workload].source):
            faults += own
            continue
        try:
            launch = plugins.launch(workloads[job.workload], job, site_of(config, job, has_pmix=has_pmix))
        except LlmbError as error:
            faults.append(as_fault(error, request.place))
            continue
        if launch is not None and (request.slurm or slurm_args):
            launch = replace(launch, slurm_args={**request.slurm, **slurm_args})
        prepared.append(Prepared(job=job, launch=launch))
    return prepared, list(dict.fromkeys(faults))


def preview(item: Prepared, cluster: Cluster | None, config: ClusterConfig) -> str | None:
    """The script that would be sent, with placeholders for what only a submission knows."""
    if cluster is None or item.launch is None:
        return None
    return cluster.render(item.launch, preview_stamp(item.launch, config, item.job.workload))


def check(items: Sequence[Prepared], cluster: Cluster) -> None:
    """Run the pre-submission checks. Raises PreflightError with every fault."""
    faults = cluster.preflight([item.launch for item in items if item.launch is not None])
    if faults:
        raise PreflightError(list(dict.fromkeys(faults)))


def launches_of(items: Sequence[Prepared], config: ClusterConfig) -> list[Launch]:
    """The launches of these jobs. Raises PreflightError with every job that no plugin launches."""
    faults: list[Fault] = []
    launches = []
    for item in items:
        with collected(faults):
            launches.append(launch_of(item, config))
    if faults:
        raise PreflightError(list(dict.fromkeys(faults)))
    return launches


def launch_of(item: Prepared, config: ClusterConfig) -> Launch:
    """The launch of a job. Raises UsageError where no plugin launches it."""
    if item.launch is None:
        how = " in a container" if item.job.image is not None else ""
        fix = "slurm.container: none starts it from a Python environment; " if how and config.slurm else ""
        raise UsageError(
            f"{item.job.experiment_name}: no plugin launches it{how} on cluster type {config.cluster_type}",
            hint=f"{fix}--dry-run shows its numbers",
            code="not-launchable",
            key=item.job.model_size,
        )
    return item.launch
