# SPDX-License-Identifier: Apache-2.0
"""Settles every number of one job from its workload's row, and checks that all of them divide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from llmb.errors import UsageError
from llmb.job import Job
from llmb.model import ModelShape
from llmb.names import suggest
from llmb.workload import Row, Size, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The part of a cluster that a job's numbers depend on.

    ``gpu_type``: the cluster's name for it; ``rows``: the known type whose rows it takes; ``one_machine``: all ranks
    run on this machine, whatever its node size.
    """

    gpu_type: str
    rows: str
    gpus_per_node: int
    one_machine: bool = False
    needs_image: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One combination out of a JobRequest, names resolved."""

    workload: Workload
    size: str
    dtype: str
    scale: int
    params: Mapping[str, int]
    env: Mapping[str, str] = field(default_factory=dict)
    strong_scaling: bool = False
    repeat: int = 1
    profile: bool = False


def configure(wish: Wish, place: Place, *, force: bool = False) -> tuple[Job, list[str]]:
    """The job for one wish, and warnings about it. Raises UsageError; ``force`` lifts limits of scale, nothing else."""
    size = wish.workload.sizes[wish.size]
    row, warnings = _row(wish, size, place, force=force)
    job = _settle(wish, size, row, place)
    _check_layers(wish, size, job)
    return job, warnings


def _row(wish: Wish, size: Size, place: Place, *, force: bool) -> tuple[Row, list[str]]:
    """The row that applies, and what is unusual about the scale."""
    label = f"{wish.workload.key} {wish.size}"
    dtypes = size.dtypes(place.rows)
    more = f"  llmb-run list -w {wish.workload.key}"
    if not dtypes:
        here = list(wish.workload.on(place.rows))
        also = f"; on {place.gpu_type} run {', '.join(here)}" if here else ""
        raise UsageError(
            f"{label} does not run on {place.gpu_type}", hint=f"it runs on {', '.join(size.gpu_types())}{also}"
        )
    if wish.dtype not in dtypes:
        message = f"{label} on {place.gpu_type} has no dtype '{wish.dtype}'"
        raise UsageError(message, hint=suggest(wish.dtype, dtypes) + more)
    rows = [row for row in size.rows if row.fits(place.rows, wish.dtype) and row.strong_scaling == wish.strong_scaling]
    if not rows:
        raise UsageError(f"{label} has no strong scaling on {place.gpu_type}", hint="leave strong_scaling out")
    tested = sorted({count for row in rows for count in row.scales.counts})
    said = ", ".join(map(str, tested))
    if wish.scale in tested:
        return next(row for row in rows if wish.scale in row.scales.counts), []
    nearest = max((row for row in rows if row.scales.counts[0] <= wish.scale), default=rows[0], key=_last_scale)
    same = all(size.scales(place.rows, dtype, strong=wish.strong_scaling) == tested for dtype in dtypes)
    message = f"{label if same else f'{label} {wish.dtype}'} on {place.gpu_type} has no scale {wish.scale}"
    if force or (wish.scale > tested[-1] and not size.exact_scales):
        return nearest, [f"{message}: tested are {said}"]
    raise UsageError(message, hint=f"tested are {said}; --force takes another" + more)


def _last_scale(row: Row) -> int:
    return row.scales.counts[-1]


def _settle(wish: Wish, size: Size, row: Row, place: Place) -> Job:
    """The job's numbers, each division whole. Raises UsageError that names the one that is not."""
    given = wish.params
    tp, pp, cp = (given.get(name, getattr(row, name)) for name in ("tp", "pp", "cp"))
    vp = given.get("vp", row.vp)
    mbs = given.get("mbs", row.mbs)
    label = f"{wish.workload.key} {wish.size} at {wish.scale} GPUs"
    dp = _divide(wish.scale, tp * pp * cp, f"{label}: the scale", f"tp·pp·cp = {tp}·{pp}·{cp}")
    gbs = given.get("gbs", row.gbs.batch(wish.scale))
    if gbs is None:
        raise UsageError(
            f"{label}: the global batch {row.gbs.text} is not whole", hint="take another scale, or --set gbs="
        )
    ga = _divide(gbs, mbs * dp, f"{label}: the global batch {gbs}", f"mbs·dp = {mbs}·{dp}")
    nodes, per_node = _nodes(wish, size, place)
    model = _model(size.model, given.get("num_layers", row.layers), label)
    return Job(
        workload=wish.workload.key, model_size=wish.size, dtype=wish.dtype, gpu_type=place.gpu_type, scale=wish.scale,
        repeat=wish.repeat, profile=wish.profile, env={**place.environment, **wish.env},
        tp=tp, pp=pp, cp=cp, vp=vp, ep=row.ep, dp=dp, mbs=mbs, gbs=gbs, ga=ga,
        seq_length=model.seq_length, num_layers=model.layers,
        max_steps=given.get("max_steps", wish.workload.max_steps), nodes=nodes, gpus_per_node=per_node,
        time_limit=60 * (row.time_limit_minutes or wish.workload.time_limit_minutes),
        image=wish.workload.image if place.needs_image else None,
        experiment_name=_name(wish, tp=tp, pp=pp, cp=cp, vp=vp, mbs=mbs, gbs=gbs),
        model=model, learning_rate=size.learning_rate,
    )  # fmt: skip


