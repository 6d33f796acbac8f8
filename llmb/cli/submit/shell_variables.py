# SPDX-License-Identifier: Apache-2.0
"""The variables of NVIDIA's launch scripts in the shell, as the settings of one configuration."""

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import TypeVar, cast

from llmb.cli.context import Context, say
from llmb.cli.submit.options import SubmitOptions
from llmb.errors import Fault, InputFaults, KeyFaultError, UsageError, as_fault
from llmb.workload.switches import PARAMS

Options = TypeVar("Options", bound=SubmitOptions)

GPUS, NODES, CLUSTER_TYPE = "JOB_TOTAL_GPUS", "NUM_NODES", "CLUSTER_TYPE"
SLURM_PARAMS = "ADDITIONAL_SLURM_PARAMS"  # which every submitting command reads
FP8_RECIPE = "fp8_recipe"  # what the variable of that name sets
_OF_PROFILES = ("PROFILE_START_STEP", "PROFILE_STOP_STEP", "PROFILE_RANKS", "ENABLE_GPU_METRICS")
_FLAGS = {"scales": "scale", "dtypes": "dtype"}  # fields whose option has another name


def read_variables(
    options: Options, given: Collection[str], environ: Mapping[str, str]
) -> tuple[Options, dict[str, str]]:
    """``options`` with the values of variables for those that are not ``given``, and the variables used, by name.

    Prints which variables it uses and which it ignores. An empty variable is as none. Raises InputFaults with every
    invalid value.
    """
    from llmb.workload.launch_variables import table, unread

    known = {name: own for name, own in table().items() if own.sets and not own.layer}
    values, used, ignored, faults = dict[str, object](), dict[str, str](), list[str](), list[Fault]()
    own_fields = {field.name for field in fields(options)}
    for name, variable in known.items():
        text, field = environ.get(name, ""), "scales" if name == NODES else variable.sets
        if not text.strip() or name in (CLUSTER_TYPE, SLURM_PARAMS):
            continue
        if field in given:
            is_set = field in PARAMS and field not in own_fields
            flag = f"--set {field}" if is_set else f"--{_FLAGS.get(field, field).replace('_', '-')}"
            ignored.append(f"{name} ({flag} is given)")
            continue
        try:
            value = variable.value(text)
        except ValueError as error:
            hint = f"correct {name}, or unset it"
            place = f"{name}={text}"
            faults.append(Fault(place=place, message=str(error), hint=hint, code="variable-invalid", key=field))
            continue
        if name != NODES and values.setdefault(field, value) != value:
            other = next(one for one in used if known[one].sets == field)
            ignored.append(f"{name} ({other} is used)")
            continue
        used[name] = text.strip()
    if faults:
        raise InputFaults(faults)
    for name in _OF_PROFILES:
        if name in used and not values.get("profile", options.profile):
            del values[known[name].sets], used[name]
            if environ[name].strip().lower() != "false":
                ignored.append(f"{name} (ENABLE_PROFILE is not true)")
    if (recipe := values.pop(FP8_RECIPE, None)) is not None:
        why = "--set fp8 is given" if "fp8" in given else ""
        if not why and not _set_recipe(str(recipe), options, values):
            why = "no dtype is fp8"
        if why:
            del used["FP8_RECIPE"]
            ignored.append(f"FP8_RECIPE ({why})")
    ignored += unread(environ, known)
    if used:
        say(f"note: from the environment: {' '.join(f'{name}={text}' for name, text in used.items())}")
    if ignored:
        say(f"note: not used: {', '.join(ignored)}")
    params = tuple(f"{name}={value}" for name, value in values.items() if name not in own_fields)
    own = {name: value for name, value in values.items() if name in own_fields}
    return replace(options, **own, params=(*options.params, *params)), used  # type: ignore[arg-type]


