# SPDX-License-Identifier: Apache-2.0
"""`llmb-run single`: one configuration, given by options, or by the variables of the older launch scripts."""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import click

from llmb.cli.context import Context, say
from llmb.cli.submit.options import Option, SubmitOptions, overrides_of, with_options
from llmb.errors import Fault, InputFaults, UsageError, as_fault, collected
from llmb.workload.switches import absolute_image, parse_clock, parse_mount


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleOptions(SubmitOptions):
    """The options of ``single``."""

    workload: Annotated[str, Option("Workload, in any spelling.", "-w", "--workload", required=True, metavar="W")]
    size: Annotated[str | None, Option("Model size (default: the workload's).", "-s", "--size", metavar="SIZE")]
    dtype: Annotated[str | None, Option("Precision (default: the workload's).", metavar="D")]
    scale: Annotated[int | None, Option("GPU count (default: JOB_TOTAL_GPUS).")]
    repeats: Annotated[int, Option("Run it N times.", default=1)]


def _word(value: str) -> str:
    return value.strip().lower()


def _number(value: str, least: int = 1) -> int:
    if not value.strip().isdecimal() or int(value) < least:
        raise ValueError(f"must be a whole number from {least}")
    return int(value)


def _flag(value: str) -> bool:
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    if _word(value) not in words:
        raise ValueError("must be true or false")
    return words[_word(value)]


def _clock(value: str) -> str:
    parse_clock(value)
    return value.strip()


def _mounts(value: str) -> tuple[str, ...]:
    return tuple(parse_mount(item) for item in value.split(",") if item.strip())


# The field of SingleOptions that each variable sets, and how its text is read.
VARIABLES: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "JOB_TOTAL_GPUS": ("scale", _number),
    "MODEL_SIZE": ("size", str.strip),
    "DTYPE": ("dtype", _word),
    "GPU_TYPE": ("gpu_type", _word),
    "GPUS_PER_NODE": ("gpus_per_node", _number),
    "MAX_STEPS": ("max_steps", _number),
    "GBS": ("gbs", _number),
    "TIME_LIMIT": ("time_limit", _clock),
    "STRONG_SCALING": ("strong_scaling", _flag),
    "ENABLE_PROFILE": ("profile", _flag),
    "PROFILE_START_STEP": ("profile_start", partial(_number, least=0)),
    "PROFILE_STOP_STEP": ("profile_stop", _number),
    "PROFILE_RANKS": ("profile_ranks", str.strip),
    "ENABLE_GPU_METRICS": ("gpu_metrics", _flag),
    "ENABLE_NCCLTRACE": ("nccl_trace", _flag),
    "ENABLE_CHECKPOINT": ("save_checkpoint", _flag),
    "LOAD_CHECKPOINT_PATH": ("load_checkpoint", str.strip),
    "ENABLE_VBOOST": ("vboost", _flag),
    "RUN_CONF_IMAGE": ("image", absolute_image),
    "RUN_CONF_MOUNTS": ("mounts", _mounts),
}
_GPUS, _NODES, _CLUSTER_TYPE = "JOB_TOTAL_GPUS", "NUM_NODES", "CLUSTER_TYPE"
_OF_PROFILES = ("PROFILE_START_STEP", "PROFILE_STOP_STEP", "PROFILE_RANKS", "ENABLE_GPU_METRICS")


@click.command("single")
@with_options(SingleOptions)
def command(context: Context, options: SingleOptions) -> int:
    """Submit one configuration.

    The variables of the older launch scripts (JOB_TOTAL_GPUS, GPU_TYPE, DTYPE, MODEL_SIZE, ...) are read too. Options
    override them, and llmb prints those that it uses.
    """
    from llmb.cli.submit import flow
    from llmb.planning import plan
    from llmb.runs.job import JobList, JobRequest

    click_context = click.get_current_context()
    source = click.core.ParameterSource.COMMANDLINE
    given = {name for name in click_context.params if click_context.get_parameter_source(name) is source}
    set_words = dict(item.split("=", 1) for item in options.params if "=" in item)
    faults: list[Fault] = []
    used: dict[str, str] = {}
    with collected(faults):
        options, used = read_variables(options, given | set_words.keys(), os.environ)
    try:
        overrides = overrides_of(options, context.parameters)
    except InputFaults as error:
        faults += place_at_variables(error, used, {}).faults
    with flow.refusing(dry_run=options.dry_run):
        if faults:
            raise InputFaults(faults)
        if _NODES in used:
            options = replace(options, scale=_scale_of_nodes(context, options, int(used[_NODES])))
        if options.scale is None:
            hint = "--scale N, or JOB_TOTAL_GPUS=N before the command"
            raise UsageError("the GPU count is missing", hint=hint, code="scale-missing", key="scale")
        check_cluster_type(os.environ, context.config.cluster_type)
    request = JobRequest(
        workload=options.workload,
        size=options.size,
        dtypes=(options.dtype,) if options.dtype else (),
        scales=(options.scale,),
        repeats=options.repeats,
        profile=options.profile,
        framework=options.framework,
        release=options.release,
    )
    if options.gpu_type is None and (only := plan.only_gpu_type(request, context.workloads, context.config)):
        workload, size, gpu_type = only
        say(f"note: of this cluster's GPU types, {workload} {size} runs only on {gpu_type}")
        options = replace(options, gpu_type=gpu_type)
    given_type = options.gpu_type or context.config.gpu_type
    wants_profile = "ENABLE_PROFILE" in used and request.profile
    if wants_profile and plan.measures_too(request, context.workloads, context.config, given_type):
        say(
            "note: ENABLE_PROFILE gives two jobs, as in release 25.04: one measured, one profiled (-p: the second only)"
        )
        request = replace(request, profile=False, add_profile=True)
    try:
        return flow.run(context, JobList(requests=(request,)), options, overrides)
    except UsageError as error:
        raise place_at_variables(error, used, set_words) from error


