# SPDX-License-Identifier: Apache-2.0
"""Discovery: everything installed that a cluster can run at the selected scales. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from llmb.contract.entry import JobEntry
from llmb.contract.schema import ClusterConfig
from llmb.contract.settings import Settings
from llmb.contract.spec import Size, Workload
from llmb.core.names import squash_workload, suggest
from llmb.errors import UsageError
from llmb.plan.framework import Choice, discovered, release_of_image, title_of
from llmb.plan.installed import installed
from llmb.plan.select import Name, Selection, is_dtype, split_name


@dataclass(slots=True)
class _Discovery:
    """The entries so far, the reasons why others were skipped, and what those reasons name."""

    entries: list[JobEntry] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    named: set[Name] = field(default_factory=set)
    #: The selected words for a dtype that an entry has.
    dtypes: set[str] = field(default_factory=set)
    #: The dtypes that are not selected, in order.
    other_dtypes: dict[str, None] = field(default_factory=dict)
    #: A size was skipped since it has no rows of the selected scaling.
    lacks_scaling: bool = False

    def skip(self, key: str, size: str | None, reason: str) -> None:
        if reason not in self.skipped:
            self.skipped.append(reason)
        self.named |= {(key, None), (key, size)}


def discover(
    workloads: Mapping[str, Workload], config: ClusterConfig, selection: Selection, gpu_type: str
) -> tuple[list[JobEntry], list[str]]:
    """Return everything installed that ``gpu_type`` can run, largest first, and what is skipped.

    Raises UsageError if nothing is found, and for filters that contradict each other or match
    nothing.
    """
    _check_filters(workloads, selection)
    selected = [split_name(name, workloads) for name in selection.workloads]
    discovery = _Discovery()
    offered = {squash_workload(key) for key in workloads}
    for name in config.workloads.installed or ():
        if squash_workload(name) not in offered:
            discovery.skipped.append(
                f"{name}, installed according to cluster_config.yaml, has no plugin: skipped"
            )
    for workload in workloads.values():
        _discover_workload(discovery, workload, config, selection, gpu_type, selected)
    discovery.skipped += _unmatched(discovery, selection, selected, gpu_type)
    if not discovery.entries:
        reasons = list(dict.fromkeys(discovery.skipped)) or [
            _nothing_found(workloads, selection, gpu_type)
        ]
        before = " " if len(reasons) == 1 else "\n  "
        message = f"nothing to run:{''.join(f'{before}{reason}' for reason in reasons)}"
        raise UsageError(
            message, hint="llmb-run list shows the workloads", code="nothing-discovered"
        )
    return sorted(discovery.entries, key=lambda entry: -entry.settings.scale), discovery.skipped


def _discover_workload(
    discovery: _Discovery,
    workload: Workload,
    config: ClusterConfig,
    selection: Selection,
    gpu_type: str,
    selected: Sequence[Name],
) -> None:
    """Add the entries of its sizes that are ``selected``, or of all without a selection."""
    key, rows = workload.key, config.rows_for(gpu_type)
    named = {name for owner, name in selected if owner == key}
    if selected and not named:
        return
    if not config.workloads.has(key):
        if named:
            discovery.skip(key, None, f"{key} is not installed: skipped")
            discovery.named |= {name for name in selected if name[0] == key}
        return
    has, release = installed(workload, config), selection.release
    if release is None and selection.image is not None:
        release = release_of_image(selection.image, workload, config, selection.framework)
    choice = discovered(workload, rows, has, selection.framework, release)
    if choice is None:
        brings = any(
            selection.framework in (None, framework.name)
            and selection.release in (None, *framework.releases)
            for framework, _ in workload.brought()
        )
        if not named and not brings:  # nobody asked for it
            return
        titles = [
            framework.title
            for framework in workload.frameworks.values()
            if framework.name == selection.framework
            or (selection.framework is None and selection.release in framework.releases)
        ]
        title = " or ".join(titles) or f"release {selection.release}"
        discovery.skip(key, None, f"{key} has no configuration for {title} on {gpu_type}: skipped")
        return
    proxies = {entry.proxy for entry in workload.sizes.values() if entry.proxy is not None}
    if selection.proxy:  # the size is named, or its proxy
        named |= {
            workload.sizes[name].proxy for name in named if name is not None and name not in proxies
        }
    for name, size in choice.workload.on(rows).items():
        if selected and None not in named and name not in named:
            continue
        if selection.profile and not workload.is_training:
            discovery.skip(key, name, f"{key} trains no model and cannot be profiled: skipped")
            continue
        if selection.proxy and name not in proxies:
            continue
        scaling = "strong" if selection.strong_scaling else "weak"
        if named and not any(
            size.scales(rows, dtype, strong=selection.strong_scaling) for dtype in size.dtypes(rows)
        ):
            discovery.skip(
                key, name, f"{key} {name} has no {scaling} scaling on {gpu_type}: skipped"
            )
            discovery.lacks_scaling = True
            continue
        if (size.discover is None or rows in size.discover) or (key, name) in selected:
            filters = replace(selection, supported=False) if (key, name) in selected else selection
            _add_entries(discovery, choice, name, size, rows, filters)


def _nothing_found(workloads: Mapping[str, Workload], selection: Selection, gpu_type: str) -> str:
    """Return the reason why nothing is discovered if nothing was skipped."""
    kind = " with strong scaling" if selection.strong_scaling else ""
    framework, filters = selection.framework, ""
    if framework:
        workload = next(iter(workloads.values()), None)
        filters = f" with {framework if workload is None else title_of(framework, workload)}"
    if selection.release:
        filters += f" in release {selection.release}"
    return f"no installed workload{kind} runs on {gpu_type}{filters}"


def _check_filters(workloads: Mapping[str, Workload], selection: Selection) -> None:
    """Raise UsageError for two ways to select scales, and for a dtype that no workload has."""
    if selection.scales and (selection.min_scale or selection.max_scale is not None):
        limit = "--min-scale" if selection.min_scale else "--max-scale"
        message = f"--scale and {limit} both select GPU counts"
        raise UsageError(message, hint="omit one of them", code="scale-conflict", key="scale")
    sizes = [size for workload in workloads.values() for size in workload.sizes.values()]
    dtypes = list(
        dict.fromkeys(dtype for size in sizes for row in size.rows for dtype in row.dtype)
    )
    brought = {
        framework.name: framework
        for workload in workloads.values()
        for framework, _ in workload.brought()
    }
    dtypes += [
        dtype for framework in brought.values() for dtype in framework.dtypes if dtype not in dtypes
    ]
    for dtype in selection.dtypes:
        if dtype not in dtypes:
            message = f"no workload has a dtype '{dtype}'"
            raise UsageError(
                message, hint=suggest(dtype, dtypes), code="dtype-unknown", key="dtype", value=dtype
            )


def _unmatched(
    discovery: _Discovery, selection: Selection, selected: Sequence[Name], gpu_type: str
) -> list[str]:
    """Return a reason for each selected workload and dtype without an entry or a reason."""
    settings = [entry.settings for entry in discovery.entries]
    matched = {(item.workload, item.model_size) for item in settings} | {
        (item.workload, None) for item in settings
    }
    reasons = [
        f"{key if size is None else f'{key} {size}'} has nothing that matches on {gpu_type}:"
        " skipped"
        for key, size in selected
        if (key, size) not in matched | discovery.named
    ]
    if discovery.lacks_scaling and not discovery.other_dtypes:  # there was no choice of dtypes
        return reasons
    what = "strong scaling with dtype" if selection.strong_scaling else "dtype"
    others = f", but {', '.join(discovery.other_dtypes)}" if discovery.other_dtypes else ""
    return reasons + [
        f"nothing selected on {gpu_type} has {what} {dtype}{others}"
        for dtype in selection.dtypes
        if dtype not in discovery.dtypes
    ]


def _add_entries(
    discovery: _Discovery, choice: Choice, name: str, size: Size, gpu: str, selection: Selection
) -> None:
    """Add an entry for each dtype and scale of a size."""
    key = choice.workload.key
    for dtype in size.dtypes(gpu):
        tested = size.scales(gpu, dtype, strong=selection.strong_scaling)
        if not tested:
            continue
        exact = size.exact_scales or selection.exact_scales
        chosen = choose_scales(tested, selection, exact=exact)
        words = {
            scale: [
                word
                for word in selection.dtypes
                if is_dtype(word, dtype, choice.workload, choice.name, name, gpu, scale)
            ]
            for scale in chosen or tested[:1]
        }
        if selection.dtypes and not any(words.values()):
            discovery.other_dtypes[dtype] = None
            continue
        scales = [scale for scale in chosen if words[scale] or not selection.dtypes]
        discovery.dtypes.update(word for scale in scales for word in words[scale])
        if selection.supported:
            highest = tested[-1] if exact else max(scales, default=0)
            untested = [
                scale
                for scale in scales
                if scale not in tested and not tested[-1] < scale <= highest
            ]
            scales = [scale for scale in scales if scale not in untested]
            for scale in untested:
                discovery.skip(
                    key, name, f"{key} {name} {dtype} was not tested at {scale} GPUs: skipped"
                )
            if not scales:
                continue
        if not scales:
            discovery.skip(key, name, f"{key} {name} {dtype} starts at {tested[0]} GPUs: skipped")
        discovery.entries += [
            JobEntry(
                settings=Settings(
                    workload=key,
                    model_size=name,
                    dtype=dtype,
                    scale=scale,
                    profile=selection.profile,
                    framework=choice.name,
                    release=choice.release,
                    strong_scaling=selection.strong_scaling or None,
                ),
                repeats=selection.repeats or 1,
            )
            for scale in scales
        ]


def choose_scales(tested: Sequence[int], selection: Selection, *, exact: bool) -> list[int]:
    """Return the selected ones of the ``tested`` scales and, unless ``exact``, higher ones.

    Higher ones are the powers of two up to the maximum.
    """
    if selection.scales:
        return list(selection.scales)
    highest = selection.max_scale
    scales = [scale for scale in tested if highest is None or scale <= highest]
    if selection.min_scale:
        return scales[:1]
    power = 1 << tested[-1].bit_length()  # the first power of two above the largest
    while highest is not None and not exact and power <= highest:
        scales.append(power)
        power *= 2
    return scales
