# SPDX-License-Identifier: Apache-2.0
"""Variables of other launchers in the shell, as the settings of one configuration."""

import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

from llmb.cli.context import CliContext, say
from llmb.cli.submit.options import SubmitOptions
from llmb.contract.launch_variable import (
    CLUSTER_TYPE,
    DELAYED,
    FP8_RECIPE,
    NODES,
    SCALES,
    SLURM_ARGS,
    Variables,
    read_slurm,
)
from llmb.contract.switches import PARAMS, PROFILE_DETAILS
from llmb.core.names import listed
from llmb.errors import Fault, InputFaults, KeyFaultError, UsageError, as_fault
from llmb.plan.launch_variables import names_that_set, unread

Options = TypeVar("Options", bound=SubmitOptions)

_FLAGS = {"scales": "scale", "dtypes": "dtype"}  # fields whose option has another name


def read_variables(
    options: Options, set_names: Collection[str], environ: Mapping[str, str], known: Variables
) -> tuple[Options, dict[str, str]]:
    """Fill options that are not ``set_names`` from the ``known`` variables in ``environ``.

    Return the variables used too.

    Prints the used and the ignored variables. An empty variable is ignored. Raises InputFaults
    with every invalid value.
    """
    variables = {name: row for name, row in known.items() if row.sets and not row.of_config}
    values, used = dict[str, object](), dict[str, str]()
    ignored, faults = list[str](), list[Fault]()
    option_names = {field.name for field in fields(options)}
    for name, variable in variables.items():
        text, sets = environ.get(name, ""), variable.sets
        field = SCALES if sets == NODES else sets
        if not text.strip() or sets in (CLUSTER_TYPE, SLURM_ARGS):
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
        if sets != NODES and values.setdefault(field, value) != value:
            first_used = next(earlier for earlier in used if variables[earlier].sets == field)
            ignored.append(f"{name} ({first_used} is used)")
            continue
        used[name] = text.strip()
    if faults:
        raise InputFaults(faults)
    profiling = next(iter(names_that_set(variables, "profile")), "")
    not_profiled = f"{profiling} is not true" if profiling else "--profile is not given"
    for name in names_that_set(variables, *PROFILE_DETAILS):
        if name in used and not values.get("profile", options.profile):
            values.pop(variables[name].sets, None)
            del used[name]
            if environ[name].strip().lower() != "false":
                ignored.append(f"{name} ({not_profiled})")
    if (recipe := values.pop(FP8_RECIPE, None)) is not None:
        objection = "--set fp8 is given" if "fp8" in set_names else ""
        if not objection and not _set_recipe(str(recipe), options, values):
            objection = "no dtype is fp8"
        if objection:
            for name in [name for name in used if variables[name].sets == FP8_RECIPE]:
                del used[name]
                ignored.append(f"{name} ({objection})")
    ignored += unread(environ, known, variables)
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
    """Add the sbatch options that variables have. Those of the command line override them.

    Prints the used and the ignored ones. Raises InputFaults for an option that llmb sets.
    """
    for name in names_that_set(context.variables, SLURM_ARGS):
        _read_slurm_params(context, name, environ.get(name, "").strip())


def _read_slurm_params(context: CliContext, name: str, text: str) -> None:
    from llmb.contract.sbatch import check_slurm_args, long_name

    sbatch_options = {long_name(key): value for key, value in read_slurm(text).items()}
    try:
        check_slurm_args(sbatch_options)
    except KeyFaultError as error:
        raise InputFaults([error.as_fault(f"{name}={text}")]) from error
    added = {key: value for key, value in sbatch_options.items() if key not in context.slurm_args}
    if added:
        say(f"note: from the environment: {name}={text}")
    if added != sbatch_options:
        overridden = ", ".join(key for key in sbatch_options if key not in added)
        say(f"note: not used: {overridden} of {name} (the command line has it)")
    context.slurm_args |= added
    try:
        _ = context.config if added else None
    except InputFaults as error:
        faults = [_from_variable(fault, added, f"{name}={text}") for fault in error.faults]
        raise InputFaults(faults, hint=error.hint, code=error.code) from error


def name_unread(environ: Mapping[str, str], variables: Variables) -> None:
    """Print the variables that a list or a discovery does not read."""
    without_setting = names_that_set(variables, "")
    read_always = names_that_set(variables, SLURM_ARGS)
    if launch := list(unread(environ, variables, (*read_always, *without_setting))):
        say(f"note: only `submit -w W -s SIZE` reads these variables: {', '.join(launch)}")
    if unused := list(unread(environ, variables, variables.keys() - without_setting)):
        say(f"note: not used: {', '.join(unused)}")


