# SPDX-License-Identifier: Apache-2.0
"""Which jobs: everything that a cluster can run (discovery), and the filters that narrow a list."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from llmb.config import ClusterConfig
from llmb.errors import UsageError
from llmb.runs.job import Job, JobRequest
from llmb.text.names import find_workload_and_size, squash_workload, suggest
from llmb.workload.spec import Size, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The filters of ``submit-all``. Empty tuples and None do not filter; ``workloads`` are keys or key_size."""

    max_scale: int | None = None
    min_scale: bool = False
    scales: tuple[int, ...] = ()
    dtypes: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    repeats: int | None = None
    profile: bool = False
    strong_scaling: bool = False

    @property
    def names_scales(self) -> bool:
        """Whether it says at which scales to run, as discovery needs."""
        return self.max_scale is not None or self.min_scale or bool(self.scales)


def adjust(requests: Iterable[JobRequest], selection: Selection) -> list[JobRequest]:
    """The requests with the repeats and the profiling that the selection asks for."""
    changes: dict[str, object] = {}
    if selection.repeats is not None:
        changes["repeats"] = selection.repeats
    if selection.profile:
        changes |= {"profile": True, "add_profile": False}
    return [replace(request, **changes) for request in requests]  # type: ignore[arg-type]


def narrow(
    jobs: Sequence[Job], selection: Selection, workloads: Mapping[str, Workload]
) -> tuple[tuple[Job, ...], list[str]]:
    """The jobs that pass every filter, and a word on each value that no job has. Raises UsageError if none pass."""
    wanted = [split_name(name, workloads) for name in selection.workloads]
    kept = [
        job
        for job in jobs
        if (not selection.dtypes or job.dtype in selection.dtypes)
        and (not selection.scales or job.scale in selection.scales)
        and (selection.max_scale is None or job.scale <= selection.max_scale)
        and (not wanted or any(_is(job, name) for name in wanted))
    ]
    if selection.min_scale:
        smallest: dict[tuple[str, str, str], int] = {}
        for job in kept:
            smallest[_family(job)] = min(job.scale, smallest.get(_family(job), job.scale))
        kept = [job for job in kept if job.scale == smallest[_family(job)]]
    idle = _idle_filters(jobs, selection, wanted)
    if jobs and not kept:
        why = f": {'; '.join(idle)}" if idle else ""
        hint = "--dry-run without them shows all"
        raise UsageError(f"the filters leave none of the list's {len(jobs)} jobs{why}", hint=hint)
    return tuple(kept), idle


def discover(
    workloads: Mapping[str, Workload], config: ClusterConfig, selection: Selection, gpu_type: str
) -> tuple[list[JobRequest], list[str]]:
    """Everything installed that ``gpu_type`` can run at the selected scales, largest first; and what is left out.

    Raises UsageError when nothing is, or for filters that contradict each other or name nothing that there is.
    """
    _check_filters(workloads, selection)
    wanted = [split_name(name, workloads) for name in selection.workloads]
    requests: list[JobRequest] = []
    offered = {squash_workload(key) for key in workloads}
    strange = [name for name in config.workloads.installed or () if squash_workload(name) not in offered]
    left_out = [f"no plugin offers {name}, which cluster_config.yaml has as installed: left out" for name in strange]
    for key, workload in workloads.items():
        if not config.workloads.has(key):
            left_out += [f"{key} is not installed: left out"] if any(name[0] == key for name in wanted) else []
            continue
        for name, size in workload.on(config.rows_for(gpu_type)).items():
            if wanted and (key, None) not in wanted and (key, name) not in wanted:
                continue
            if not _discovered(size, config.rows_for(gpu_type)) and (key, name) not in wanted:
                continue
            requests += _requests(key, name, size, config.rows_for(gpu_type), selection, left_out)
    left_out += _unmet(requests, selection, wanted, left_out, gpu_type)
    if not requests:
        kind = " with strong scaling" if selection.strong_scaling else ""
        reasons = list(dict.fromkeys(left_out)) or [f"no installed workload{kind} matches on {gpu_type}"]
        before = " " if len(reasons) == 1 else "\n  "
        said = "".join(f"{before}{reason}" for reason in reasons)
        raise UsageError(f"nothing to run:{said}", hint="llmb-run list shows what there is")
    return sorted(requests, key=lambda request: -request.scales[0]), left_out


