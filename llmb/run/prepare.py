# SPDX-License-Identifier: Apache-2.0
"""Prepare jobs for a submission: launches, the script of a dry run, checks, what can run here."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from llmb.contract.cluster import Cluster
from llmb.contract.entry import JobEntry
from llmb.contract.gpus import CPU
from llmb.contract.job import Job
from llmb.contract.launch import Launch, Site
from llmb.contract.record import PairMember
from llmb.contract.rows import ANY_GPU
from llmb.contract.schema import ClusterConfig
from llmb.contract.settings import Settings
from llmb.contract.software import Software
from llmb.contract.spec import Workload
from llmb.core.values import dataclass
from llmb.errors import Fault, LlmbError, PreflightError, UsageError, as_fault, collected
from llmb.kit import checks
from llmb.kit.checks import preview_stamp
from llmb.kit.telemetry import with_telemetry
from llmb.plan.framework import framework_of
from llmb.plan.images import image_path
from llmb.plan.listing import configurations
from llmb.plan.plan import Plan, make_plan
from llmb.plan.repeats import is_repeat
from llmb.plugins.loaded import Plugins
from llmb.run.named_nodes import KeptResults, NamedNodes, no_results
from llmb.run.software import Finder

NO_ARGS: Mapping[str, str | bool] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A job with its launch."""

    job: Job
    launch: Launch | None  #: None if no plugin can start it on this cluster type
    software: Software | None = None
    pair: PairMember | None = None


def site_of(config: ClusterConfig, job: Job, *, has_pmix: bool = True) -> Site:
    """Return the cluster as a hook sees it for this job.

    ``has_pmix`` is true if its Slurm has the plugin pmix.
    """
    installed = config.workloads.of(job.workload)
    slurm = config.slurm if config.traits.sbatch_options else None
    chosen = {
        "framework": config.install.framework,
        "bridge_release": config.install.bridge_release,
    }
    return Site(
        cluster_type=config.cluster_type,
        traits=config.traits,
        gpu_type=config.rows_for(job.gpu_type),
        gpus_per_node=job.gpus_per_node,
        node_architecture=config.install.node_architecture,
        install=config.llmb_install,
        container=job.image is not None,
        venv=installed.venv_path,
        venvs=installed.venvs,
        assets=installed.assets,
        repos=installed.repos,
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
    kept_results: KeptResults = no_results,
) -> tuple[list[Prepared], list[Fault]]:
    """Return the jobs with their launches, and a fault for each job that has none.

    ``has_pmix`` is as in ``site_of``. ``kept_results`` reads results for plugins that name nodes.
    Raises InputFaults for plugins of the configuration that
    change every launch and cannot be used.
    """
    workloads, finder = plugins.workloads(), Finder(plugins, config)
    names = NamedNodes(plugins, config, kept_results)
    prepared, faults = [], list[Fault]()
    faults_by_source = plugins.require_settings(config) if config.plugins else {}
    # By the names of experiments, the newest job whose repeats have an equal launch.
    shared: dict[str, tuple[Prepared, JobEntry]] = {}
    for job, entry in zip(plan.jobs, plan.entries, strict=True):
        if (known := shared.get(job.experiment_name)) is not None:
            first, first_entry = known
            if first_entry.slurm == entry.slurm and is_repeat(job, first.job):
                prepared.append(replace(first, job=job))
                continue
        if plugin_faults := faults_by_source.get(plugins.offers[job.workload].source):
            faults += plugin_faults
            continue
        try:
            launch = plugins.launch(
                workloads[job.workload], job, site_of(config, job, has_pmix=has_pmix)
            )
            if launch is not None and (entry.slurm or slurm_args):
                options = names.replaced({**entry.slurm, **slurm_args})
                launch = replace(launch, slurm_args=options)
        except LlmbError as error:
            faults.append(as_fault(error, entry.place))
            continue
        if launch is not None and has_telemetry(job, config):
            launch = with_telemetry(launch)
        software = None if launch is None else finder.software_of(job, launch)
        prepared.append(Prepared(job=job, launch=launch, software=software))
        if not plugins.launches_each_repeat(workloads[job.workload], config.plugins):
            shared[job.experiment_name] = prepared[-1], entry
    return prepared, list(dict.fromkeys(faults))