def name_unpassed(context: CliContext, env: Iterable[str], environ: Mapping[str, str]) -> None:
    """Print which NCCL variables of the shell no job gets, with the option that passes one.

    ``env``: the pairs of ``--env``, which a job gets.
    """
    passed_names = {pair.partition("=")[0] for pair in env}
    names = sorted(
        name for name in environ if name.startswith("NCCL_") and name not in passed_names
    )
    if not names:
        return
    passed = context.config.pass_environment
    if names := [name for name in names if name not in passed]:
        example = shlex.quote(f"{names[0]}={environ[names[0]]}")
        say(
            f"note: jobs do not get {listed(names, 8)} of this shell; --env {example} sets it, and"
            " pass_environment in cluster_config.yaml passes it to every job"
        )


def _from_variable(fault: Fault, added: Collection[str], variable: str) -> Fault:
    """The ``fault`` at the ``variable``, if that has its option."""
    option = fault.key.rpartition(" ")[2].strip("-")
    return replace(fault, place=variable) if option in added else fault


def _set_recipe(recipe: str, options: SubmitOptions, values: dict[str, object]) -> bool:
    """Set the meaning of dtype fp8 and return False if no job has that dtype.

    fp8 is the default dtype.
    """
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


def check_cluster_type(environ: Mapping[str, str], cluster_type: str, variables: Variables) -> None:
    """Raise UsageError if a variable has another type than the install directory."""
    for name in names_that_set(variables, CLUSTER_TYPE):
        requested = environ.get(name, "").strip().lower()
        if requested and requested != cluster_type:
            raise UsageError(
                f"{name}={requested}: this install directory is for cluster type {cluster_type}",
                hint=f"choose another with --install, or unset {name}",
                code="cluster-type-conflict",
                key="cluster_type",
                value=requested,
            )


def place_at_variables(
    error: UsageError, used: Mapping[str, str], set_pairs: Mapping[str, str], variables: Variables
) -> InputFaults:
    """Place each fault at the variables (``used``) and ``--set`` pairs that caused it."""
    is_list = isinstance(error, InputFaults)
    faults = error.faults if isinstance(error, InputFaults) else [as_fault(error)]
    placed = [_placed(fault, used, set_pairs, variables) for fault in faults]
    return InputFaults(placed, hint=error.hint if is_list else None)


def _placed(
    fault: Fault, used: Mapping[str, str], set_pairs: Mapping[str, str], variables: Variables
) -> Fault:
    """Place ``fault`` at the variables and pairs of its key, without them at the GPU count."""
    if fault.place:
        return fault
    keys = {{"scale": "scales", "dtype": "dtypes"}.get(key, key) for key in fault.key.split()}
    named = [f"--set {name}={text}" for name, text in set_pairs.items() if name in keys]
    causes = [name for name in used if variables[name].sets in keys]
    named += [
        f"{name}={used[name]}"
        for name in causes
        if variables[name].sets != SCALES or (len(causes) == 1 and not named)
    ]
    return replace(fault, place=" ".join(named))


def gpus_of_nodes(
    context: CliContext,
    requested: str | None,
    per_node: int | None,
    scales: tuple[int, ...],
    used: Mapping[str, str],
) -> tuple[int, ...]:
    """Return ``scales``, or the GPU count of a variable with nodes, on the GPU type ``requested``.

    Raises UsageError if ``scales``, from another of the variables ``used``, is another count.
    """
    variables = context.variables
    name = next((name for name in used if variables[name].sets == NODES), None)
    if name is None:
        return scales
    nodes = int(used[name])
    config = context.config
    gpu_types = (config.gpu_type, *config.gpu_types)
    gpu_type = requested if requested is not None and requested in gpu_types else config.gpu_type
    gpus_per_node = per_node or config.gpu(gpu_type).gpus_per_node
    gpus = nodes * gpus_per_node
    if scales not in ((), (gpus,)):
        other = next(name for name in used if variables[name].sets == SCALES)
        raise UsageError(
            f"{name}={nodes} with {gpus_per_node} GPUs per node gives {gpus} GPUs, but {other} is"
            f" {scales[0]}",
            hint=f"unset {name} or {other}",
            code="scale-conflict",
            key="scale",
            value=gpus,
        )
    say(f"note: {name}={nodes}: {gpus} GPUs")
    return (gpus,)