def read_slurm_params(context: Context, environ: Mapping[str, str]) -> None:
    """Add the options of sbatch in ADDITIONAL_SLURM_PARAMS to those of the command line, which override them.

    Prints which it uses and which not. Raises InputFaults for one that llmb sets.
    """
    from llmb.config.slurm import check_slurm_args, long_name
    from llmb.workload.launch_variables import read_slurm

    text = environ.get(SLURM_PARAMS, "").strip()
    found = {long_name(key): value for key, value in read_slurm(text).items()}
    try:
        check_slurm_args(found)
    except KeyFaultError as error:
        raise InputFaults([error.as_fault(f"{SLURM_PARAMS}={text}")]) from error
    own = {key: value for key, value in found.items() if key not in context.slurm_args}
    if own:
        say(f"note: from the environment: {SLURM_PARAMS}={text}")
    if own != found:
        both = ", ".join(key for key in found if key not in own)
        say(f"note: not used: {both} of {SLURM_PARAMS} (the command line has it)")
    context.slurm_args |= own
    try:
        _ = context.config if own else None
    except InputFaults as error:
        faults = [_from_variable(one, own, text) for one in error.faults]
        raise InputFaults(faults, hint=error.hint, code=error.code) from error


def _from_variable(fault: Fault, own: Collection[str], text: str) -> Fault:
    """The ``fault`` at the variable, where that has its option."""
    option = fault.key.rpartition(" ")[2].strip("-")
    return replace(fault, place=f"{SLURM_PARAMS}={text}") if option in own else fault


def _set_recipe(recipe: str, options: SubmitOptions, values: dict[str, object]) -> bool:
    """Set what FP8_RECIPE means for dtype fp8, which is the default as in NVIDIA's scripts; whether a job has it."""
    from llmb.workload.launch_variables import DELAYED

    dtypes = cast(tuple[str, ...], values.get("dtypes") or getattr(options, "dtypes", ()) or ("fp8",))
    if "fp8" not in dtypes:
        return False
    if recipe == DELAYED:
        values["fp8"] = DELAYED
    else:
        values["dtypes"] = tuple(recipe if name == "fp8" else name for name in dtypes)
    return True


def check_cluster_type(environ: Mapping[str, str], cluster_type: str) -> None:
    """Raise UsageError where CLUSTER_TYPE names another cluster type than the install directory has."""
    wanted = environ.get(CLUSTER_TYPE, "").strip().lower()
    if wanted and wanted != cluster_type:
        message = f"{CLUSTER_TYPE}={wanted}: this install directory is for cluster type {cluster_type}"
        hint = f"choose another with --install, or unset {CLUSTER_TYPE}"
        raise UsageError(message, hint=hint, code="cluster-type-conflict", key="cluster_type", value=wanted)


def place_at_variables(error: UsageError, used: Mapping[str, str], given: Mapping[str, str]) -> InputFaults:
    """The error, each fault placed at the variables (``used``) and the pairs of --set (``given``) that caused it."""
    is_list = isinstance(error, InputFaults)
    faults = error.faults if isinstance(error, InputFaults) else [as_fault(error)]
    return InputFaults([_placed(fault, used, given) for fault in faults], hint=error.hint if is_list else None)


def _placed(fault: Fault, used: Mapping[str, str], given: Mapping[str, str]) -> Fault:
    """``fault`` at the variables and pairs that its key names; at the GPU count only where there is no other."""
    from llmb.workload.launch_variables import table

    if fault.place:
        return fault
    keys = {{"scale": "scales", "dtype": "dtypes"}.get(key, key) for key in fault.key.split()}
    named = [f"--set {name}={text}" for name, text in given.items() if name in keys]
    variables = [name for name in used if table()[name].sets in keys]
    named += [f"{name}={used[name]}" for name in variables if name != GPUS or (len(variables) == 1 and not named)]
    return replace(fault, place=" ".join(named))


def gpus_of_nodes(
    context: Context, wanted: str | None, per_node: int | None, scales: tuple[int, ...], nodes: int
) -> tuple[int]:
    """The GPU count for NUM_NODES of release 24.11, on the GPU type ``wanted``.

    Raises UsageError where ``scales``, from JOB_TOTAL_GPUS, is another count.
    """
    config = context.config
    known = (config.gpu_type, *config.gpu_types)
    gpu_type = wanted if wanted is not None and wanted in known else config.gpu_type
    each = per_node or config.gpu(gpu_type).gpus_per_node
    gpus = nodes * each
    if scales not in ((), (gpus,)):
        message = f"{NODES}={nodes} with {each} GPUs per node gives {gpus} GPUs, but {GPUS} is {scales[0]}"
        raise UsageError(message, hint=f"unset {NODES} or {GPUS}", code="scale-conflict", key="scale", value=gpus)
    say(f"note: {NODES}={nodes}: {gpus} GPUs")
    return (gpus,)