def read_variables(
    options: SingleOptions, given: Collection[str], environ: Mapping[str, str]
) -> tuple[SingleOptions, dict[str, str]]:
    """``options`` with the values of variables for those that are not ``given``, and the variables used, by name.

    Prints which variables it uses and which it ignores. An empty variable is as none. Raises InputFaults with every
    invalid value.
    """
    from llmb.workload.variables import unread

    values, used, ignored, faults = dict[str, Any](), dict[str, str](), list[str](), list[Fault]()
    for name, (field, read) in {**VARIABLES, _NODES: ("scale", _number)}.items():
        text = environ.get(name, "")
        if not text.strip():
            continue
        if field in given:
            ignored.append(f"{name} (--{field.replace('_', '-')} is given)")
            continue
        try:
            value = read(text)
        except ValueError as error:
            hint = f"correct {name}, or unset it"
            place = f"{name}={text}"
            faults.append(Fault(place=place, message=str(error), hint=hint, code="variable-invalid", key=field))
            continue
        used[name] = text.strip()
        if name != _NODES:
            values[field] = value
    if faults:
        raise InputFaults(faults)
    for name in _OF_PROFILES:
        if name in used and not values.get("profile", options.profile):
            del values[VARIABLES[name][0]], used[name]
            if _word(environ[name]) != "false":
                ignored.append(f"{name} (ENABLE_PROFILE is not true)")
    ignored += unread(environ, (*VARIABLES, _NODES))
    if used:
        say(f"note: from the environment: {' '.join(f'{name}={text}' for name, text in used.items())}")
    if ignored:
        say(f"note: not used: {', '.join(ignored)}")
    return replace(options, **values), used


def check_cluster_type(environ: Mapping[str, str], cluster_type: str) -> None:
    """Raise UsageError where CLUSTER_TYPE names another cluster type than the install directory has."""
    wanted = _word(environ.get(_CLUSTER_TYPE, ""))
    if wanted and wanted != cluster_type:
        message = f"{_CLUSTER_TYPE}={wanted}: this install directory is for cluster type {cluster_type}"
        hint = f"choose another with --install, or unset {_CLUSTER_TYPE}"
        raise UsageError(message, hint=hint, code="cluster-type-conflict", key="cluster_type", value=wanted)


def place_at_variables(error: UsageError, used: Mapping[str, str], given: Mapping[str, str]) -> InputFaults:
    """The error, each fault placed at the variables (``used``) and the pairs of --set (``given``) that caused it."""
    is_list = isinstance(error, InputFaults)
    faults = error.faults if isinstance(error, InputFaults) else [as_fault(error)]
    return InputFaults([_placed(fault, used, given) for fault in faults], hint=error.hint if is_list else None)


def _placed(fault: Fault, used: Mapping[str, str], given: Mapping[str, str]) -> Fault:
    """``fault`` at the variables and pairs that its key names; at the GPU count only where there is no other."""
    if fault.place:
        return fault
    keys = fault.key.split()
    named = [f"--set {name}={text}" for name, text in given.items() if name in keys]
    variables = [name for name in used if name in VARIABLES and VARIABLES[name][0] in keys]
    named += [f"{name}={used[name]}" for name in variables if name != _GPUS or (len(variables) == 1 and not named)]
    return replace(fault, place=" ".join(named))


def _scale_of_nodes(context: Context, options: SingleOptions, nodes: int) -> int:
    """The GPU count for NUM_NODES of release 24.11. Raises UsageError where JOB_TOTAL_GPUS is another."""
    config, wanted = context.config, options.gpu_type
    known = (config.gpu_type, *config.gpu_types)
    gpu_type = wanted if wanted is not None and wanted in known else config.gpu_type
    per_node = options.gpus_per_node or config.gpu(gpu_type).gpus_per_node
    gpus = nodes * per_node
    if options.scale not in (None, gpus):
        message = f"{_NODES}={nodes} with {per_node} GPUs per node gives {gpus} GPUs, but {_GPUS} is {options.scale}"
        raise UsageError(message, hint=f"unset {_NODES} or {_GPUS}", code="scale-conflict", key="scale", value=gpus)
    say(f"note: {_NODES}={nodes}: {gpus} GPUs")
    return gpus
