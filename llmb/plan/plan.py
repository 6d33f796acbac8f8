# SPDX-License-Identifier: Apache-2.0
"""From requests to jobs: resolves names, expands combinations, collects every fault. Pure."""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from llmb.contract.job import Job, JobRequest
from llmb.contract.schema import ClusterConfig
from llmb.contract.settings import NOTHING, Settings
from llmb.contract.spec import Workload
from llmb.contract.switches import given_switches, merged
from llmb.core.names import find_size, find_workload_and_size, size_unknown
from llmb.errors import Fault, UsageError
from llmb.plan import framework, request_faults
from llmb.plan.bridge_rows import BRIDGE, NEMO, spelled
from llmb.plan.configure import configure, find_row
from llmb.plan.framework import framework_of
from llmb.plan.limits import ClusterLimits
from llmb.plan.request_faults import faults_at
from llmb.plan.rules import TRACE_VARIABLES, profile_window


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The jobs of a list or a set of options, in order, with every fault and warning."""

    jobs: tuple[Job, ...] = ()
    #: The request of each job, in the order of ``jobs``.
    requests: tuple[JobRequest, ...] = ()
    faults: tuple[Fault, ...] = ()
    warnings: tuple[str, ...] = ()
    #: What llmb chose, since neither the user nor the installation did.
    notes: tuple[str, ...] = ()


def make_plan(
    requests: Iterable[JobRequest],
    workloads: Mapping[str, Workload],
    config: ClusterConfig,
    *,
    overrides: Settings = NOTHING,
    gpu_type: str | None = None,
    force: bool = False,
) -> Plan:
    """Return the jobs of all requests, with every fault.

    ``overrides``: the settings of every job, which come before those of its request. ``gpu_type``
    None: the default. ``force`` allows untested scales and checkpoints.
    """
    requests, gpu_type = tuple(requests), gpu_type or config.gpu_type
    profiled = {request.header for request in requests if request.profile or request.add_profile}
    plans = [
        _plan_request(request, workloads, config, overrides, gpu_type, profiled, force=force)
        for request in requests
    ]
    return Plan(
        jobs=tuple(job for plan in plans for job in plan.jobs),
        requests=tuple(request for plan in plans for request in plan.requests),
        faults=tuple(dict.fromkeys(fault for plan in plans for fault in plan.faults)),
        warnings=tuple(dict.fromkeys(warning for plan in plans for warning in plan.warnings)),
        notes=tuple(dict.fromkeys(note for plan in plans for note in plan.notes)),
    )


def _plan_request(
    request: JobRequest,
    workloads: Mapping[str, Workload],
    config: ClusterConfig,
    overrides: Settings,
    gpu_type: str,
    profiled: Collection[str],
    *,
    force: bool,
) -> Plan:
    """Return the jobs of one request, none if it has a fault. All combinations are checked."""
    faults = list(request_faults.own_faults(request, overrides.env, profiled))
    faults += request_faults.slurm_faults(request, config)
    try:
        workload, size = resolve(request, workloads, gpu_type, config.rows_for(gpu_type))
    except UsageError as error:
        return Plan(faults=(*faults, *faults_at(error, request, request.header or request.place)))
    faults += request_faults.wrong_settings(request, workload, size, overrides)
    warnings = [*request_faults.duplicates(request)]
    try:
        chosen = framework_of(request, workload, size, config, gpu_type, overrides)
    except UsageError as error:
        return Plan(
            faults=(*faults, *faults_at(error, request, request.place)), warnings=tuple(warnings)
        )
    jobs: list[Job] = []
    has_fault = bool(faults) or request.faulty
    limits = limits_of(config, gpu_type, workload.key)
    for settings, repeats in _settings_of(request, chosen, size, limits, overrides):
        try:
            job, unusual = configure(settings, chosen.workload, limits, force=force)
        except UsageError as error:
            faults += faults_at(error, request, request.place)
            continue
        if not has_fault:
            jobs += [
                job if repeat == 1 else replace(job, repeat=repeat)
                for repeat in range(1, repeats + 1)
            ]
            place = request.places.get(settings.scale, request.place)
            warnings += [f"{place}: {text}" if place else text for text in unusual]
    return Plan(
        jobs=tuple(jobs),
        requests=(request,) * len(jobs),
        faults=tuple(faults),
        warnings=tuple(warnings),
        notes=(chosen.note,) if chosen.note is not None and jobs else (),
    )


def resolve(
    request: JobRequest, workloads: Mapping[str, Workload], gpu_type: str, rows: str | None = None
) -> tuple[Workload, str]:
    """The workload and the size that a request names, or the size's proxy. Raises UsageError.

    ``rows`` is the known type whose rows apply to ``gpu_type`` (None: its own). Hints offer what
    runs on it.
    """
    sizes = {key: list(workload.sizes) for key, workload in workloads.items()}

    def here(key: str) -> list[str]:
        return framework.sizes_on(workloads[key], rows or gpu_type)

    key, size = find_workload_and_size(request.workload, sizes, on=gpu_type, usable_sizes=here)
    if request.size is None:
        if size is None and request.place and len(workloads[key].sizes) > 1:
            hint = f"write one of {', '.join(f'{key}_{name}' for name in workloads[key].sizes)}"
            raise UsageError(
                f"'{request.workload}' has no size", hint=hint, code="size-missing", key="size"
            )
        size = size or workloads[key].default_size
    else:
        named, size = size, find_size(request.size, workloads[key].sizes) or ""
        if size and named not in (None, size):
            message = (
                f"'{request.workload}' names the size {named}, but the size {size} is given too"
            )
            raise UsageError(
                message, hint="omit one of them", code="size-conflict", key="size", value=size
            )
    workload = workloads[key]
    if not size:
        error = size_unknown(key, str(request.size), here(key), on=gpu_type)
        error.key = "size"
        raise error
    if not request.proxy:
        return workload, size
    proxy = workload.sizes[size].proxy
    if proxy is None:
        raise UsageError(
            f"{key} {size} has no proxy", hint="omit 'proxy'", code="no-proxy", key="proxy"
        )
    return workload, proxy


def only_gpu_type(
    request: JobRequest, workloads: Mapping[str, Workload], config: ClusterConfig
) -> tuple[str, str, str] | None:
    """Return workload, size and their only GPU type of the cluster, None if that is default."""
    try:
        workload, size = resolve(
            request, workloads, config.gpu_type, config.rows_for(config.gpu_type)
        )
    except UsageError:  # the plan reports it, with every other fault
        return None
    types = dict.fromkeys([config.gpu_type, *config.gpu_types])
    able = [name for name in types if _runs_on(request, workload, size, config.rows_for(name))]
    return (workload.key, size, able[0]) if len(able) == 1 and able[0] != config.gpu_type else None


def _runs_on(request: JobRequest, workload: Workload, size: str, gpu: str) -> bool:
    has_nemo = bool(workload.sizes[size].dtypes(gpu)) and request.framework != BRIDGE
    has_bridge = request.framework != NEMO and bool(framework.releases_of(workload, size, gpu))
    return has_nemo or has_bridge


def measures_too(
    request: JobRequest, workloads: Mapping[str, Workload], config: ClusterConfig, gpu_type: str
) -> bool:
    """Return True if ENABLE_PROFILE gave a measured job too in this configuration's release."""
    if gpu_type not in (config.gpu_type, *config.gpu_types):
        return False
    rows = config.rows_for(gpu_type)
    try:
        workload, name = resolve(request, workloads, gpu_type, rows)
        if framework_of(request, workload, name, config, gpu_type).name == BRIDGE:
            return False
    except UsageError:  # the plan reports it, with every other fault
        return False
    size, dtype = workload.sizes[name], next(iter(request.dtypes), workload.default_dtype)
    row = find_row(size, rows, dtype, request.scales[0], strong=False)
    release = row.release(request.scales[0]) if row is not None else None
    window = profile_window(workload, size, release, size.max_steps or workload.max_steps)
    return window is not None and window.measured_too