def has_telemetry(job: Job, config: ClusterConfig) -> bool:
    """Return True if the GPUs of a job's nodes are sampled while it runs."""
    chosen = job.switches.telemetry
    enabled = config.telemetry if chosen is None else chosen
    return enabled and config.rows_for(job.gpu_type) != CPU


def preview(item: Prepared, cluster: Cluster | None, config: ClusterConfig) -> str | None:
    """Return the script that would be sent, with placeholders for what only a submission knows."""
    if cluster is None or item.launch is None:
        return None
    return cluster.render(item.launch, preview_stamp(item.launch, config, item.job.workload))


def check(items: Sequence[Prepared], cluster: Cluster) -> None:
    """Run the pre-submission checks. Raises PreflightError with every fault."""
    faults = cluster.preflight([item.launch for item in items if item.launch is not None])
    if faults:
        raise PreflightError(list(dict.fromkeys(faults)))


def launches_of(items: Sequence[Prepared], config: ClusterConfig) -> list[Launch]:
    """Return the launches of these jobs. Raises PreflightError with every job that has none."""
    faults: list[Fault] = []
    launches = []
    for item in items:
        with collected(faults):
            launches.append(launch_of(item, config))
    if faults:
        raise PreflightError(list(dict.fromkeys(faults)))
    return launches


