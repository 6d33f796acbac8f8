# SPDX-License-Identifier: Apache-2.0
"""Which sizes of workloads an install directory can run on its cluster, each with the reason if it cannot.

Starts no process: whether the scheduler takes a job is known only when it is submitted.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from llmb.clusters import checks
from llmb.clusters.base import Cluster
from llmb.config import ClusterConfig
from llmb.config.images import image_path
from llmb.errors import Fault, LlmbError, as_fault
from llmb.planning.listing import configurations
from llmb.planning.plan import framework_of, make_plan
from llmb.plugins.loaded import Plugins
from llmb.runs.job import JobRequest
from llmb.runs.launch import Launch
from llmb.submission.prepare import launch_of, prepare
from llmb.workload.rows import ANY_GPU
from llmb.workload.spec import Workload

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
        """Whether it can run."""
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

    With ``framework`` and ``release`` as a job would ask for them.
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
