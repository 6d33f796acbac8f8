# SPDX-License-Identifier: Apache-2.0
"""The filters of job lists and of discovery, and the targets that select a proxy. Pure."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from llmb.contract.entry import JobEntry
from llmb.contract.job import Job
from llmb.contract.schema import ClusterConfig
from llmb.contract.spec import Workload
from llmb.core.names import find_workload_and_size, listed
from llmb.core.values import dataclass
from llmb.errors import UsageError
from llmb.plan.framework import framework_of
from llmb.plan.plan import resolve

Name = tuple[str, str | None]  # a workload's key, and one of its sizes or None for all


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The filters of ``submit-all``. Empty tuples and None select everything."""

    max_scale: int | None = None
    min_scale: bool = False
    scales: tuple[int, ...] = ()
    dtypes: tuple[str, ...] = ()
    #: Keys, or key_size.
    workloads: tuple[str, ...] = ()
    repeats: int | None = None
    profile: bool = False
    strong_scaling: bool = False
    #: No powers of two above the tested scales.
    exact_scales: bool = False
    #: The proxies of sizes alone.
    proxy: bool = False
    #: Skip a scale that a size does not support, unless the size was named: then it is a fault.
    supported: bool = False
    #: In which discovery looks, None for that of the GPU type and the install.
    framework: str | None = None
    #: In which discovery looks, None for that of the ``image`` or the install.
    release: str | None = None
    image: str | None = None

    @property
    def names_scales(self) -> bool:
        return self.max_scale is not None or self.min_scale or bool(self.scales)


def adjust(entries: Iterable[JobEntry], selection: Selection) -> list[JobEntry]:
    """The entries with the repeats, the profiling and the proxies of the selection."""
    changes: dict[str, Any] = {}
    if selection.repeats is not None:
        changes["repeats"] = selection.repeats
    if selection.profile:
        changes["add_profile"] = False
        entries = [entry.with_settings(profile=True) for entry in entries]
    if selection.proxy:
        changes["proxy"] = True
    return [replace(entry, **changes) for entry in entries]


def narrow(
    jobs: Sequence[Job], selection: Selection, workloads: Mapping[str, Workload]
) -> tuple[tuple[Job, ...], list[str]]:
    """Return the jobs that pass every filter, and a warning for each value that no job has.

    Raises UsageError if no job passes.
    """
    selected = [split_name(name, workloads) for name in selection.workloads]
    matches = [
        job
        for job in jobs
        if (
            not selection.dtypes
            or any(_has_dtype(job, dtype, workloads) for dtype in selection.dtypes)
        )
        and (not selection.scales or job.scale in selection.scales)
        and (selection.max_scale is None or job.scale <= selection.max_scale)
        and (not selected or any(_is(job, name) for name in selected))
    ]
    if selection.min_scale:
        smallest: dict[tuple[str, ...], int] = {}
        for job in sorted(matches, key=lambda job: job.scale):
            smallest.setdefault((job.workload, job.model_size, job.dtype, job.framework), job.scale)
        matches = [
            job
            for job in matches
            if job.scale == smallest[job.workload, job.model_size, job.dtype, job.framework]
        ]
    unmatched = _unmatched_in_list(jobs, selection, selected, workloads)
    if jobs and not matches:
        reasons = f": {'; '.join(unmatched)}" if unmatched else ""
        message = f"the filters match none of the list's {len(jobs)} jobs{reasons}"
        raise UsageError(message, hint="--dry-run without them shows all", code="no-job-matches")
    return tuple(matches), unmatched


