# SPDX-License-Identifier: Apache-2.0
"""The variables of NVIDIA's launch scripts in the shell, as the settings of one configuration."""

import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

from llmb.cli.context import CliContext, say
from llmb.cli.submit.options import SubmitOptions
from llmb.contract.switches import PARAMS
from llmb.core.names import listed
from llmb.errors import Fault, InputFaults, KeyFaultError, UsageError, as_fault

Options = TypeVar("Options", bound=SubmitOptions)

GPUS, NODES, CLUSTER_TYPE = "JOB_TOTAL_GPUS", "NUM_NODES", "CLUSTER_TYPE"
SLURM_PARAMS = "ADDITIONAL_SLURM_PARAMS"  # which every submitting command reads
FP8_RECIPE = "fp8_recipe"  # what the variable of that name sets
_OF_PROFILES = ("PROFILE_START_STEP", "PROFILE_STOP_STEP", "PROFILE_RANKS", "ENABLE_GPU_METRICS")
_FLAGS = {"scales": "scale", "dtypes": "dtype"}  # fields whose option has another name


def read_variables(
    options: Options, set_names: Collection[str], environ: Mapping[str, str]
) -> tuple[Options, dict[str, str]]:
    """Fill options that are not ``set_names`` from variables and return the variables used too.

    Prints the used and the ignored variables. An empty variable is ignored. Raises InputFaults
    with every invalid value.
    """
    from llmb.plan.launch_variables import table, unread

    variables = {name: row for name, row in table().items() if row.sets and not row.layer}
    values, used = dict[str, object](), dict[str, str]()
    ignored, faults = list[str](), list[Fault]()
    option_names = {field.name for field in fields(options)}
    for name, variable in variables.items():
        text, field = environ.get(name, ""), "scales" if name == NODES else variable.sets
        if not text.strip() or name in (CLUSTER_TYPE, SLURM_PARAMS):
            continue
        if field in set_names:
            is_set = field in PARAMS and field not in option_names
            flag = f"--set {field}" if is_set else f"--{_FLAGS.get(field, field).replace('_', '-')}"
            ignored.append(f"{name} ({flag} is given)")
            continue
        try:
            value = variable.value(text)
        except ValueError as error:
            hint = f"correct {name}, or unset it"
            place = f"{name}={text}"
            faults.append(
                Fault(
                    place=place, message=str(error), hint=hint, code="variable-invalid", key=field
                )
            )
            continue
        if name != NODES and values.setdefault(field, value) != value:
            first_used = next(earlier for earlier in used if variables[earlier].sets == field)
            ignored.append(f"{name} ({first_used} is used)")
            continue
        used[name] = text.strip()
    if faults:
        raise InputFaults(faults)
    for name in _OF_PROFILES:
        if name in used and not values.get("profile", options.profile):
            del values[variables[name].sets], used[name]
            if environ[name].strip().lower() != "false":
                ignored.append(f"{name} (ENABLE_PROFILE is not true)")
    if (recipe := values.pop(FP8_RECIPE, None)) is not None:
        objection = "--set fp8 is given" if "fp8" in set_names else ""
        if not objection and not _set_recipe(str(recipe), options, values):
            objection = "no dtype is fp8"
        if objection:
            del used["FP8_RECIPE"]
            ignored.append(f"FP8_RECIPE ({objection})")
    ignored += unread(environ, variables)
    if used:
        say(
            "note: from the environment:"
            f" {' '.join(f'{name}={text}' for name, text in used.items())}"
        )
    if ignored:
        say(f"note: not used: {', '.join(ignored)}")
    params = tuple(f"{name}={value}" for name, value in values.items() if name not in option_names)
    changes: dict[str, Any] = {
        name: value for name, value in values.items() if name in option_names
    }
    return replace(options, **changes, params=(*options.params, *params)), used


def read_slurm_params(context: CliContext, environ: Mapping[str, str]) -> None:
    """Add the sbatch options of ADDITIONAL_SLURM_PARAMS. Those of the command line override them.

    Prints the used and the ignored ones. Raises InputFaults for an option that llmb sets.
    """
    from llmb.contract.sbatch import check_slurm_args, long_name
    from llmb.plan.launch_variables import read_slurm

    text = environ.get(SLURM_PARAMS, "").strip()
    sbatch_options = {long_name(key): value for key, value in read_slurm(text).items()}
    try:
        check_slurm_args(sbatch_options)
    except KeyFaultError as error:
        raise InputFaults([error.as_fault(f"{SLURM_PARAMS}={text}")]) from error
    added = {key: value for key, value in sbatch_options.items() if key not in context.slurm_args}
    if added:
        say(f"note: from the environment: {SLURM_PARAMS}={text}")
    if added != sbatch_options:
        overridden = ", ".join(key for key in sbatch_options if key not in added)
        say(f"note: not used: {overridden} of {SLURM_PARAMS} (the command line has it)")
    context.slurm_args |= added
    try:
        _ = context.config if added else None
    except InputFaults as error:
        faults = [_from_variable(fault, added, text) for fault in error.faults]
        raise InputFaults(faults, hint=error.hint, code=error.code) from error


