# SPDX-License-Identifier: Apache-2.0
"""Computes every number of one job from its workload's row, and checks that all divide. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from llmb.contract.gpus import CPU, gpus_in_words, known_types
from llmb.contract.job import Job, Training
from llmb.contract.parameters import values_of
from llmb.contract.rows import Row, find_row
from llmb.contract.settings import Settings
from llmb.contract.spec import Size, Workload
from llmb.core.names import nearest, suggest, with_list_command
from llmb.errors import Fault, InputFaults, UsageError, collected
from llmb.plan import framework, rules, splits
from llmb.plan.limits import ClusterLimits
from llmb.plan.published import raises_vboost


def row_for(
    settings: Settings, workload: Workload, limits: ClusterLimits, *, force: bool
) -> tuple[Row, list[str]]:
    """The row that applies, and a warning about an unusual scale. Raises UsageError.

    With some frameworks every scale is allowed: NVIDIA's launch scripts for Megatron-Bridge take
    any GPU count, keep the settings and change the batch in proportion (set_post_overrides).
    Whether it divides is checked later.
    """
    size, gpu = workload.sizes[settings.model_size], limits.gpu_type
    known = workload.frameworks.get(settings.framework)
    strong = bool(settings.strong_scaling)
    dtypes = size.dtypes(limits.rows)
    if not dtypes:
        sizes = list(workload.on(limits.rows))
        also = f"; on {gpu} run {', '.join(sizes)}" if sizes else ""
        hint = f"it runs on {', '.join(size.gpu_types())}{also}{_like_hint(size, limits)}"
        message = f"{settings.label} does not run on {gpu}"
        raise UsageError(message, hint=hint, code="gpu-type-unsupported", key="gpu_type", value=gpu)
    is_known = settings.dtype in dtypes
    faults = [] if is_known else [_unknown_dtype(settings, workload, dtypes, limits)]
    tested = {dtype: size.scales(limits.rows, dtype, strong=strong) for dtype in dtypes}
    counts = (
        tested[settings.dtype]
        if is_known
        else sorted({count for scales in tested.values() for count in scales})
    )
    warnings = []
    row = find_row(size.rows, limits.rows, settings.dtype, settings.scale, strong=strong)
    if not counts:
        message, hint = (
            f"{settings.label} has no strong scaling on {gpu}",
            _strong_hint(size, limits.rows),
        )
        faults.append(
            Fault(message=message, hint=hint, code="no-strong-scaling", key="strong_scaling")
        )
    elif not (size.any_scale and settings.scale >= min(counts)) and settings.scale not in (
        *counts,
        *rules.checkpoint_scales(settings, size, limits.rows),
    ):
        is_uniform = len({tuple(scales) for scales in tested.values()}) == 1 or not is_known
        subject, named = (
            f"{settings.label}{'' if is_uniform else f' {settings.dtype}'} on {gpu}",
            ", ".join(map(str, counts)),
        )
        message = f"{subject} has no scale {settings.scale}"
        if known is not None and known.any_scale and not size.exact_scales:
            own = row.scales.counts if row is not None else counts
            near = max((count for count in own if count <= settings.scale), default=own[0])
            warnings.append(
                f"{subject}: {known.publisher or 'its plugin'} has configurations of {known.title}"
                f" for {named} GPUs; "
                f"{settings.scale} has the settings of {near}, untested"
            )
        elif settings.scale > counts[-1] and not size.exact_scales:
            warnings.append(
                f"{subject}: scale {settings.scale} is untested, above the tested {named}"
            )
        elif force:
            warnings.append(f"{message}: tested are {named}; --force allows it")
        else:
            hint = with_list_command(
                f"tested are {named}{_proxy_hint(settings, workload, limits)};"
                " --force allows another",
                settings.workload,
            )
            faults.append(
                Fault(
                    message=message,
                    hint=hint,
                    code="scale-untested",
                    key="scale",
                    value=settings.scale,
                )
            )
    if faults or row is None:
        raise InputFaults(faults)
    return row, warnings


def _like_hint(size: Size, limits: ClusterLimits) -> str:
    """Return how to use the rows of the type whose configurations fit best."""
    gpu = known_types().get(limits.rows)
    if gpu is None or gpu.like is None or not size.dtypes(gpu.like):
        return ""
    line = f"gpu_types: {{{limits.gpu_type}: {{like: {gpu.like}}}}}"
    return f"; in cluster_config.yaml, {line} uses the rows of {gpu.like}"


def _proxy_hint(settings: Settings, workload: Workload, limits: ClusterLimits) -> str:
    """Return the size's proxy, if that was tested at the scale."""
    proxy = workload.sizes[settings.model_size].proxy
    if proxy is None or settings.scale not in workload.sizes[proxy].scales(
        limits.rows, settings.dtype, strong=False
    ):
        return ""
    return f"; at {gpus_in_words(settings.scale)} run its proxy: -s {proxy}, in a list proxy: true"


