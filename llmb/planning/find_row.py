# SPDX-License-Identifier: Apache-2.0
"""Finds the row of a workload's table that a job uses; where none fits, says what the table has instead. Pure."""

from collections.abc import Sequence

from llmb.errors import Fault, InputFaults, UsageError
from llmb.planning import rules
from llmb.planning.framework import bridge_dtypes
from llmb.planning.job_spec import ClusterLimits, JobSpec
from llmb.text.names import nearest, suggest, with_list_command
from llmb.workload.bridge import BRIDGE, NEMO
from llmb.workload.gpus import gpus_in_words, known_types
from llmb.workload.rows import Row
from llmb.workload.spec import Size


def find_row(size: Size, gpu: str, dtype: str, scale: int, *, strong: bool) -> Row | None:
    """The row for a job at ``scale``: the one tested there, else the nearest below it, else the first.

    ``gpu`` is the known type whose rows apply. None where no row fits.
    """
    rows = [row for row in size.rows if row.fits(gpu, dtype) and row.strong_scaling == strong]
    exact = next((row for row in rows if scale in row.scales.counts), None)
    below = sorted((row for row in rows if row.scales.counts[0] <= scale), key=lambda row: -row.scales.counts[-1])
    return exact or next(iter([*below, *rows]), None)


def row_for(spec: JobSpec, limits: ClusterLimits, *, force: bool) -> tuple[Row, list[str]]:
    """The row that applies, and a warning about an unusual scale. Raises UsageError.

    With Megatron-Bridge every scale is allowed: NVIDIA's launch scripts take any GPU count, keep the settings and
    change the batch in proportion (set_post_overrides); whether it divides is checked later.
    """
    size, gpu, strong = spec.own_size, limits.gpu_type, bool(spec.switches.strong_scaling)
    dtypes = size.dtypes(limits.rows)
    if not dtypes:
        here = list(spec.workload.on(limits.rows))
        also = f"; on {gpu} run {', '.join(here)}" if here else ""
        hint = f"it runs on {', '.join(size.gpu_types())}{also}{_like_hint(size, limits)}"
        message = f"{spec.label} does not run on {gpu}"
        raise UsageError(message, hint=hint, code="gpu-type-unsupported", key="gpu_type", value=gpu)
    is_known = spec.dtype in dtypes
    faults = [] if is_known else [_unknown_dtype(spec, dtypes, limits)]
    tested = {dtype: size.scales(limits.rows, dtype, strong=strong) for dtype in dtypes}
    counts = tested[spec.dtype] if is_known else sorted({count for one in tested.values() for count in one})
    warnings = []
    if not counts:
        message, hint = f"{spec.label} has no strong scaling on {gpu}", _strong_hint(size, limits.rows)
        faults.append(Fault(message=message, hint=hint, code="no-strong-scaling", key="strong_scaling"))
    elif spec.scale not in (*counts, *rules.checkpoint_scales(spec.switches, size, limits.rows)):
        same = len({tuple(one) for one in tested.values()}) == 1 or not is_known
        where, named = f"{spec.label}{'' if same else f' {spec.dtype}'} on {gpu}", ", ".join(map(str, counts))
        message = f"{where} has no scale {spec.scale}"
        if spec.framework == BRIDGE and not size.exact_scales:
            warnings.append(
                f"{where}: NVIDIA has configurations of Megatron-Bridge for {named} GPUs; "
                f"{spec.scale} has the settings of {_settings_of(spec.scale, counts)}, untested"
            )
        elif spec.scale > counts[-1] and not size.exact_scales:
            warnings.append(f"{where}: scale {spec.scale} is untested, above the tested {named}")
        elif force:
            warnings.append(f"{message}: tested are {named}; --force allows it")
        else:
            hint = with_list_command(
                f"tested are {named}{_proxy_hint(spec, limits)}; --force allows another", spec.workload.key
            )
            place = spec.places.get(spec.scale, "")
            faults.append(
                Fault(message=message, place=place, hint=hint, code="scale-untested", key="scale", value=spec.scale)
            )
    row = find_row(size, limits.rows, spec.dtype, spec.scale, strong=strong)
    if faults or row is None:
        raise InputFaults(faults)
    return row, warnings


def _settings_of(scale: int, counts: Sequence[int]) -> int:
    """The one of ``counts`` whose settings a job on ``scale`` GPUs has: the next lower, else the lowest."""
    return max((count for count in counts if count <= scale), default=counts[0])


def _like_hint(size: Size, limits: ClusterLimits) -> str:
    """How to use the rows of the type whose configurations fit best."""
    known = known_types().get(limits.rows)
    if known is None or known.like is None or not size.dtypes(known.like):
        return ""
    line = f"gpu_types: {{{limits.gpu_type}: {{like: {known.like}}}}}"
    return f"; in cluster_config.yaml, {line} uses the rows of {known.like}"


def _proxy_hint(spec: JobSpec, limits: ClusterLimits) -> str:
    """The size's proxy, where that was tested at the scale."""
    proxy = spec.own_size.proxy
    if proxy is None or spec.scale not in spec.workload.sizes[proxy].scales(limits.rows, spec.dtype, strong=False):
        return ""
    return f"; at {gpus_in_words(spec.scale)} run its proxy: -s {proxy}, in a list proxy: true"


def _unknown_dtype(spec: JobSpec, dtypes: Sequence[str], limits: ClusterLimits) -> Fault:
    message = f"{spec.label} on {limits.gpu_type} has no dtype '{spec.dtype}'"
    there = f"its only dtype there is {dtypes[0]}" if len(dtypes) == 1 else f"there it has {', '.join(dtypes)}"
    if spec.framework == NEMO and spec.dtype in bridge_dtypes(spec.workload, spec.size, limits.rows):
        current = ", or dtype fp8 with --set fp8=current" if spec.dtype == "fp8_cs" and "fp8" in dtypes else ""
        hint = f"{there}{current}; Megatron-Bridge has it: --framework bridge, in a list framework: bridge"
        place = spec.places.get(spec.dtype, "")
        return Fault(message=message, place=place, hint=hint, code="dtype-unknown", key="dtype", value=spec.dtype)
    elsewhere = {dtype for size in spec.workload.sizes.values() for row in size.rows for dtype in row.dtype}
    is_meant = spec.dtype in elsewhere or nearest(spec.dtype, dtypes) is None
    hint = with_list_command(there if is_meant else suggest(spec.dtype, dtypes), spec.workload.key)
    place = spec.places.get(spec.dtype, "")
    return Fault(message=message, place=place, hint=hint, code="dtype-unknown", key="dtype", value=spec.dtype)


def _strong_hint(size: Size, gpu: str) -> str:
    """Where strong scaling is supported; some sizes have no other rows."""
    if all(row.strong_scaling for row in size.rows if gpu in row.gpu):
        return "its batch is the same at every scale: ask for strong scaling"
    there = dict.fromkeys(gpu for row in size.rows if row.strong_scaling for gpu in row.gpu)
    return f"omit strong scaling; it is for {', '.join(there)}" if there else "omit strong scaling"
