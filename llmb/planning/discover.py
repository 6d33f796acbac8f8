# SPDX-License-Identifier: Apache-2.0
"""Discovery: everything installed that a cluster can run at the selected scales. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from llmb.config import ClusterConfig
from llmb.errors import UsageError
from llmb.planning.framework import Framework, discovered
from llmb.planning.select import Name, Selection, is_dtype, split_name
from llmb.runs.job import JobRequest
from llmb.text.names import squash_workload, suggest
from llmb.workload.bridge import DTYPES
from llmb.workload.spec import Size, Workload
from llmb.workload.switches import NO_SWITCHES, Switches


@dataclass(slots=True)
class _Discovery:
    """The requests found so far, the reasons why others were skipped, and the workloads and sizes of those reasons."""

    requests: list[JobRequest] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    named: set[Name] = field(default_factory=set)

    def skip(self, key: str, size: str | None, reason: str) -> None:
        if reason not in self.skipped:
            self.skipped.append(reason)
        self.named |= {(key, None), (key, size)}


def discover(
    workloads: Mapping[str, Workload], config: ClusterConfig, selection: Selection, gpu_type: str
) -> tuple[list[JobRequest], list[str]]:
    """Everything installed that ``gpu_type`` can run at the selected scales, largest first; and what is skipped, why.

    Raises UsageError where nothing is found, and for filters that contradict each other or match nothing.
    """
    _check_filters(workloads, selection)
    wanted = [split_name(name, workloads) for name in selection.workloads]
    found = _Discovery()
    offered = {squash_workload(key) for key in workloads}
    for name in config.workloads.installed or ():
        if squash_workload(name) not in offered:
            found.skipped.append(f"{name}, installed according to cluster_config.yaml, has no plugin: skipped")
    for workload in workloads.values():
        _discover_workload(found, workload, config, selection, gpu_type, wanted)
    found.skipped += _unmatched(found, selection, wanted, gpu_type)
    if not found.requests:
        kind = " with strong scaling" if selection.strong_scaling else ""
        reasons = list(dict.fromkeys(found.skipped)) or [f"no installed workload{kind} runs on {gpu_type}"]
        before = " " if len(reasons) == 1 else "\n  "
        message = f"nothing to run:{''.join(f'{before}{reason}' for reason in reasons)}"
        raise UsageError(message, hint="llmb-run list shows the workloads", code="nothing-discovered")
    return sorted(found.requests, key=lambda request: -request.scales[0]), found.skipped


def _discover_workload(
    found: _Discovery,
    workload: Workload,
    config: ClusterConfig,
    selection: Selection,
    gpu_type: str,
    wanted: Sequence[Name],
) -> None:
    """Add the requests of all its sizes that are ``wanted``; of none, all are."""
    key, rows = workload.key, config.rows_for(gpu_type)
    named = {name for owner, name in wanted if owner == key}
    if not config.workloads.has(key):
        if named:
            found.skip(key, None, f"{key} is not installed: skipped")
            found.named |= {name for name in wanted if name[0] == key}
        return
    own = discovered(workload, rows, config.install, selection.framework, selection.release)
    if own is None:
        found.skip(key, None, f"{key} has no configuration for Megatron-Bridge on {gpu_type}: skipped")
        return
    proxies = {one.proxy for one in workload.sizes.values() if one.proxy is not None}
    if selection.proxy:  # the size is named, or its proxy
        named |= {workload.sizes[name].proxy for name in named if name is not None and name not in proxies}
    for name, size in own.workload.on(rows).items():
        if wanted and None not in named and name not in named:
            continue
        if selection.profile and not workload.is_training:
            found.skip(key, name, f"{key} trains no model and cannot be profiled: skipped")
            continue
        if selection.proxy and name not in proxies:
            continue
        if (size.discover is None or rows in size.discover) or (key, name) in wanted:
            filters = replace(selection, supported=False) if (key, name) in wanted else selection
            _add_requests(found, own, name, size, rows, filters)


def _check_filters(workloads: Mapping[str, Workload], selection: Selection) -> None:
    """Raise UsageError for two ways to select scales, and for a dtype that no workload has."""
    if selection.scales and (selection.min_scale or selection.max_scale is not None):
        other = "--min-scale" if selection.min_scale else "--max-scale"
        message = f"--scale and {other} both select GPU counts"
        raise UsageError(message, hint="omit one of them", code="scale-conflict", key="scale")
    sizes = [size for workload in workloads.values() for size in workload.sizes.values()]
    known = list(dict.fromkeys(dtype for size in sizes for row in size.rows for dtype in row.dtype))
    known += [dtype for dtype in DTYPES if dtype not in known and any(own.bridge for own in workloads.values())]
    for dtype in selection.dtypes:
        if dtype not in known:
            message = f"no workload has a dtype '{dtype}'"
            raise UsageError(message, hint=suggest(dtype, known), code="dtype-unknown", key="dtype", value=dtype)


def _unmatched(found: _Discovery, selection: Selection, wanted: Sequence[Name], gpu_type: str) -> list[str]:
    """A reason for each selected workload and dtype that no request has, where none was given before."""
    taken = {(item.workload, item.size) for item in found.requests} | {(item.workload, None) for item in found.requests}
    reasons = [
        f"{key if size is None else f'{key} {size}'} has nothing that matches on {gpu_type}: skipped"
        for key, size in wanted
        if (key, size) not in taken | found.named
    ]
    dtypes = {dtype for dtype in selection.dtypes for item in found.requests if is_dtype(dtype, item.dtypes[0])}
    return reasons + [f"nothing on {gpu_type} has dtype {dtype}" for dtype in selection.dtypes if dtype not in dtypes]


def _add_requests(found: _Discovery, own: Framework, name: str, size: Size, gpu: str, selection: Selection) -> None:
    """Add a request for each dtype and scale of a size."""
    key = own.workload.key
    for dtype in size.dtypes(gpu):
        tested = size.scales(gpu, dtype, strong=selection.strong_scaling)
        if not tested or (selection.dtypes and not any(is_dtype(one, dtype) for one in selection.dtypes)):
            continue
        exact = size.exact_scales or selection.exact_scales
        scales = choose_scales(tested, selection, exact=exact)
        if selection.supported:
            most = tested[-1] if exact else max(scales, default=0)
            untested = [scale for scale in scales if scale not in tested and not tested[-1] < scale <= most]
            scales = [scale for scale in scales if scale not in untested]
            for scale in untested:
                found.skip(key, name, f"{key} {name} {dtype} was not tested at {scale} GPUs: skipped")
            if not scales:
                continue
        if not scales:
            found.skip(key, name, f"{key} {name} {dtype} starts at {tested[0]} GPUs: skipped")
        found.requests += [
            JobRequest(
                workload=key,
                size=name,
                dtypes=(dtype,),
                scales=(scale,),
                repeats=selection.repeats or 1,
                profile=selection.profile,
                framework=own.name,
                release=own.release,
                switches=Switches(strong_scaling=True) if selection.strong_scaling else NO_SWITCHES,
            )
            for scale in scales
        ]


def choose_scales(tested: Sequence[int], selection: Selection, *, exact: bool) -> list[int]:
    """The selected ones of the ``tested`` scales and, unless ``exact``, the powers of two above them to the maximum."""
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