def name_unread(environ: Mapping[str, str]) -> None:
    """Print the variables that a list or a discovery does not read."""
    from llmb.plan.launch_variables import table, unread

    not_launch = [name for name, row in table().items() if not row.sets]
    if launch := list(unread(environ, (SLURM_PARAMS, *not_launch))):
        say(f"note: only `submit -w W -s SIZE` reads these variables: {', '.join(launch)}")
    if others := list(unread(environ, table().keys() - not_launch)):
        say(f"note: not used: {', '.join(others)}")


def name_unpassed(context: CliContext, env: Iterable[str], environ: Mapping[str, str]) -> None:
    """Print which NCCL variables of the shell no job gets, with the option that passes one.

    ``env``: the pairs of ``--env``, which a job gets.
    """
    given = {pair.partition("=")[0] for pair in env}
    names = sorted(name for name in environ if name.startswith("NCCL_") and name not in given)
    if not names:
        return
    passed = context.config.pass_environment
    if names := [name for name in names if name not in passed]:
        example = shlex.quote(f"{names[0]}={environ[names[0]]}")
        say(
            f"note: jobs do not get {listed(names, 8)} of this shell; --env {example} sets it, and"
            " pass_environment in cluster_config.yaml passes it to every job"
        )


def _from_variable(fault: Fault, added: Collection[str], text: str) -> Fault:
    """The ``fault`` at the variable, if that has its option."""
    option = fault.key.rpartition(" ")[2].strip("-")
    return replace(fault, place=f"{SLURM_PARAMS}={text}") if option in added else fault


def _set_recipe(recipe: str, options: SubmitOptions, values: dict[str, object]) -> bool:
    """Set the meaning of FP8_RECIPE for dtype fp8 and return False if no job has that dtype.

    fp8 is the default dtype, as in NVIDIA's scripts.
    """
    from llmb.plan.launch_variables import DELAYED

    dtypes = cast(
        tuple[str, ...], values.get("dtypes") or getattr(options, "dtypes", ()) or ("fp8",)
    )
    if "fp8" not in dtypes:
        return False
    if recipe == DELAYED:
        values["fp8"] = DELAYED
    else:
        values["dtypes"] = tuple(recipe if name == "fp8" else name for name in dtypes)
    return True


def check_cluster_type(environ: Mapping[str, str], cluster_type: str) -> None:
    """Raise UsageError if CLUSTER_TYPE is not the type of the install directory."""
    requested = environ.get(CLUSTER_TYPE, "").strip().lower()
    if requested and requested != cluster_type:
        raise UsageError(
            f"{CLUSTER_TYPE}={requested}: this install directory is for cluster type"
            f" {cluster_type}",
            hint=f"choose another with --install, or unset {CLUSTER_TYPE}",
            code="cluster-type-conflict",
            key="cluster_type",
            value=requested,
        )


def place_at_variables(
    error: UsageError, used: Mapping[str, str], set_pairs: Mapping[str, str]
) -> InputFaults:
    """Place each fault at the variables (``used``) and ``--set`` pairs that caused it."""
    is_list = isinstance(error, InputFaults)
    faults = error.faults if isinstance(error, InputFaults) else [as_fault(error)]
    return InputFaults(
        [_placed(fault, used, set_pairs) for fault in faults], hint=error.hint if is_list else None
    )


def _placed(fault: Fault, used: Mapping[str, str], set_pairs: Mapping[str, str]) -> Fault:
    """Place ``fault`` at the variables and pairs of its key, without them at the GPU count."""
    from llmb.plan.launch_variables import table

    if fault.place:
        return fault
    keys = {{"scale": "scales", "dtype": "dtypes"}.get(key, key) for key in fault.key.split()}
    named = [f"--set {name}={text}" for name, text in set_pairs.items() if name in keys]
    variables = [name for name in used if table()[name].sets in keys]
    named += [
        f"{name}={used[name]}"
        for name in variables
        if name != GPUS or (len(variables) == 1 and not named)
    ]
    return replace(fault, place=" ".join(named))


def gpus_of_nodes(
    context: CliContext,
    requested: str | None,
    per_node: int | None,
    scales: tuple[int, ...],
    nodes: int,
) -> tuple[int]:
    """The GPU count for NUM_NODES of release 24.11, on the GPU type ``requested``.

    Raises UsageError where ``scales``, from JOB_TOTAL_GPUS, is another count.
    """
    config = context.config
    gpu_types = (config.gpu_type, *config.gpu_types)
    gpu_type = requested if requested is not None and requested in gpu_types else config.gpu_type
    gpus_per_node = per_node or config.gpu(gpu_type).gpus_per_node
    gpus = nodes * gpus_per_node
    if scales not in ((), (gpus,)):
        raise UsageError(
            f"{NODES}={nodes} with {gpus_per_node} GPUs per node gives {gpus} GPUs, but {GPUS} is"
            f" {scales[0]}",
            hint=f"unset {NODES} or {GPUS}",
            code="scale-conflict",
            key="scale",
            value=gpus,
        )
    say(f"note: {NODES}={nodes}: {gpus} GPUs")
    return (gpus,)