def _check_filters(workloads: Mapping[str, Workload], selection: Selection) -> None:
    """Raise UsageError for two ways to name the scales, and for a dtype that no workload has."""
    if selection.scales and (selection.min_scale or selection.max_scale is not None):
        other = "--min-scale" if selection.min_scale else "--max-scale"
        raise UsageError(f"--scale names the GPU counts one by one, and {other} others", hint="leave one of them out")
    sizes = [size for workload in workloads.values() for size in workload.sizes.values()]
    known = list(dict.fromkeys(dtype for size in sizes for row in size.rows for dtype in row.dtype))
    for dtype in selection.dtypes:
        if dtype not in known:
            raise UsageError(f"no workload has a dtype '{dtype}'", hint=suggest(dtype, known))


def _unmet(
    requests: Sequence[JobRequest],
    selection: Selection,
    wanted: Sequence[tuple[str, str | None]],
    left_out: Sequence[str],
    gpu_type: str,
) -> list[str]:
    """A word on each workload and dtype that was asked for and of which nothing is among the ``requests``."""
    unmet = []
    for key, size in wanted:
        label = key if size is None else f"{key} {size}"
        said = any(text.startswith(f"{label} ") for text in left_out)
        if not said and not any(item.workload == key and size in (None, item.size) for item in requests):
            unmet.append(f"nothing of {label} matches on {gpu_type}: left out")
    taken = {dtype for item in requests for dtype in item.dtypes}
    return unmet + [f"nothing on {gpu_type} has dtype {dtype}" for dtype in selection.dtypes if dtype not in taken]


def _discovered(size: Size, gpu: str) -> bool:
    return size.discover is None or gpu in size.discover


def _requests(key: str, name: str, size: Size, gpu: str, selection: Selection, left_out: list[str]) -> list[JobRequest]:
    """One request for each dtype and scale of a size."""
    dtypes = [dtype for dtype in size.dtypes(gpu) if not selection.dtypes or dtype in selection.dtypes]
    found = []
    for dtype in dtypes:
        tested = size.scales(gpu, dtype, strong=selection.strong_scaling)
        if not tested:
            continue
        scales = choose_scales(tested, selection, exact=size.exact_scales)
        if not scales:
            left_out.append(f"{key} {name} {dtype} begins at {tested[0]} GPUs: left out")
        found += [
            JobRequest(
                workload=key,
                size=name,
                dtypes=(dtype,),
                scales=(scale,),
                repeats=selection.repeats or 1,
                profile=selection.profile,
                strong_scaling=selection.strong_scaling,
            )
            for scale in scales
        ]
    return found


def choose_scales(tested: Sequence[int], selection: Selection, *, exact: bool) -> list[int]:
    """The scales to run out of the ``tested`` ones, and above them the powers of two up to a maximum.

    ``exact`` leaves it at the tested ones.
    """
    if selection.scales:
        return list(selection.scales)
    most = selection.max_scale
    scales = [scale for scale in tested if most is None or scale <= most]
    if selection.min_scale:
        return scales[:1]
    power = 1 << tested[-1].bit_length()  # the first power of two above the largest
    while most is not None and not exact and power <= most:
        scales.append(power)
        power *= 2
    return scales


def split_name(name: str, workloads: Mapping[str, Workload]) -> tuple[str, str | None]:
    """Key and size (None for all) that a filter names. Raises UsageError."""
    return find_workload_and_size(name, {key: list(workload.sizes) for key, workload in workloads.items()})


def _is(job: Job, name: tuple[str, str | None]) -> bool:
    return job.workload == name[0] and name[1] in (None, job.model_size)


def _family(job: Job) -> tuple[str, str, str]:
    return job.workload, job.model_size, job.dtype


def _idle_filters(jobs: Sequence[Job], selection: Selection, wanted: Sequence[tuple[str, str | None]]) -> list[str]:
    scales, dtypes = {job.scale for job in jobs}, {job.dtype for job in jobs}
    idle = [f"no job of the list has scale {scale}" for scale in selection.scales if scale not in scales]
    idle += [f"no job of the list has dtype {dtype}" for dtype in selection.dtypes if dtype not in dtypes]
    idle += [
        f"no job of the list is of {name[0] if name[1] is None else '_'.join((name[0], name[1]))}"
        for name in wanted
        if not any(_is(job, name) for job in jobs)
    ]
    return idle