def _unmatched_in_list(
    jobs: Sequence[Job],
    selection: Selection,
    selected: Sequence[Name],
    workloads: Mapping[str, Workload],
) -> list[str]:
    scales = {job.scale for job in jobs}
    dtypes = {
        dtype
        for dtype in selection.dtypes
        if any(_has_dtype(job, dtype, workloads) for job in jobs)
    }
    unmatched = [
        f"no job of the list has scale {scale}" for scale in selection.scales if scale not in scales
    ]
    unmatched += [
        f"no job of the list has dtype {dtype}" for dtype in selection.dtypes if dtype not in dtypes
    ]
    return unmatched + [
        f"no job of the list is of {name[0] if name[1] is None else '_'.join((name[0], name[1]))}"
        for name in selected
        if not any(_is(job, name) for job in jobs)
    ]


def split_name(name: str, workloads: Mapping[str, Workload]) -> Name:
    """The key and the size (None for all) of a filter's name. Raises UsageError."""
    return find_workload_and_size(
        name, {key: workload.sizes for key, workload in workloads.items()}
    )


def is_dtype(
    named: str, dtype: str, workload: Workload, framework: str, size: str, gpu: str, scale: int
) -> bool:
    """Return True if the filter ``named`` selects ``dtype``, also in another word for that."""
    if named == dtype or framework not in workload.frameworks:
        return named == dtype
    framework_of_name = workload.frameworks[framework]
    return framework_of_name.spelled(named, (dtype,), workload, size, gpu, scale) == dtype


def _has_dtype(job: Job, named: str, workloads: Mapping[str, Workload]) -> bool:
    workload = workloads[job.workload]
    return is_dtype(
        named, job.dtype, workload, job.framework, job.model_size, job.gpu_type, job.scale
    )


def _is(job: Job, name: Name) -> bool:
    return job.workload == name[0] and name[1] in (None, job.model_size)


def with_proxies(
    entries: Iterable[JobEntry],
    workloads: Mapping[str, Workload],
    config: ClusterConfig,
    gpu_type: str,
) -> tuple[tuple[JobEntry, ...], tuple[str, ...]]:
    """Change entries at scales of a proxy alone to the proxy, with a note for each change."""
    changed: list[JobEntry] = []
    notes: dict[str, None] = {}
    for entry in entries:
        scales = _proxy_scales(entry, workloads, config, gpu_type)
        for is_proxy, group in itertools.groupby(entry.scales, scales.__contains__):
            chosen = tuple(group)
            sweeps = {**entry.sweeps, "scale": chosen}
            changed.append(replace(entry, sweeps=sweeps, proxy=entry.proxy or is_proxy))
            if is_proxy:
                workload, size = resolve(
                    changed[-1], workloads, gpu_type, config.rows_for(gpu_type)
                )
                at = listed([str(scale) for scale in chosen])
                source = next(
                    own.proxy_source for own in workload.sizes.values() if own.proxy == size
                )
                words = ", ".join(filter(None, ("with fewer layers", source)))
                notes[
                    f"{workload.key} at {at} GPUs is {size}, {words}; --force trains the whole"
                    " model"
                ] = None
        if not entry.scales:
            changed.append(entry)
    return tuple(changed), tuple(notes)


def _proxy_scales(
    entry: JobEntry, workloads: Mapping[str, Workload], config: ClusterConfig, gpu_type: str
) -> set[int]:
    """Return the scales that the size's proxy was tested at, and the size itself was not."""
    if (
        entry.proxy
        or entry.settings.strong_scaling
        or gpu_type not in (config.gpu_type, *config.gpu_types)
    ):
        return set()
    rows = config.rows_for(gpu_type)
    try:
        workload, name = resolve(entry, workloads, gpu_type, rows)
        if framework_of(entry, workload, name, config, gpu_type).name != workload.framework:
            return set()
    except UsageError:  # the plan reports it, with every other fault
        return set()
    size = workload.sizes[name]
    if size.proxy is None:
        return set()
    dtypes = entry.dtypes or (workload.default_dtype,)
    tested = {scale for dtype in dtypes for scale in size.scales(rows, dtype, strong=False)}
    proxies = [
        set(workload.sizes[size.proxy].scales(rows, dtype, strong=False)) for dtype in dtypes
    ]
    return set.intersection(*proxies).intersection(entry.scales) - tested