def _unknown_dtype(
    settings: Settings, workload: Workload, dtypes: Sequence[str], limits: ClusterLimits
) -> Fault:
    message = f"{settings.label} on {limits.gpu_type} has no dtype '{settings.dtype}'"
    offered = (
        f"its only dtype there is {dtypes[0]}"
        if len(dtypes) == 1
        else f"there it has {', '.join(dtypes)}"
    )
    brought = framework.brought_dtypes(workload, settings.model_size, limits.rows)
    brought_by = [name for name, words in brought.items() if settings.dtype in words]
    if settings.framework not in brought and brought_by:
        title = framework.title_of(brought_by[0], workload)
        current = (
            ", or dtype fp8 with --set fp8=current"
            if settings.dtype == "fp8_cs" and "fp8" in dtypes
            else ""
        )
        hint = (
            f"{offered}{current}; {title} has it: --framework {brought_by[0]}, in a list framework:"
            f" {brought_by[0]}"
        )
        return Fault(
            message=message,
            hint=hint,
            code="dtype-unknown",
            key="dtype",
            value=settings.dtype,
        )
    elsewhere = {
        dtype for size in workload.sizes.values() for row in size.rows for dtype in row.dtype
    }
    is_meant = settings.dtype in elsewhere or nearest(settings.dtype, dtypes) is None
    hint = with_list_command(
        offered if is_meant else suggest(settings.dtype, dtypes), settings.workload
    )
    return Fault(
        message=message, hint=hint, code="dtype-unknown", key="dtype", value=settings.dtype
    )


def _strong_hint(size: Size, gpu: str) -> str:
    """Return the GPU types with strong scaling. Some sizes have no other rows."""
    if all(row.strong_scaling for row in size.rows if gpu in row.gpu):
        return "its batch is the same at every scale: ask for strong scaling"
    gpu_types = dict.fromkeys(gpu for row in size.rows if row.strong_scaling for gpu in row.gpu)
    return (
        f"omit strong scaling; it is for {', '.join(gpu_types)}"
        if gpu_types
        else "omit strong scaling"
    )


LONGEST_NAME = 200  # characters: names of files, of up to 255, are this with more before and after


def configure(
    settings: Settings, workload: Workload, limits: ClusterLimits, *, force: bool = False
) -> tuple[Job, list[str]]:
    """Return the job with the given ``settings``, and warnings about it. Raises UsageError.

    ``workload`` is theirs, with the rows of their framework and release.
    ``force`` allows untested scales and checkpoints.
    """
    size = workload.sizes[settings.model_size]
    try:
        row, warnings = row_for(settings, workload, limits, force=force)
    except UsageError as error:
        raise _with_others(error, settings, workload, limits) from error
    rules.check_model(settings, size)
    rules.check_container(settings, container=limits.needs_image)
    warnings += rules.check_checkpoint(settings, size, limits.rows, force=force)
    known = workload.frameworks.get(settings.framework)
    if settings.dotted and known is not None and not known.dotted:
        name = next(iter(settings.dotted))
        able = [other for other in workload.frameworks.values() if other.dotted]
        titles = " or ".join(other.title for other in able)
        message = (
            f"{settings.label}: '{name}' is a setting of {titles}, and this job trains with"
            " another framework"
        )
        hint = f"omit it, or --framework {' or '.join(other.name for other in able)}"
        raise UsageError(message, hint=hint, code="dotted-without-bridge", key=name, value=name)
    job = _settle(settings, workload, row, limits)
    if job.rows_of is not None:
        title = framework.title_of(settings.framework, workload)
        publisher = known.publisher if known is not None else ""
        warnings.append(
            f"{settings.label}: {publisher or 'its plugin'} has no configuration of {title} for"
            f" {limits.gpu_type}; that of {job.rows_of} is used, unmeasured there"
        )
    job, ignored = _with_vboost(job, settings, size, row, limits)
    if job.training is not None:
        splits.check_splits(job.training, size, row, settings.label)
    if settings.profile:
        rules.check_ranks(settings)
    return job, warnings + ignored


