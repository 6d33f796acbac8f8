# SPDX-License-Identifier: Apache-2.0
"""Settles every number of one job from its workload's row, and checks that all of them divide. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from llmb.errors import Fault, InputFaults, UsageError, collected
from llmb.planning import rules
from llmb.planning.find_row import row_for
from llmb.planning.job_spec import ClusterLimits, JobSpec
from llmb.planning.splits import check_splits, expert_words, nodes_of, training_of
from llmb.runs.job import Job, Training
from llmb.workload.bridge import BRIDGE
from llmb.workload.gpus import CPU, gpus_in_words
from llmb.workload.parameters import values_of
from llmb.workload.published import raises_vboost
from llmb.workload.rows import Row
from llmb.workload.switches import NO_SWITCHES

LONGEST_NAME = 200  # characters: names of files, of up to 255, are this with more before and after


def configure(spec: JobSpec, limits: ClusterLimits, *, force: bool = False) -> tuple[Job, list[str]]:
    """The job of one configuration, and warnings about it; ``force`` allows untested scales and checkpoints.

    Raises UsageError.
    """
    size, switches = spec.own_size, spec.switches
    try:
        row, warnings = row_for(spec, limits, force=force)
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
        check_splits(job.training, size, spec.label)
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


def _settle(spec: JobSpec, row: Row, limits: ClusterLimits) -> Job:
    """The job with all its numbers. Raises UsageError for a division with a remainder."""
    size, switches = spec.own_size, spec.switches
    label = f"{spec.label} at {gpus_in_words(spec.scale)}"
    training = training_of(spec, row, size.model, label) if size.model is not None else None
    nodes, per_node = nodes_of(spec, limits)
    mode = _mode(spec, row)
    parameters = values_of(spec.workload.parameters_of(spec.size), spec.parameters)
    name = _experiment_name(spec, training, parameters, mode.words)
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
        experiment_name=name,
        training=training,
        parameters=parameters,
        switches=mode.switches,
        framework=spec.framework,
        release=spec.release,
        rows_of=limits.rows if spec.framework == BRIDGE and limits.rows != limits.gpu_type else None,
        dotted=spec.dotted,
    )


def _experiment_name(
    spec: JobSpec, training: Training | None, parameters: Mapping[str, str], words: Sequence[str]
) -> str:
    """The configuration in one name, what differs from the published one last. Raises UsageError if it is too long."""
    parts = [spec.workload.key, spec.size, spec.dtype, f"gpus{spec.scale}"]
    if training is not None:
        parts += [f"{key}{getattr(training, key)}" for key in ("tp", "pp", "cp", "vp")]
        parts += [*expert_words(training), f"mbs{training.mbs}", f"gbs{training.gbs}"]
    parts += [f"{key}{value}" for key, value in parameters.items()]
    parts += [f"{BRIDGE}{spec.release}"] if spec.framework == BRIDGE else []
    parts += [word for word in words if word.startswith("steps")]
    parts += [f"layers{spec.params['num_layers']}"] if "num_layers" in spec.params else []
    parts += [word for word in words if not word.startswith("steps")]
    if len(name := "_".join(parts)) <= LONGEST_NAME:
        return name
    message = f"{spec.label} at {gpus_in_words(spec.scale)}: the name of the experiment has {len(name)} characters"
    message = f"{message}, more than {LONGEST_NAME}: {name}"
    raise UsageError(message, hint="choose shorter values of its parameters", code="name-too-long", value=name)


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
