# SPDX-License-Identifier: Apache-2.0
"""Prepares jobs for a submission: what may run, their launches, the script of a dry run, the pre-submission checks."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from llmb.clusters import checks
from llmb.clusters.base import Cluster
from llmb.clusters.checks import preview_stamp
from llmb.config import ClusterConfig
from llmb.config.images import image_path
from llmb.errors import Fault, LlmbError, PreflightError, UsageError, as_fault, collected
from llmb.planning.framework import framework_of
from llmb.planning.listing import configurations
from llmb.planning.plan import Plan, make_plan
from llmb.plugins.loaded import Plugins
from llmb.runs.job import Job, JobRequest
from llmb.runs.launch import Launch, Site
from llmb.workload.rows import ANY_GPU
from llmb.workload.spec import Workload

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


NOT_INSTALLED, NO_ROW, TOO_SMALL = "not-installed", "gpu-type-without-row", "machine-too-small"
_FEW_GPUS = "too-few-gpus"
# What a table says for the codes of faults.
_WORDS = {
    NOT_INSTALLED: "not installed",
    "image-missing": "image missing",
    "image-not-set": "image missing",
    "venv-not-set": "environment missing",
    "venv-missing": "environment missing",
    "package-missing": "package missing",
    "gpu-memory": "GPU memory",
    "input-missing": "file missing",
    "secret-missing": "token missing",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Runnable:
    """Whether one size of a workload runs here, with which ``dtypes`` and on which ``scales`` (GPU counts).

    The latter are those of the cluster's GPU type and size, also if something else is missing. ``all_scales``: with
    those that have more GPUs than a job can have. If it does not run, ``why`` is the reason in one to three
    words, and ``fault`` has it in full, with code and fix.
    """

    workload: str
    size: str
    dtypes: tuple[str, ...] = ()
    scales: tuple[int, ...] = ()
    all_scales: tuple[int, ...] = ()
    why: str = ""
    fault: Fault | None = None

    @property
    def runs(self) -> bool:
        return self.fault is None


def runnable(
    workloads: Iterable[Workload],
    plugins: Plugins,
    config: ClusterConfig,
    most_gpus: int | None = None,
    *,
    framework: str | None = None,
    release: str | None = None,
) -> Iterator[Runnable]:
    """Every size of ``workloads`` on the cluster's GPU type; ``most_gpus``: those of one job, None where unknown.

    With ``framework`` and ``release`` as a job would ask for them. Starts no process: whether the scheduler takes a job
    is known only when it is submitted.
    """
    for workload in workloads:
        for size in workload.sizes:
            request = JobRequest(workload=workload.key, size=size, framework=framework, release=release)
            yield _tested(request, workload, size, plugins, config, most_gpus)


def _tested(
    request: JobRequest, workload: Workload, size: str, plugins: Plugins, config: ClusterConfig, most_gpus: int | None
) -> Runnable:
    gpu = config.rows_for(config.gpu_type)
    mine = partial(Runnable, workload=workload.key, size=size)
    known = [row for row in configurations(workload, request.framework, request.release) if row["size"] == size]
    own = [row for row in known if {gpu, ANY_GPU} & {*row["gpu"]}]
    if not own:
        types = dict.fromkeys(name for row in known for name in row["gpu"])
        where = f": it runs on {', '.join(types)}" if types else ""
        message = f"no row for {config.gpu_type}{where}"
        fault = Fault(message=message, code=NO_ROW, key="gpu_type", value=config.gpu_type)
        return mine(why=f"not on {config.gpu_type}", fault=fault)
    chosen = framework_of(request, workload, size, config, config.gpu_type)
    rows = [row for row in own if (row["framework"], row["release"]) == (chosen.name, chosen.release)] or own
    scales = tuple(sorted({count for row in rows for count in row["scales"]}))
    fitting = tuple(count for count in scales if most_gpus is None or count <= most_gpus)
    dtypes = tuple(dict.fromkeys(name for row in rows for name in row["dtype"]))
    mine = partial(mine, dtypes=dtypes, scales=fitting, all_scales=scales)
    if not config.workloads.has(workload.key):
        hint = f"llmb-install add {workload.key}"
        fault = Fault(message=f"{workload.key} is not installed", hint=hint, code=NOT_INSTALLED, key=workload.key)
        return mine(why=_WORDS[NOT_INSTALLED], fault=fault)
    if not fitting:
        message = f"it needs {scales[0]} GPUs, and a job has at most {most_gpus} here"
        fault = Fault(message=message, code=_FEW_GPUS, key="scale", value=scales[0])
        return mine(why=f"needs {scales[0]} GPUs", fault=fault)
    row = next(row for row in rows if fitting[0] in row["scales"])
    request = replace(request, dtypes=(row["dtype"][0],), scales=(fitting[0],))
    if (found := _obstacle(request, plugins, config)) is not None:
        why = f"needs {fitting[0]} GPUs" if found.code == TOO_SMALL else _WORDS.get(found.code, "cannot start")
        return mine(why=why, fault=found)
    return mine()


def _obstacle(request: JobRequest, plugins: Plugins, config: ClusterConfig) -> Fault | None:
    """The first fault that keeps the job of ``request`` from starting here; None without one."""
    plan = make_plan([request], plugins.workloads(), config)
    if plan.faults:
        return plan.faults[0]
    try:
        items, faults = prepare(plan, plugins, config)
        launches = [launch_of(item, config) for item in items]
    except LlmbError as error:
        return as_fault(error)
    return next(iter([*faults, *(fault for one in launches for fault in faults_here(one, config))]), None)


def faults_here(launch: Launch, config: ClusterConfig) -> Iterator[Fault]:
    """What a launch lacks that this machine can see: its environment or image, memory of the GPUs, files, tokens."""
    yield from _faults_of_files(launch, config)
    if not config.traits.pulls_images:  # else the cluster has them
        yield from checks.faults_of_secrets([launch], os.environ)


def faults_seen(launches: Iterable[Launch], cluster: Cluster | None, config: ClusterConfig) -> Iterable[Fault]:
    """What these launches lack as far as this machine shows it, without their secrets; like launches are judged once.

    A cluster with a method ``faults_here(launches)`` answers for itself; it must not ask its scheduler.
    """
    kinds: dict[object, Launch] = {}
    for one in launches:
        image = (one.image, one.mounts, one.container_writable, one.start)
        kinds.setdefault(
            (one.workload, one.programs, one.venv, one.packages, one.inputs, one.gpu_memory_gb, image), one
        )
    ask = getattr(cluster, "faults_here", None)
    if ask is None:
        return dict.fromkeys(fault for one in kinds.values() for fault in _faults_of_files(one, config))
    found: Iterable[Fault] = ask([*kinds.values()])
    return found


def _faults_of_files(launch: Launch, config: ClusterConfig) -> Iterator[Fault]:
    yield from checks.faults_of_launch(launch, config)
    if not config.traits.uses_images:
        yield from checks.faults_of_venv(launch, config)
    elif not config.traits.pulls_images:
        path = image_path(launch.image, config) if launch.image is not None else None
        if path is None or not path.exists():
            hint = launch.fixes.get(launch.image or "", checks.install_command(launch, config))
            missing = f"the image {path} does not exist" if path is not None else "it has no image"
            yield Fault(message=missing, hint=hint, code="image-missing", value=str(path))