def limits_of(config: ClusterConfig, gpu_type: str, workload: str) -> ClusterLimits:
    """The properties of the cluster that a job of ``workload`` depends on."""
    traits = config.traits
    options = config.slurm if traits.sbatch_options else None
    return ClusterLimits(
        gpu_type=gpu_type,
        rows=config.rows_for(gpu_type),
        gpus_per_node=config.gpu(gpu_type).gpus_per_node,
        requested=config.requested_gpus(gpu_type),
        one_machine=traits.one_machine,
        needs_image=traits.uses_images,
        sets_vboost=traits.sets_vboost,
        time_limit=options.time_limit if options is not None else None,
        environment={**config.environment, **config.workloads.of(workload).environment},
    )


def _settings_of(
    request: JobRequest,
    chosen: framework.Framework,
    size: str,
    limits: ClusterLimits,
    overrides: Settings,
) -> Iterator[tuple[Settings, int]]:
    """Yield every combination of a request with its repeats, and the profiled one.

    Combinations are of dtypes, scales and values of parameters.
    """
    workload = chosen.workload
    supported = workload.sizes[size].dtypes(limits.rows)
    default = (
        workload.default_dtype
        if workload.default_dtype in supported or not supported
        else supported[0]
    )
    params = {**request.params, **{name: (value,) for name, value in overrides.params.items()}}
    swept, switches = request_faults.applicable(
        workload, params, merged((request.switches, overrides))
    )
    parameters = {
        **request.parameters,
        **{name: (value,) for name, value in overrides.parameters.items()},
    }
    parameters = {
        name: values for name, values in parameters.items() if name in workload.parameters_of(size)
    }
    dotted = {**request.dotted, **{name: (value,) for name, value in overrides.dotted.items()}}
    # overrides a cluster's NCCL_DEBUG, which may silence it
    traced = TRACE_VARIABLES if switches.nccl_trace else {}
    common: dict[str, Any] = {
        **given_switches(switches),
        "workload": workload.key,
        "model_size": size,
        "framework": chosen.name,
        "release": chosen.release,
        "env": {**request.env, **traced, **overrides.env},
        "profile": request.profile and workload.is_training,
    }
    for dtype, scale in itertools.product(request.dtypes or (default,), request.scales):
        for values, texts, own in itertools.product(
            itertools.product(*swept.values()),
            itertools.product(*parameters.values()),
            itertools.product(*dotted.values()),
        ):
            settings = Settings(
                **common | dict(zip(swept, values, strict=True)),
                dtype=spelled(dtype, supported) if chosen.name == BRIDGE else dtype,
                scale=scale,
                parameters=dict(zip(parameters, texts, strict=True)),
                dotted=dict(zip(dotted, own, strict=True)),
            )
            yield settings, request.repeats
            if request.add_profile and workload.is_training:
                yield replace(settings, profile=True), 1
