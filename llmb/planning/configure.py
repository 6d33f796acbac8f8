# SPDX-License-Identifier: Apache-2.0
"""Settles every number of one job from its workload's row, and checks that all of them divide."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from llmb.errors import Fault, InputFaults, UsageError, collected
from llmb.planning import modes
from llmb.planning.modes import Mode, mode_of
from llmb.planning.splits import check_splits, divide
from llmb.runs.job import STRONG, Job
from llmb.text.names import nearest, suggest, with_list_command
from llmb.workload.gpus import CPU, gpus_in_words
from llmb.workload.model import ModelShape
from llmb.workload.published import raises_vboost
from llmb.workload.rows import Row
from llmb.workload.spec import Size, Workload
from llmb.workload.switches import NOTHING, Switches


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The part of a cluster that a job's numbers depend on.

    ``gpu_type``: the cluster's name for it; ``rows``: the known type whose rows it takes; ``one_machine``: all ranks
    run on this machine, whatever its node size; ``sets_vboost``: its scripts can raise the GPUs' vboost; ``requested``:
    the GPUs of a node that the scheduler is asked for, None where nothing says so; ``time_limit``: the cluster's own
    for all jobs in seconds, over those of the workloads.
    """

    gpu_type: str
    rows: str
    gpus_per_node: int
    requested: int | None = None
    one_machine: bool = False
    needs_image: bool = False
    sets_vboost: bool = False
    time_limit: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One combination out of a JobRequest, names resolved; ``places`` as there."""

    workload: Workload
    size: str
    dtype: str
    scale: int
    params: Mapping[str, int]
    env: Mapping[str, str] = field(default_factory=dict)
    strong_scaling: bool = False
    repeat: int = 1
    profile: bool = False
    switches: Switches = NOTHING
    places: Mapping[str | int, str] = field(default_factory=dict)


def configure(wish: Wish, place: Place, *, force: bool = False) -> tuple[Job, list[str]]:
    """The job for one wish, and warnings about it. Raises UsageError; ``force`` lifts tested scales, nothing else."""
    size, label = wish.workload.sizes[wish.size], f"{wish.workload.key} {wish.size}"
    try:
        row, warnings = _row(wish, size, place, label, force=force)
    except UsageError as error:
        raise _with_others(error, wish, size, place, label) from error
    if wish.switches is not NOTHING:
        modes.check_model(wish.switches, size, wish.dtype, label)
        modes.check_container(wish.switches, label, container=place.needs_image)
        warnings += modes.check_checkpoint(wish.switches, size, place.rows, wish.scale, label, force=force)
        place = replace(place, gpus_per_node=wish.switches.gpus_per_node or place.gpus_per_node)
    job = _settle(wish, size, row, place)
    job, unmet = _with_vboost(job, wish, row, place, label)
    warnings += unmet
    check_splits(job, size)
    modes.check_ranks(wish.switches if wish.profile else NOTHING, wish.scale, label)
    return job, warnings


def _with_vboost(job: Job, wish: Wish, row: Row, place: Place, label: str) -> tuple[Job, list[str]]:
    """The job with what was asked for, else with what the published runs did; a warning where that cannot be here."""
    wanted = wish.switches.vboost
    if not place.sets_vboost or place.rows == CPU:
        why = "there is no GPU" if place.rows == CPU else "only a job on Slurm can set it"
        return job, [f"{label}: vboost is left as it is: {why}"] if wanted else []
    if wanted is None and wish.workload.sizes[wish.size].nemo is not None:
        wanted = raises_vboost(row.release(wish.scale))
    return replace(job, vboost=wanted), []


def _with_others(error: UsageError, wish: Wish, size: Size, place: Place, label: str) -> UsageError:
    """The error that no row applies, with what is wrong whichever row would."""
    faults: list[Fault] = []
    with collected(faults):
        raise error
    checks: tuple[Callable[[], object], ...] = (
        lambda: _mode(wish, label),
        lambda: modes.check_container(wish.switches, label, container=place.needs_image),
        lambda: modes.check_ranks(wish.switches if wish.profile else NOTHING, wish.scale, label),
    )
    for check in checks:
        try:
            check()
        except UsageError as other:
            faults.append(Fault(message=other.message, hint=other.hint))
    return InputFaults(faults) if len(faults) > 1 else error


def find_row(size: Size, gpu: str, dtype: str, scale: int, *, strong: bool) -> Row | None:
    """The row for a job at ``scale``: the one tested there, else the nearest below it, else the first; None without.

    ``gpu`` is the known type whose rows apply.
    """
    rows = [row for row in size.rows if row.fits(gpu, dtype) and row.strong_scaling == strong]
    exact = next((row for row in rows if scale in row.scales.counts), None)
    below = sorted((row for row in rows if row.scales.counts[0] <= scale), key=lambda row: -row.scales.counts[-1])
    return exact or next(iter([*below, *rows]), None)


def _row(wish: Wish, size: Size, place: Place, label: str, *, force: bool) -> tuple[Row, list[str]]:
    """The row that applies, and what is unusual about the scale."""
    dtypes = size.dtypes(place.rows)
    if not dtypes:
        here = list(wish.workload.on(place.rows))
        also = f"; on {place.gpu_type} run {', '.join(here)}" if here else ""
        raise UsageError(
            f"{label} does not run on {place.gpu_type}", hint=f"it runs on {', '.join(size.gpu_types())}{also}"
        )
    is_known = wish.dtype in dtypes
    faults = [] if is_known else [_no_dtype(wish, dtypes, place, label)]
    tested = {dtype: size.scales(place.rows, dtype, strong=wish.strong_scaling) for dtype in dtypes}
    counts = tested[wish.dtype] if is_known else sorted({count for one in tested.values() for count in one})
    warnings = []
    if not counts:
        message = f"{label} has no strong scaling on {place.gpu_type}"
        hint = _strong_hint(size, place.rows)
        faults.append(Fault(message=message, place=wish.places.get(STRONG, ""), hint=hint))
    elif wish.scale not in (*counts, *modes.checkpoint_scales(wish.switches, size, place.rows)):
        whose = label if len({tuple(one) for one in tested.values()}) == 1 or not is_known else f"{label} {wish.dtype}"
        where, named = f"{whose} on {place.gpu_type}", ", ".join(map(str, counts))
        message = f"{where} has no scale {wish.scale}"
        if wish.scale > counts[-1] and not size.exact_scales:
            warnings.append(f"{where}: scale {wish.scale} is above the tested {named}; it is taken all the same")
        elif force:
            warnings.append(f"{message}: tested are {named}; --force takes it all the same")
        else:
            hint = with_list_command(f"tested are {named}; --force takes another", wish.workload.key)
            faults.append(Fault(message=message, place=wish.places.get(wish.scale, ""), hint=hint))
    row = find_row(size, place.rows, wish.dtype, wish.scale, strong=wish.strong_scaling)
    if faults or row is None:
        raise InputFaults(faults)
    return row, warnings


def _no_dtype(wish: Wish, dtypes: Sequence[str], place: Place, label: str) -> Fault:
    message = f"{label} on {place.gpu_type} has no dtype '{wish.dtype}'"
    there = f"its only one there is {dtypes[0]}" if len(dtypes) == 1 else f"there it has {', '.join(dtypes)}"
    elsewhere = {dtype for size in wish.workload.sizes.values() for row in size.rows for dtype in row.dtype}
    is_meant = wish.dtype in elsewhere or nearest(wish.dtype, dtypes) is None
    fix = there if is_meant else suggest(wish.dtype, dtypes)
    return Fault(message=message, place=wish.places.get(wish.dtype, ""), hint=with_list_command(fix, wish.workload.key))


def _strong_hint(size: Size, gpu: str) -> str:
    """Where the batch may stay; a size whose rows are all of that kind has no other."""
    if all(row.strong_scaling for row in size.rows if gpu in row.gpu):
        return "it keeps its batch at every scale: ask for strong scaling"
    there = dict.fromkeys(gpu for row in size.rows if row.strong_scaling for gpu in row.gpu)
    return f"leave strong scaling out; it is for {', '.join(there)}" if there else "leave strong scaling out"


def _settle(wish: Wish, size: Size, row: Row, place: Place) -> Job:
    """The job's numbers, each division whole. Raises UsageError that names the one that is not."""
    given = wish.params
    tp, pp, cp = (given.get(name, getattr(row, name)) for name in ("tp", "pp", "cp"))
    vp = given.get("vp", row.vp)
    mbs = given.get("mbs", row.mbs)
    label = f"{wish.workload.key} {wish.size} at {gpus_in_words(wish.scale)}"
    dp = divide(wish.scale, tp * pp * cp, f"{label}: the scale", f"tp·pp·cp = {tp}·{pp}·{cp}")
    gbs = given.get("gbs", row.gbs.batch(wish.scale))
    if gbs is None:
        raise UsageError(
            f"{label}: the global batch {row.gbs.text} is not whole", hint="take another scale, or --set gbs="
        )
    ga = divide(gbs, mbs * dp, f"{label}: the global batch {gbs}", f"mbs·dp = {mbs}·{dp}")
    nodes, per_node = _nodes(wish, size, place)
    mode = _mode(wish, label, row)
    model = _model(size.model, given.get("num_layers", row.layers), label)
    return Job(
        workload=wish.workload.key,
        model_size=wish.size,
        dtype=wish.dtype,
        gpu_type=place.gpu_type,
        scale=wish.scale,
        repeat=wish.repeat,
        profile=wish.profile,
        env={**place.environment, **wish.env},
        tp=tp,
        pp=pp,
        cp=cp,
        vp=vp,
        ep=row.ep,
        dp=dp,
        mbs=mbs,
        gbs=gbs,
        ga=ga,
        seq_length=model.seq_length,
        num_layers=model.layers,
        max_steps=mode.max_steps,
        nodes=nodes,
        gpus_per_node=per_node,
        time_limit=mode.time_limit
        or place.time_limit
        or 60 * (row.time_limit_minutes or size.time_limit_minutes or wish.workload.time_limit_minutes),
        image=(wish.switches.image or wish.workload.image) if place.needs_image else None,
        experiment_name=_name(wish, mode, tp=tp, pp=pp, cp=cp, vp=vp, mbs=mbs, gbs=gbs),
        model=model,
        learning_rate=size.learning_rate,
        switches=mode.switches,
    )