def launch_of(item: Prepared, config: ClusterConfig) -> Launch:
    """Return the launch of a job. Raises UsageError if no plugin launches it."""
    if item.launch is None:
        in_container = " in a container" if item.job.image is not None else ""
        fix = (
            "slurm.container: none starts it from a Python environment; "
            if in_container and config.slurm
            else ""
        )
        raise UsageError(
            f"{item.job.experiment_name}: no plugin launches it{in_container} on cluster type"
            f" {config.cluster_type}",
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
    """A size of a workload and, if it does not run here, the reason."""

    workload: str
    size: str
    dtypes: tuple[str, ...] = ()
    scales: tuple[int, ...] = ()  #: GPUs, of the cluster's GPU type and size
    all_scales: tuple[int, ...] = ()  #: also the ones with more GPUs than a job can have
    reason: str = ""  #: in one to three words
    fault: Fault | None = None  #: the reason in full, with code and fix

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
    """Yield every size of ``workloads`` on the cluster's GPU type.

    ``most_gpus`` is the largest number for one job, None if unknown. ``framework`` and ``release``
    are requested as by a job. Starts no process: whether the scheduler takes a job is known only
    when it is submitted.
    """
    for workload in workloads:
        for size in workload.sizes:
            entry = JobEntry(
                settings=Settings(
                    workload=workload.key,
                    model_size=size,
                    framework=framework or "",
                    release=release,
                )
            )
            yield _tested(entry, workload, size, plugins, config, most_gpus)


def _tested(
    entry: JobEntry,
    workload: Workload,
    size: str,
    plugins: Plugins,
    config: ClusterConfig,
    most_gpus: int | None,
) -> Runnable:
    gpu, settings = config.rows_for(config.gpu_type), entry.settings
    result = partial(Runnable, workload=workload.key, size=size)
    size_rows = [
        row
        for row in configurations(workload, settings.framework or None, settings.release)
        if row["size"] == size
    ]
    gpu_rows = [row for row in size_rows if {gpu, ANY_GPU} & {*row["gpu"]}]
    if not gpu_rows:
        types = dict.fromkeys(name for row in size_rows for name in row["gpu"])
        known_types = f": it runs on {', '.join(types)}" if types else ""
        message = f"no row for {config.gpu_type}{known_types}"
        fault = Fault(message=message, code=NO_ROW, key="gpu_type", value=config.gpu_type)
        return result(reason=f"not on {config.gpu_type}", fault=fault)
    chosen = framework_of(entry, workload, size, config, config.gpu_type)
    rows = [
        row
        for row in gpu_rows
        if (row["framework"], row["release"]) == (chosen.name, chosen.release)
    ] or gpu_rows
    scales = tuple(sorted({count for row in rows for count in row["scales"]}))
    fitting = tuple(count for count in scales if most_gpus is None or count <= most_gpus)
    dtypes = tuple(dict.fromkeys(name for row in rows for name in row["dtype"]))
    result = partial(result, dtypes=dtypes, scales=fitting, all_scales=scales)
    if not config.workloads.has(workload.key):
        hint = f"llmb-install add {workload.key}"
        fault = Fault(
            message=f"{workload.key} is not installed",
            hint=hint,
            code=NOT_INSTALLED,
            key=workload.key,
        )
        return result(reason=_WORDS[NOT_INSTALLED], fault=fault)
    if not fitting:
        message = f"it needs {scales[0]} GPUs, and a job has at most {most_gpus} here"
        fault = Fault(message=message, code=_FEW_GPUS, key="scale", value=scales[0])
        return result(reason=f"needs {scales[0]} GPUs", fault=fault)
    row = next(row for row in rows if fitting[0] in row["scales"])
    entry = entry.with_settings(dtype=row["dtype"][0], scale=fitting[0])
    if (obstacle := _obstacle(entry, plugins, config)) is not None:
        summary = (
            f"needs {fitting[0]} GPUs"
            if obstacle.code == TOO_SMALL
            else _WORDS.get(obstacle.code, "cannot start")
        )
        return result(reason=summary, fault=obstacle)
    return result()


def _obstacle(entry: JobEntry, plugins: Plugins, config: ClusterConfig) -> Fault | None:
    """Return the first fault that keeps the job of ``entry`` from starting here, or None."""
    plan = make_plan([entry], plugins.workloads(), config)
    if plan.faults:
        return plan.faults[0]
    try:
        items, faults = prepare(plan, plugins, config)
        launches = [launch_of(item, config) for item in items]
    except LlmbError as error:
        return as_fault(error)
    return next(
        iter([*faults, *(fault for launch in launches for fault in faults_here(launch, config))]),
        None,
    )


def faults_here(launch: Launch, config: ClusterConfig) -> Iterator[Fault]:
    """Yield the faults that this machine can see: environment, image, GPU memory, files, tokens."""
    yield from _faults_of_files(launch, config)
    if not config.traits.pulls_images:  # else the cluster has them
        yield from checks.faults_of_secrets([launch], os.environ)


def faults_seen(
    launches: Iterable[Launch], cluster: Cluster | None, config: ClusterConfig
) -> Iterable[Fault]:
    """Return the faults of these launches that this machine sees, without their secrets.

    Of launches that need the same, the largest is judged. A cluster with a method
    ``faults_here(launches)`` answers for itself. It must not ask its scheduler.
    """
    kinds: dict[object, Launch] = {}
    for launch in launches:
        image = (launch.image, launch.mounts, launch.container_writable, launch.start)
        kind = (
            launch.workload,
            launch.programs,
            launch.venv,
            launch.packages,
            launch.inputs,
            launch.gpu_memory_gb,
            image,
        )
        other = kinds.setdefault(kind, launch)
        if (launch.nodes, launch.ranks_per_node) > (other.nodes, other.ranks_per_node):
            kinds[kind] = launch
    ask = getattr(cluster, "faults_here", None)
    if ask is None:
        return dict.fromkeys(
            fault for launch in kinds.values() for fault in _faults_of_files(launch, config)
        )
    faults: Iterable[Fault] = ask([*kinds.values()])
    return faults


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
