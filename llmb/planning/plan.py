# SPDX-License-Identifier: Apache-2.0
"""From requests to jobs: resolves names, expands every combination, collects every fault before anything goes out."""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from llmb.config import ClusterConfig
from llmb.errors import Fault, InputFaults, UsageError
from llmb.planning.configure import Place, Wish, configure
from llmb.planning.modes import TRACE_VARIABLES
from llmb.runs.job import Job, JobRequest
from llmb.text.names import find_size, find_workload_and_size, size_unknown
from llmb.text.typed import KeyFaultError
from llmb.workload.spec import Workload
from llmb.workload.switches import NOTHING, PROFILE_DETAILS, Switches, merged
from llmb.workload.variables import check_name

MOST_REPEATS = 10_000  # of one configuration: more is a slip, and would fill the memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a list or a set of flags comes to: the jobs in order, what is wrong, and what is unusual.

    ``places`` has where each job stands, in the order of ``jobs``.
    """

    jobs: tuple[Job, ...] = ()
    places: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """What the command line adds to every job, over all that a list says."""

    env: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, int] = field(default_factory=dict)
    switches: Switches = NOTHING
    force: bool = False


def make_plan(
    requests: Iterable[JobRequest],
    workloads: Mapping[str, Workload],
    config: ClusterConfig,
    *,
    extra: Extra | None = None,
    gpu_type: str | None = None,
) -> Plan:
    """The jobs of all requests on ``gpu_type`` (the cluster's default where None). Pure; raises nothing."""
    extra = extra or Extra()
    gpu_type = gpu_type or config.gpu_type
    jobs: list[tuple[Job, str]] = []
    faults: dict[Fault, None] = {}
    warnings: dict[str, None] = {}
    requests = tuple(requests)
    profiled = {request.header for request in requests if request.profile or request.add_profile}
    for request in requests:
        is_sound = not request.faulty
        wrong = [*_env_faults({**request.env, **extra.env}, request.place), *_profile_faults(request, profiled)]
        if request.repeats > MOST_REPEATS:
            wrong.append(Fault(place=request.place, message=f"{request.repeats} repeats are more than {MOST_REPEATS}"))
        if wrong:
            faults |= dict.fromkeys(wrong)
            is_sound = False
        try:
            found = resolve(request, workloads, gpu_type, config.rows_for(gpu_type))
        except UsageError as error:
            faults |= dict.fromkeys(_faults(error, request.header or request.place))
            continue
        place = place_of(config, gpu_type, found[0].key)
        warnings |= dict.fromkeys(_twice(request))
        for wish, repeats in _wishes(request, *found, place, extra):
            try:
                job, unusual = configure(wish, place, force=extra.force)
            except UsageError as error:
                faults |= dict.fromkeys(_faults(error, request.place))
                continue
            if not is_sound:
                continue
            jobs += [
                (job if repeat == 1 else replace(job, repeat=repeat), request.place) for repeat in range(1, repeats + 1)
            ]
            where = request.places.get(wish.scale, request.place)
            warnings |= dict.fromkeys(f"{where}: {text}" if where else text for text in unusual)
    return Plan(
        jobs=tuple(job for job, _ in jobs),
        places=tuple(place for _, place in jobs),
        faults=tuple(faults),
        warnings=tuple(warnings),
    )


def resolve(
    request: JobRequest, workloads: Mapping[str, Workload], gpu_type: str, rows: str | None = None
) -> tuple[Workload, str]:
    """The workload and the size that a request names, its proxy where it asks for that. Raises UsageError.

    ``rows`` is the known type whose rows the cluster's ``gpu_type`` takes (None: itself): errors offer what runs there.
    """
    sizes = {key: list(workload.sizes) for key, workload in workloads.items()}
    here = {key: list(workload.on(rows or gpu_type)) for key, workload in workloads.items()}
    key, size = find_workload_and_size(request.workload, sizes, on=gpu_type, here=here)
    if request.size is None:
        if size is None and request.place:
            hint = f"write one of {', '.join(f'{key}_{name}' for name in workloads[key].sizes)}"
            raise UsageError(f"'{request.workload}' names no size", hint=hint)
        size = size or workloads[key].default_size
    else:
        named, size = size, find_size(request.size, workloads[key].sizes) or ""
        if size and named not in (None, size):
            message = f"'{request.workload}' names the size {named}, and the size {size} is given beside it"
            raise UsageError(message, hint="leave one of them out")
    workload = workloads[key]
    if not size:
        raise size_unknown(key, str(request.size), here[key], on=gpu_type)
    if not request.proxy:
        return workload, size
    proxy = workload.sizes[size].proxy
    if proxy is None:
        raise UsageError(f"{key} {size} has no proxy", hint="leave 'proxy' out")
    return workload, proxy


def place_of(config: ClusterConfig, gpu_type: str, workload: str) -> Place:
    """What a job of ``workload`` must know of the cluster."""
    local = config.cluster_type == "local"
    bare = config.slurm is not None and config.slurm.container == "none"
    return Place(
        gpu_type=gpu_type,
        rows=config.rows_for(gpu_type),
        gpus_per_node=config.gpu(gpu_type).gpus_per_node,
        requested=config.requested_gpus(gpu_type),
        one_machine=local,
        needs_image=not local and not bare,
        sets_vboost=config.cluster_type == "slurm",
        time_limit=config.slurm.time_limit if config.slurm is not None and config.cluster_type == "slurm" else None,
        environment={**config.environment, **config.workloads.of(workload).environment},
    )


def _wishes(
    request: JobRequest, workload: Workload, size: str, place: Place, extra: Extra
) -> Iterator[tuple[Wish, int]]:
    """Every combination of a request, dtypes × scales × param values, with its repeats; and the profiled one."""
    supported = workload.sizes[size].dtypes(place.rows)
    default = workload.default_dtype if workload.default_dtype in supported or not supported else supported[0]
    swept = {**request.params, **{name: (value,) for name, value in extra.params.items()}}
    switches = merged((request.switches, extra.switches))
    strong = switches.strong_scaling if switches.strong_scaling is not None else request.strong_scaling
    traced = TRACE_VARIABLES if switches.nccl_trace else {}  # a cluster's own NCCL_DEBUG must not silence the trace
    for dtype, scale in itertools.product(request.dtypes or (default,), request.scales):
        for values in itertools.product(*swept.values()):
            wish = Wish(
                workload=workload,
                size=size,
                dtype=dtype,
                scale=scale,
                params=dict(zip(swept, values, strict=True)),
                env={**request.env, **traced, **extra.env},
                strong_scaling=strong,
                profile=request.profile,
                switches=switches,
                places=request.places,
            )
            yield wish, request.repeats
            if request.add_profile:
                yield replace(wish, profile=True), 1


def _env_faults(env: Mapping[str, str], place: str) -> Iterator[Fault]:
    for name in env:
        try:
            check_name(name)
        except KeyFaultError as error:
            yield Fault(place=place, message=str(error), hint=error.hint)


def _twice(request: JobRequest) -> Iterator[str]:
    """A word on each scale or dtype that is said more than once: its jobs are meant to be repeats, or a slip."""
    said: tuple[tuple[str, tuple[str | int, ...]], ...] = (("scale", request.scales), ("dtype", request.dtypes))
    for what, values in said:
        if len(set(values)) == len(values):
            continue
        for value, times in Counter(values).items():
            place = request.places.get(value, request.place)
            where = f"{place}: " if place else ""
            if times > 1:
                yield f"{where}{what} {value} stands {times} times, and so do its jobs; repeats is for that"


def _profile_faults(request: JobRequest, profiled: Collection[str]) -> Iterator[Fault]:
    """A section may say for all its tasks how to profile, and profile some of them."""
    if request.switches.names_profile and request.header not in profiled:
        said = next(name for name in PROFILE_DETAILS if getattr(request.switches, name) is not None)
        message = f"'{said}' is said of a profile, and nothing is profiled"
        yield Fault(place=request.place, message=message, hint="add profile: true")


def _faults(error: UsageError, place: str) -> list[Fault]:
    if isinstance(error, InputFaults):
        return [fault if fault.place else replace(fault, place=place) for fault in error.faults]
    return [Fault(place=place, message=error.message, hint=error.hint)]