def _with_vboost(
    job: Job, settings: Settings, size: Size, row: Row, limits: ClusterLimits
) -> tuple[Job, list[str]]:
    """Return the job with the switch's vboost, else the release's, and any warning."""
    vboost = settings.vboost
    if not limits.sets_vboost or limits.rows == CPU:
        reason = "there is no GPU" if limits.rows == CPU else "only a job on Slurm can set it"
        return job, [f"{settings.label}: vboost is not changed: {reason}"] if vboost else []
    if vboost is None and size.nemo is not None:
        vboost = raises_vboost(row.release(settings.scale))
    return replace(job, vboost=vboost), []


def _with_others(
    error: UsageError, settings: Settings, workload: Workload, limits: ClusterLimits
) -> UsageError:
    """The error that no row applies, with the faults that do not depend on the row."""
    faults: list[Fault] = []
    checks: tuple[Callable[[], object], ...] = (
        lambda: _mode(settings, workload, None),
        lambda: rules.check_container(settings, container=limits.needs_image),
        lambda: rules.check_ranks(settings) if settings.profile else None,
    )
    with collected(faults):
        raise error
    for check in checks:
        with collected(faults):
            check()
    return InputFaults(faults) if len(faults) > 1 else error


def _settle(settings: Settings, workload: Workload, row: Row, limits: ClusterLimits) -> Job:
    """The job with all its numbers. Raises UsageError for a division with a remainder."""
    size = workload.sizes[settings.model_size]
    training = splits.training_of(settings, size, row) if size.model is not None else None
    nodes, per_node = splits.nodes_of(settings, size, limits)
    mode = _mode(settings, workload, row)
    parameters = values_of(workload.parameters_of(settings.model_size), settings.parameters)
    name = _experiment_name(settings, training, parameters, mode.words)
    minutes = row.time_limit_minutes or size.time_limit_minutes or workload.time_limit_minutes
    return Job(
        workload=settings.workload,
        model_size=settings.model_size,
        dtype=settings.dtype,
        gpu_type=limits.gpu_type,
        scale=settings.scale,
        repeat=1,
        profile=settings.profile,
        env={**limits.environment, **settings.env},
        max_steps=mode.max_steps,
        nodes=nodes,
        gpus_per_node=per_node,
        time_limit=mode.time_limit or limits.time_limit or 60 * minutes,
        image=(settings.image or workload.image) if limits.needs_image else None,
        experiment_name=name,
        training=training,
        parameters=parameters,
        switches=mode.switches,
        framework=settings.framework,
        release=settings.release,
        rows_of=(
            limits.rows if settings.release is not None and limits.rows != limits.gpu_type else None
        ),
        dotted=settings.dotted,
    )


def _experiment_name(
    settings: Settings,
    training: Training | None,
    parameters: Mapping[str, str],
    words: Sequence[str],
) -> str:
    """Return the configuration as one name, published settings first. Raises UsageError."""
    parts = [settings.workload, settings.model_size, settings.dtype, f"gpus{settings.scale}"]
    if training is not None:
        parts += [f"{key}{getattr(training, key)}" for key in ("tp", "pp", "cp", "vp")]
        if training.model.moe is not None:
            parts += [
                f"ep{training.ep}",
                *([f"etp{training.etp}"] if training.etp != training.tp else []),
            ]
        parts += [f"mbs{training.mbs}", f"gbs{training.gbs}"]
    parts += [f"{key}{value}" for key, value in parameters.items()]
    parts += [] if settings.release is None else [f"{settings.framework}{settings.release}"]
    parts += [word for word in words if word.startswith("steps")]
    parts += [f"layers{settings.num_layers}"] if settings.num_layers is not None else []
    parts += [word for word in words if not word.startswith("steps")]
    if len(name := "_".join(parts)) <= LONGEST_NAME:
        return name
    message = (
        f"{settings.label} at {gpus_in_words(settings.scale)}: the name of the experiment has"
        f" {len(name)} characters"
    )
    message = f"{message}, more than {LONGEST_NAME}: {name}"
    raise UsageError(
        message, hint="choose shorter values of its parameters", code="name-too-long", value=name
    )


def _mode(settings: Settings, workload: Workload, row: Row | None) -> rules.Mode:
    size = workload.sizes[settings.model_size]
    release = row.release(settings.scale) if row is not None else None
    steps = size.max_steps or workload.max_steps
    known = workload.frameworks.get(settings.framework)
    has_nsys = size.nemo is not None or (known is not None and known.nsys)
    try:
        return rules.mode_of(
            settings,
            default_steps=steps,
            window=rules.profile_window(workload, size, release, steps),
            profiler=rules.NSYS if has_nsys else rules.PROFILED,
        )
    except UsageError as error:
        message = f"{settings.label}: {error.message}"
        raise UsageError(
            message, hint=error.hint, code=error.code, key=error.key, value=error.value
        ) from error
