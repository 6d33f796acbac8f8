# SPDX-License-Identifier: Apache-2.0
"""From entries to jobs: resolves names, expands combinations, collects every fault. Pure."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace

from llmb.contract.entry import JobEntry
from llmb.contract.job import Job
from llmb.contract.rows import find_row
from llmb.contract.schema import ClusterConfig
from llmb.contract.settings import NOTHING, Settings
from llmb.contract.spec import Workload
from llmb.core.names import find_size, find_workload_and_size, size_unknown
from llmb.core.values import dataclass
from llmb.errors import Fault, UsageError
from llmb.plan import entry_faults, framework
from llmb.plan.configure import configure
from llmb.plan.entry_faults import faults_at
from llmb.plan.framework import framework_of
from llmb.plan.limits import ClusterLimits
from llmb.plan.rules import TRACE_VARIABLES, profile_window


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The jobs of a list or a set of options, in order, with every fault and warning."""

    jobs: tuple[Job, ...] = ()
    #: The entry of each job, in the order of ``jobs``.
    entries: tuple[JobEntry, ...] = ()
    faults: tuple[Fault, ...] = ()
    warnings: tuple[str, ...] = ()
    #: What llmb chose, since neither the user nor the installation did.
    notes: tuple[str, ...] = ()


def make_plan(
    entries: Iterable[JobEntry],
    workloads: Mapping[str, Workload],
    config: ClusterConfig,
    *,
    overrides: Settings = NOTHING,
    gpu_type: str | None = None,
    force: bool = False,
) -> Plan:
    """Return the jobs of all entries, with every fault.

    ``overrides``: the settings of every job, which come before those of its entry. ``gpu_type``
    None: the default. ``force`` allows untested scales and checkpoints.
    """
    entries, gpu_type = tuple(entries), gpu_type or config.gpu_type
    profiled = {entry.header for entry in entries if entry.settings.profile or entry.add_profile}
    plans: list[Plan] = []
    planned: dict[Hashable, tuple[JobEntry, Plan]] = {}
    for entry in entries:
        # A list may repeat a task thousands of times: equal jobs share all their values.
        key = entry.header, entry.settings.workload, entry.dtypes, entry.scales, entry.repeats
        earlier = planned.get(key)
        if earlier is not None and replace(earlier[0], place=entry.place) == entry:
            plan = _repeated(earlier[1], entry.place)
        else:
            plan = _plan_entry(entry, workloads, config, overrides, gpu_type, profiled, force=force)
            if not plan.faults and not plan.warnings:  # which name the place of their entry
                planned[key] = entry, plan
        plans.append(plan)
    return Plan(
        jobs=tuple(job for plan in plans for job in plan.jobs),
        entries=tuple(entry for plan in plans for entry in plan.entries),
        faults=tuple(dict.fromkeys(fault for plan in plans for fault in plan.faults)),
        warnings=tuple(dict.fromkeys(warning for plan in plans for warning in plan.warnings)),
        notes=tuple(dict.fromkeys(note for plan in plans for note in plan.notes)),
    )


def _repeated(plan: Plan, place: str) -> Plan:
    """Return ``plan`` for an equal entry at ``place``, with jobs that are objects of their own."""
    entries = tuple(replace(entry, place=place) for entry in plan.entries[:1])
    return replace(plan, jobs=tuple(map(copy, plan.jobs)), entries=entries * len(plan.entries))


def _plan_entry(
    entry: JobEntry,
    workloads: Mapping[str, Workload],
    config: ClusterConfig,
    overrides: Settings,
    gpu_type: str,
    profiled: Collection[str],
    *,
    force: bool,
) -> Plan:
    """Return the jobs of one entry, none if it has a fault. All combinations are checked."""
    faults = list(entry_faults.own_faults(entry, overrides.env, profiled))
    faults += entry_faults.slurm_faults(entry, config)
    try:
        workload, size = resolve(entry, workloads, gpu_type, config.rows_for(gpu_type))
    except UsageError as error:
        return Plan(faults=(*faults, *faults_at(error, entry, entry.header or entry.place)))
    listed_env = entry.settings.env
    entry = entry.overridden(overrides)
    if entry.settings.nccl_trace:  # overrides the list's NCCL_DEBUG, which may silence it
        entry = entry.with_settings(env={**listed_env, **TRACE_VARIABLES, **overrides.env})
    faults += entry_faults.wrong_settings(entry, workload, size)
    warnings = [*entry_faults.duplicates(entry)]
    try:
        chosen = framework_of(entry, workload, size, config, gpu_type)
    except UsageError as error:
        return Plan(
            faults=(*faults, *faults_at(error, entry, entry.place)), warnings=tuple(warnings)
        )
    jobs: list[Job] = []
    has_fault = bool(faults) or entry.faulty
    limits = limits_of(config, gpu_type, workload.key)
    for settings, repeats in _settings_of(entry, chosen, size, limits):
        try:
            job, unusual = configure(settings, chosen.workload, limits, force=force)
        except UsageError as error:
            faults += faults_at(error, entry, entry.place)
            continue
        if not has_fault:
            jobs += [
                job if repeat == 1 else replace(job, repeat=repeat)
                for repeat in range(1, repeats + 1)
            ]
            place = entry.places.get(settings.scale, entry.place)
            warnings += [f"{place}: {text}" if place else text for text in unusual]
    return Plan(
        jobs=tuple(jobs),
        entries=(entry,) * len(jobs),
        faults=tuple(faults),
        warnings=tuple(warnings),
        notes=(chosen.note,) if chosen.note is not None and jobs else (),
    )