def _divide(number: int, by: int, what: str, divisor: str) -> int:
    if number % by:
        raise UsageError(f"{what} is not a multiple of {divisor} = {by}", hint="change the scale or --set one of them")
    return number // by


def _nodes(wish: Wish, size: Size, place: Place) -> tuple[int, int]:
    """Nodes and GPUs on each."""
    if place.one_machine:
        return 1, wish.scale
    if wish.scale % place.gpus_per_node == 0:
        return wish.scale // place.gpus_per_node, place.gpus_per_node
    if not size.whole_nodes and wish.scale < place.gpus_per_node:
        return 1, wish.scale
    raise UsageError(
        f"{wish.workload.key} {wish.size}: {wish.scale} GPUs do not fill whole nodes of {place.gpus_per_node}",
        hint=f"take a multiple of {place.gpus_per_node}",
    )


def _model(model: ModelShape, layers: int | None, label: str) -> ModelShape:
    """The shape with ``layers`` layers; of a hybrid the first ones."""
    if layers is None or layers == model.layers:
        return model
    if model.pattern is None:
        return replace(model, layers=layers)
    if layers > model.layers:
        raise UsageError(f"{label}: a hybrid of {model.layers} layers has no pattern for {layers}", hint="take fewer")
    return replace(model, layers=layers, pattern=model.pattern[:layers])


def _check_layers(wish: Wish, size: Size, job: Job) -> None:
    """What the framework would refuse only after the job has waited for its nodes."""
    label, vp = f"{wish.workload.key} {wish.size}", job.vp or 1
    counted = job.num_layers + size.pipeline_extra
    extra = f" (with {size.pipeline_extra} for embedding and loss)" if size.pipeline_extra else ""
    _divide(counted, job.pp * vp, f"{label}: {counted} layers{extra}", f"pp·vp = {job.pp}·{vp}")
    if vp > 1 and job.pp == 1:
        raise UsageError(f"{label}: vp {vp} needs a pipeline, pp is 1", hint="--set vp=1")
    if vp > 1:
        _divide(job.ga, job.pp, f"{label}: with vp > 1 the gradient accumulation {job.ga}", "pp")
    for what, count in (("attention heads", job.model.heads), ("query groups", job.model.kv_groups)):
        _divide(count, job.tp, f"{label}: {count} {what}", "tp")
    _divide(job.seq_length, job.cp, f"{label}: the sequence length {job.seq_length}", "cp")


def _name(wish: Wish, **numbers: Any) -> str:
    """The experiment's name, with what was changed behind it where it is not in it already."""
    parts = [wish.workload.key, wish.size, wish.dtype, f"gpus{wish.scale}"]
    parts += [f"{name}{value}" for name, value in numbers.items()]
    changed = (("max_steps", "steps"), ("num_layers", "layers"))
    parts += [f"{word}{wish.params[param]}" for param, word in changed if param in wish.params]
    return "_".join(parts)
