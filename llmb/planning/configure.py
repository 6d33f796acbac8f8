# SPDX-License-Identifier: Apache-2.0
"""Settles every number of one job from its workload's row, and checks that all of them divide. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from llmb.errors import Fault, InputFaults, UsageError, collected
from llmb.planning import rules
from llmb.planning.framework import bridge_dtypes
from llmb.runs.job import Job, Training
from llmb.text.names import nearest, suggest, with_list_command
from llmb.workload.bridge import BRIDGE, NEMO
from llmb.workload.gpus import CPU, gpus_in_words, known_types
from llmb.workload.model import ModelShape
from llmb.workload.parameters import values_of
from llmb.workload.published import raises_vboost
from llmb.workload.rows import Row
from llmb.workload.spec import Size, Workload
from llmb.workload.switches import NO_SWITCHES, Switches

LONGEST_NAME = 200  # characters: names of files, of up to 255, are this with more before and after


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLimits:
    """The properties of a cluster that a job's numbers depend on.

    ``gpu_type``: the cluster's name for it; ``rows``: the known type whose rows apply; ``one_machine``: all ranks run
    on this machine, whatever its node size; ``sets_vboost``: its scripts can raise the GPUs' vboost; ``requested``:
    the GPUs per node that the scheduler is asked for, None where not set; ``time_limit``: of all jobs on the cluster
    in seconds, overrides those of the workloads.
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
class JobSpec:
    """One configuration of a JobRequest, names resolved and the command line's overrides applied.

    ``workload``: with the rows of ``framework`` and ``release``; ``params``: the given values of llmb's parameters;
    ``parameters``: those of the workload's own; ``dotted``: those of the framework's settings, by dotted path.
    """

    workload: Workload
    size: str
    dtype: str
    scale: int
    framework: str = NEMO
    release: str | None = None
    params: Mapping[str, int] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    dotted: Mapping[str, str | float | bool | None] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    profile: bool = False
    switches: Switches = NO_SWITCHES
    places: Mapping[str | int, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Workload and size, for messages."""
        return f"{self.workload.key} {self.size}"

    @property
    def own_size(self) -> Size:
        """The size's entry in the workload's table."""
        return self.workload.sizes[self.size]


def configure(spec: JobSpec, limits: ClusterLimits, *, force: bool = False) -> tuple[Job, list[str]]:
    """The job of one configuration, and warnings about it; ``force`` allows untested scales and checkpoints.

    Raises UsageError.
    """
    size, switches = spec.own_size, spec.switches
    try:
        row, warnings = _row(spec, limits, force=force)
    except UsageError as error:
        raise _with_others(error, spec, limits) from error
    if switches is not NO_SWITCHES:
        rules.check_model(switches, size, spec.dtype, spec.label)
        rules.check_container(switches, spec.label, container=limits.needs_image)
        warnings += rules.check_checkpoint(switches, size, limits.rows, spec.scale, spec.label, force=force)
    if spec.dotted and spec.framework != BRIDGE:
        name = next(iter(spec.dotted))
        message = f"{spec.label}: '{name}' is a setting of Megatron-Bridge, and this job trains with another framework"
        hint = "omit it, or --framework bridge"
        raise UsageError(message, hint=hint, code="dotted-without-bridge", key=name, value=name)
    job = _settle(spec, row, limits)
    if job.rows_of is not None:
        warnings.append(
            f"{spec.label}: NVIDIA has no configuration of Megatron-Bridge for {limits.gpu_type}; "
            f"that of {job.rows_of} is used, unmeasured there"
        )
    job, ignored = _with_vboost(job, spec, row, limits)
    if job.training is not None:
        rules.check_splits(job.training, size, spec.label)
    if spec.profile:
        rules.check_ranks(switches, spec.scale, spec.label)
    return job, warnings + ignored


def _with_vboost(job: Job, spec: JobSpec, row: Row, limits: ClusterLimits) -> tuple[Job, list[str]]:
    """The job with vboost as the switch or else the release has it, and a warning where it cannot be set here."""
    wanted = spec.switches.vboost
    if not limits.sets_vboost or limits.rows == CPU:
        why = "there is no GPU" if limits.rows == CPU else "only a job on Slurm can set it"
        return job, [f"{spec.label}: vboost is not changed: {why}"] if wanted else []
    if wanted is None and spec.own_size.nemo is not None:
        wanted = raises_vboost(row.release(spec.scale))
    return replace(job, vboost=wanted), []


def _with_others(error: UsageError, spec: JobSpec, limits: ClusterLimits) -> UsageError:
    """The error that no row applies, with the faults that do not depend on the row."""
    faults: list[Fault] = []
    checks: tuple[Callable[[], object], ...] = (
        lambda: _mode(spec, None),
        lambda: rules.check_container(spec.switches, spec.label, container=limits.needs_image),
        lambda: rules.check_ranks(spec.switches if spec.profile else NO_SWITCHES, spec.scale, spec.label),
    )
    with collected(faults):
        raise error
    for check in checks:
        with collected(faults):
            check()
    return InputFaults(faults) if len(faults) > 1 else error


def find_row(size: Size, gpu: str, dtype: str, scale: int, *, strong: bool) -> Row | None:
    """The row for a job at ``scale``: the one tested there, else the nearest below it, else the first.

    ``gpu`` is the known type whose rows apply. None where no row fits.
    """
    rows = [row for row in size.rows if row.fits(gpu, dtype) and row.strong_scaling == strong]
    exact = next((row for row in rows if scale in row.scales.counts), None)
    below = sorted((row for row in rows if row.scales.counts[0] <= scale), key=lambda row: -row.scales.counts[-1])
    return exact or next(iter([*below, *rows]), None)


def _row(spec: JobSpec, limits: ClusterLimits, *, force: bool) -> tuple[Row, list[str]]:
    """The row that applies, and a warning about an unusual scale. Raises UsageError."""
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
        if spec.scale > counts[-1] and not size.exact_scales:
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


def _settle(spec: JobSpec, row: Row, limits: ClusterLimits) -> Job:
    """The job with all its numbers. Raises UsageError for a division with a remainder."""
    size, switches, given = spec.own_size, spec.switches, spec.params
    label = f"{spec.label} at {gpus_in_words(spec.scale)}"
    training = _training(spec, row, size.model, label) if size.model is not None else None
    nodes, per_node = _nodes(spec, limits)
    mode = _mode(spec, row)
    parameters = values_of(spec.workload.parameters_of(spec.size), spec.parameters)
    name = [spec.workload.key, spec.size, spec.dtype, f"gpus{spec.scale}"]
    if training is not None:
        name += [f"{key}{getattr(training, key)}" for key in ("tp", "pp", "cp", "vp")]
        name += [*rules.expert_words(training), f"mbs{training.mbs}", f"gbs{training.gbs}"]
    name += [f"{key}{value}" for key, value in parameters.items()]
    name += [f"{BRIDGE}{spec.release}"] if spec.framework == BRIDGE else []  # then what is not as published
    name += [word for word in mode.words if word.startswith("steps")]
    name += [f"layers{given['num_layers']}"] if "num_layers" in given else []
    name += [word for word in mode.words if not word.startswith("steps")]
    if len(text := "_".join(name)) > LONGEST_NAME:
        message = f"{label}: the name of the experiment has {len(text)} characters, more than {LONGEST_NAME}: {text}"
        raise UsageError(message, hint="choose shorter values of its parameters", code="name-too-long", value=text)
    minutes = row.time_limit_minutes or size.time_limit_minutes or spec.workload.time_limit_minutes
    return Job(
        workload=spec.workload.key,
        model_size=spec.size,
        dtype=spec.dtype,
        gpu_type=limits.gpu_type,
        scale=spec.scale,
        repeat=1,
        profile=spec.profile,
        env={**limits.environment, **spec.env},
        max_steps=mode.max_steps,
        nodes=nodes,
        gpus_per_node=per_node,
        time_limit=mode.time_limit or limits.time_limit or 60 * minutes,
        image=(switches.image or spec.workload.image) if limits.needs_image else None,
        experiment_name=text,
        training=training,
        parameters=parameters,
        switches=mode.switches,
        framework=spec.framework,
        release=spec.release,
        rows_of=limits.rows if spec.framework == BRIDGE and limits.rows != limits.gpu_type else None,
        dotted=spec.dotted,
    )


def _training(spec: JobSpec, row: Row, shape: ModelShape, label: str) -> Training:
    """The numbers of training. Raises UsageError for a division with a remainder."""
    given = spec.params
    assert row.mbs is not None, "Size refuses such rows"
    assert row.gbs is not None
    tp, pp, cp = (given.get(name, getattr(row, name)) for name in ("tp", "pp", "cp"))
    vp = given.get("vp", row.vp)
    mbs, ep = given.get("mbs", row.mbs), given.get("ep", row.ep)
    etp = given.get("etp", row.etp or (tp if shape.moe is not None else 1))
    ways = f"tp·pp·cp = {tp}·{pp}·{cp}"
    dp = rules.divide(spec.scale, tp * pp * cp, f"{label}: the scale", ways, key="scale tp pp cp")
    gbs = given.get("gbs", row.gbs.batch(spec.scale))
    if gbs is None:
        message = f"{label}: the global batch {row.gbs.text} is not a whole number"
        raise UsageError(message, hint="choose another scale, or --set gbs=N", code="batch-not-whole", key="scale")
    batch = f"{label}: the global batch {gbs}"
    ga = rules.divide(gbs, mbs * dp, batch, f"mbs·dp = {mbs}·{dp}", key="gbs mbs scale")
    model = _model(shape, given.get("num_layers", row.layers), label)
    return Training(
        model=model,
        tp=tp,
        pp=pp,
        cp=cp,
        vp=vp,
        ep=ep,
        etp=etp,
        dp=dp,
        mbs=mbs,
        gbs=gbs,
        ga=ga,
        seq_length=model.seq_length,
        num_layers=model.layers,
        learning_rate=spec.own_size.learning_rate,
    )


def _mode(spec: JobSpec, row: Row | None) -> rules.Mode:
    size, release = spec.own_size, row.release(spec.scale) if row is not None else None
    steps = size.max_steps or spec.workload.max_steps
    try:
        return rules.mode_of(
            spec.switches,
            profile=spec.profile,
            given_steps=spec.params.get("max_steps"),
            default_steps=steps,
            window=rules.profile_window(spec.workload, size, release, steps),
            profiler=rules.NSYS if size.nemo is not None or spec.framework == BRIDGE else rules.PROFILED,
        )
    except UsageError as error:
        message = f"{spec.label}: {error.message}"
        raise UsageError(message, hint=error.hint, code=error.code, key=error.key, value=error.value) from error


def _nodes(spec: JobSpec, limits: ClusterLimits) -> tuple[int, int]:
    """The nodes and the GPUs on each. Raises UsageError."""
    size, scale, given = spec.own_size, spec.scale, spec.switches.gpus_per_node
    per_node = given or limits.gpus_per_node
    key = "gpus_per_node scale" if given else "scale"
    if limits.one_machine:
        if size.whole_nodes and limits.rows != CPU and scale > per_node:
            message = f"{spec.label}: {scale} GPUs are more than the {per_node} of one machine"
            hint = f"choose fewer; --gpus-per-node {scale}, where this machine has as many"
            raise UsageError(message, hint=hint, code="machine-too-small", key=key, value=scale)
        return 1, scale
    if limits.requested is not None and limits.rows != CPU and per_node > limits.requested:
        message = f"{per_node} ranks per node, but the cluster's gres requests {limits.requested} GPUs per node"
        hint = f"choose at most {limits.requested}, or set 'gres' in cluster_config.yaml to what a node has"
        message = f"{spec.label}: gpus_per_node: {message}"
        raise UsageError(message, hint=hint, code="gres-exceeded", key="gpus_per_node", value=per_node)
    if scale % per_node == 0:
        return scale // per_node, per_node
    if not size.whole_nodes and scale < per_node:
        return 1, scale
    hint = f"choose a multiple of {per_node} GPUs"
    if given:
        fitting = [count for count in range(1, limits.gpus_per_node + 1) if scale % count == 0]
        hint = f"choose a number of GPUs per node that divides {scale}: {rules.alternatives(fitting)}"
    message = f"{spec.label}: {scale} GPUs do not fill whole nodes of {per_node}"
    raise UsageError(message, hint=hint, code="nodes-not-full", key=key, value=per_node)


def _model(model: ModelShape, layers: int | None, label: str) -> ModelShape:
    """The shape with ``layers`` layers; of a hybrid the first ones. Raises UsageError."""
    if layers is None or layers == model.layers:
        return model
    if model.pattern is None:
        return replace(model, layers=layers)
    if layers > model.layers:
        message = f"{label}: a hybrid of {model.layers} layers has no pattern for {layers}"
        raise UsageError(message, hint="choose fewer", code="pattern-too-short", key="num_layers", value=layers)
    return replace(model, layers=layers, pattern=model.pattern[:layers])