def resolve(
    entry: JobEntry, workloads: Mapping[str, Workload], gpu_type: str, rows: str
) -> tuple[Workload, str]:
    """The workload and the size that an entry names, or the size's proxy. Raises UsageError.

    ``rows`` is the known type whose rows apply to ``gpu_type``. Hints offer what
    runs on it.
    """
    sizes = {key: workload.sizes for key, workload in workloads.items()}

    def here(key: str) -> list[str]:
        return framework.sizes_on(workloads[key], rows)

    named_workload, named_size = entry.settings.workload, entry.settings.model_size
    key, size = find_workload_and_size(named_workload, sizes, on=gpu_type, usable_sizes=here)
    if not named_size:
        if size is None and entry.place and len(workloads[key].sizes) > 1:
            hint = f"write one of {', '.join(f'{key}_{name}' for name in workloads[key].sizes)}"
            raise UsageError(
                f"'{named_workload}' has no size", hint=hint, code="size-missing", key="size"
            )
        size = size or workloads[key].default_size
    else:
        named, size = size, find_size(named_size, workloads[key].sizes) or ""
        if size and named not in (None, size):
            message = f"'{named_workload}' names the size {named}, but the size {size} is given too"
            raise UsageError(
                message, hint="omit one of them", code="size-conflict", key="size", value=size
            )
    workload = workloads[key]
    if not size:
        error = size_unknown(key, named_size, here(key), on=gpu_type)
        error.key = "size"
        raise error
    if not entry.proxy:
        return workload, size
    proxy = workload.sizes[size].proxy
    if proxy is None:
        raise UsageError(
            f"{key} {size} has no proxy", hint="omit 'proxy'", code="no-proxy", key="proxy"
        )
    return workload, proxy


def only_gpu_type(
    entry: JobEntry, workloads: Mapping[str, Workload], config: ClusterConfig
) -> tuple[str, str, str] | None:
    """Return workload, size and their only GPU type of the cluster, None if that is default."""
    try:
        workload, size = resolve(
            entry, workloads, config.gpu_type, config.rows_for(config.gpu_type)
        )
    except UsageError:  # the plan reports it, with every other fault
        return None
    types = dict.fromkeys([config.gpu_type, *config.gpu_types])
    able = [name for name in types if _runs_on(entry, workload, size, config.rows_for(name))]
    return (workload.key, size, able[0]) if len(able) == 1 and able[0] != config.gpu_type else None


def _runs_on(entry: JobEntry, workload: Workload, size: str, gpu: str) -> bool:
    name = entry.settings.framework
    if name in ("", workload.framework) and workload.sizes[size].dtypes(gpu):
        return True
    return any(
        name in ("", brought.name) and bool(framework.releases_of(brought, rows, size, gpu))
        for brought, rows in workload.brought()
    )


def measures_too(
    entry: JobEntry, workloads: Mapping[str, Workload], config: ClusterConfig, gpu_type: str
) -> bool:
    """Return True if a launcher's profile gave a measured job too in the release of ``entry``."""
    if gpu_type not in (config.gpu_type, *config.gpu_types):
        return False
    rows = config.rows_for(gpu_type)
    try:
        workload, name = resolve(entry, workloads, gpu_type, rows)
        if framework_of(entry, workload, name, config, gpu_type).name != workload.framework:
            return False
    except UsageError:  # the plan reports it, with every other fault
        return False
    size, dtype = workload.sizes[name], next(iter(entry.dtypes), workload.default_dtype)
    row = find_row(size.rows, rows, dtype, entry.scales[0], strong=False)
    release = row.release(entry.scales[0]) if row is not None else None
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
    entry: JobEntry, chosen: framework.Choice, size: str, limits: ClusterLimits
) -> Iterator[tuple[Settings, int]]:
    """Yield the settings of every combination of an entry with its repeats, and a profiled one."""
    workload = chosen.workload
    supported = workload.sizes[size].dtypes(limits.rows)
    default = (
        workload.default_dtype
        if workload.default_dtype in supported or not supported
        else supported[0]
    )
    entry = entry_faults.applicable(entry, workload, size)
    dtypes = entry.dtypes or (default,)
    entry = replace(entry, sweeps={**entry.sweeps, "dtype": dtypes}).with_settings(
        workload=workload.key,
        model_size=size,
        framework=chosen.name,
        release=chosen.release,
    )
    known = workload.frameworks.get(chosen.name)
    for settings in entry.expand() if entry.scales else ():
        if known is not None and settings.dtype in known.spellings:
            word = known.spelled(
                settings.dtype, supported, workload, size, limits.rows, settings.scale
            )
            settings = replace(settings, dtype=word)
        yield settings, entry.repeats
        if entry.add_profile:
            yield replace(settings, profile=True), 1
