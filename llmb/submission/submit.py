# SPDX-License-Identifier: Apache-2.0
"""From jobs to recorded, submitted runs; a dry run stops before the first effect and shows the same values."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from llmb.clusters.base import Cluster
from llmb.config import ClusterConfig
from llmb.errors import Fault, LlmbError, PreflightError, UsageError, collected
from llmb.planning.plan import Plan
from llmb.plugins.loader import Plugins
from llmb.runs import store
from llmb.runs.job import Job
from llmb.runs.launch import PREVIEW_ID, PREVIEW_TIMESTAMP, Launch, Stamp
from llmb.runs.record import RunRecord
from llmb.runs.site import Site
from llmb.submission import leftovers
from llmb.submission.dispatch import Handed, begin, hand_over_all, owned
from llmb.system.process import ProcessId

NO_ARGS: Mapping[str, str | bool] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A job with its launch, None where nothing is built yet that could launch it on this cluster type."""

    job: Job
    launch: Launch | None


def site_of(config: ClusterConfig, job: Job, *, has_pmix: bool = True) -> Site:
    """The cluster as a hook sees it for this job; ``has_pmix``: whether its Slurm has that plugin."""
    own = config.workloads.of(job.workload)
    slurm = config.slurm if config.cluster_type == "slurm" else None
    return Site(
        cluster_type=config.cluster_type,
        gpu_type=config.rows_for(job.gpu_type),
        gpus_per_node=job.gpus_per_node,
        node_architecture=config.install.node_architecture,
        install=config.llmb_install,
        container=job.image is not None,
        venv=own.venv_path,
        venvs=own.venvs,
        assets=own.assets,
        mpi=slurm.mpi_kind(has_pmix=has_pmix) if slurm is not None else None,
        environment=job.env,
    )


def prepare(
    plan: Plan,
    plugins: Plugins,
    config: ClusterConfig,
    slurm_args: Mapping[str, str | bool] = NO_ARGS,
    *,
    has_pmix: bool = True,
) -> tuple[list[Prepared], list[Fault]]:
    """The launch of each job, and what stands in the way of those that have none; ``has_pmix`` as ``site_of``. Pure."""
    workloads = plugins.workloads()
    prepared, faults = [], []
    for job, place in zip(plan.jobs, plan.places, strict=True):
        try:
            launch = plugins.launch(workloads[job.workload], job, site_of(config, job, has_pmix=has_pmix))
        except LlmbError as error:
            faults.append(Fault(place=place, message=error.message, hint=error.hint))
            continue
        if launch is not None and slurm_args:
            launch = replace(launch, slurm_args=slurm_args)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a submission: the runs submitted and those refused, in order, and the jobs not tried any more."""

    submitted: tuple[RunRecord, ...] = ()
    refused: tuple[Handed, ...] = ()
    left: tuple[Job, ...] = ()
    interrupted: bool = False


def submit(
    items: Sequence[Prepared],
    cluster: Cluster,
    config: ClusterConfig,
    version: str,
    *,
    keep_going: bool = False,
    on_handed: Callable[[Handed], None] = lambda handed: None,
    on_interrupt: Callable[[], None] = lambda: None,
) -> Outcome:
    """Record and submit the jobs, begun in order, as many at a time as the cluster takes.

    The record is on disk before the cluster hears of the run, so that nothing that runs is unknown. The first refusal
    ends it but with ``keep_going``; so does Ctrl-C; what is under way is finished first. A job whose turn did not come
    leaves nothing behind, nor does one whose record cannot be written. Raises LlmbError, with nothing submitted, for a
    job that nothing launches.
    """
    launches = launches_of(items, config)
    leftovers.clean(
        {config.experiments(item.job.workload) / launch.name for item, launch in zip(items, launches, strict=True)}
    )
    begun: list[RunRecord] = []
    free: dict[str, int] = {}  # the first second that may be free for a run's directory: repeats would try all others

    def new() -> Iterator[RunRecord]:
        for item, launch in zip(items, launches, strict=True):
            begun.append(_new_run(item.job, launch, config, version, after=free.get(launch.name, 0)))
            free[launch.name] = int(begun[-1].stamp.timestamp) + 1
            yield begun[-1]

    def work(run: RunRecord) -> Handed:
        try:
            with owned(run):
                one = begin(run, cluster)
        except LlmbError as error:  # the lock cannot be written
            one = Handed(run=run, error=error)
        if one.error is not None and not one.is_recorded:
            shutil.rmtree(run.directory, ignore_errors=True)
        return one

    handed, interrupted = hand_over_all(
        new(), work, cluster, keep_going=keep_going, on_handed=on_handed, on_interrupt=on_interrupt
    )
    by_id = {one.run.id: one for one in handed}
    in_order = [by_id[run.id] for run in begun]
    return Outcome(
        submitted=tuple(one.run for one in in_order if one.error is None),
        refused=tuple(one for one in in_order if one.error is not None),
        left=tuple(item.job for item in items[len(begun) :]),
        interrupted=interrupted,
    )


def launches_of(items: Sequence[Prepared], config: ClusterConfig) -> list[Launch]:
    """How these jobs run. Raises PreflightError with all of them that no plugin launches."""
    faults: list[Fault] = []
    launches = []
    for item in items:
        with collected(faults):
            launches.append(launch_of(item, config))
    if faults:
        raise PreflightError(list(dict.fromkeys(faults)))
    return launches


def launch_of(item: Prepared, config: ClusterConfig) -> Launch:
    """How a job runs. Raises UsageError where no plugin says so."""
    if item.launch is None:
        how = " in a container" if item.job.image is not None else ""
        fix = "slurm.container: none starts it from an environment of Python; " if how and config.slurm else ""
        raise UsageError(
            f"{item.job.experiment_name}: no plugin says how it is launched{how} on cluster type {config.cluster_type}",
            hint=f"{fix}--dry-run shows its numbers",
        )
    return item.launch


def _new_run(job: Job, launch: Launch, config: ClusterConfig, version: str, *, after: int) -> RunRecord:
    """The record of a new run, with a directory of its own; nothing is in it yet."""
    now = time.time()
    stamp = store.new_directory(config.experiments(job.workload), launch.name, max(int(now), after))
    return RunRecord(
        id=stamp.id,
        created=now,
        llmb_version=version,
        cluster_type=config.cluster_type,
        directory=stamp.path,
        job=job,
        launch=launch,
        script_name=f"launch_{launch.name}",
        submitter=ProcessId.current(),
    )