def _mode(wish: Wish, label: str, row: Row | None = None) -> Mode:
    size, release = wish.workload.sizes[wish.size], row.release(wish.scale) if row is not None else None
    steps = size.max_steps or wish.workload.max_steps
    switches = replace(wish.switches, strong_scaling=True) if wish.strong_scaling else wish.switches
    try:
        return mode_of(
            switches,
            profile=wish.profile,
            given_steps=wish.params.get("max_steps"),
            default_steps=steps,
            window=modes.profile_window(wish.workload, size, release, steps),
            profiler=modes.PROFILED if size.nemo is None else modes.NSYS,
        )
    except UsageError as error:
        raise UsageError(f"{label}: {error.message}", hint=error.hint) from error


def _nodes(wish: Wish, size: Size, place: Place) -> tuple[int, int]:
    """Nodes and GPUs on each."""
    if place.one_machine:
        if size.whole_nodes and place.rows != CPU and wish.scale > place.gpus_per_node:
            label = f"{wish.workload.key} {wish.size}"
            message = f"{label}: {wish.scale} GPUs are more than the {place.gpus_per_node} of one machine"
            hint = f"take fewer; --gpus-per-node {wish.scale}, where this machine has as many"
            raise UsageError(message, hint=hint)
        return 1, wish.scale
    if place.requested is not None and place.rows != CPU and place.gpus_per_node > place.requested:
        message = (
            f"{place.gpus_per_node} ranks on each node, and the cluster's gres asks for {place.requested} GPUs there"
        )
        hint = f"take at most {place.requested}, or set 'gres' in cluster_config.yaml to what a node has"
        raise UsageError(f"{wish.workload.key} {wish.size}: gpus_per_node: {message}", hint=hint)
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


def _name(wish: Wish, mode: Mode, **numbers: Any) -> str:
    """The experiment's name, with what was changed behind it where it is not in it already."""
    parts = [wish.workload.key, wish.size, wish.dtype, f"gpus{wish.scale}"]
    parts += [f"{name}{value}" for name, value in numbers.items()]
    parts += [word for word in mode.words if word.startswith("steps")]
    parts += [f"layers{wish.params['num_layers']}"] if "num_layers" in wish.params else []
    parts += [word for word in mode.words if not word.startswith("steps")]
    return "_".join(parts)
