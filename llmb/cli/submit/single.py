# SPDX-License-Identifier: Apache-2.0
"""`llmb-run single`: one workload, by options or by variables of other launchers."""

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import click

from llmb.cli import options as common
from llmb.cli.context import CliContext, say
from llmb.cli.submit import shell_variables as shell
from llmb.cli.submit.options import OptionField, SubmitCommand, SubmitOptions, with_options
from llmb.contract.launch_variable import SCALES
from llmb.core.values import dataclass
from llmb.errors import Fault, InputFaults, UsageError, collected
from llmb.plan.launch_variables import names_that_set

if TYPE_CHECKING:
    from llmb.contract.entry import JobEntry
    from llmb.contract.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleOptions(SubmitOptions):
    workload: Annotated[
        str,
        OptionField("Workload, in any spelling.", "-w", "--workload", required=True, metavar="W"),
    ]
    size: Annotated[
        str | None,
        OptionField("Model size (default: the workload's).", "-s", "--size", metavar="SIZE"),
    ]
    dtypes: Annotated[
        tuple[str, ...],
        OptionField(
            "Precision: D or D,E (default: the workload's).",
            "--dtype",
            callback=common.words,
            metavar="D",
        ),
    ]
    scales: Annotated[
        tuple[int, ...],
        OptionField(
            "GPU count: N or N,M (default: that of a variable).",
            "--scale",
            callback=common.numbers,
            metavar="N",
        ),
    ]
    repeats: Annotated[int, OptionField("Run each configuration N times.", default=1)]


@click.command("single", cls=SubmitCommand, hidden=True)
@with_options(SingleOptions)
def command(context: CliContext, options: SingleOptions) -> int:
    """Submit one workload: submit -w W -s SIZE.

    Also reads the variables of other launchers (llmb-run docs jobs). Options override them, and
    llmb prints the variables that it uses.
    """
    shell.read_slurm_params(context, os.environ)
    shell.name_unpassed(context, options.env, os.environ)
    return run(context, options)


def run(context: CliContext, options: SingleOptions) -> int:
    """Submit the product of the dtypes and scales of ``options``. Raises UsageError."""
    from llmb.cli.submit import flow
    from llmb.contract.entry import JobList

    set_words = dict(item.split("=", 1) for item in options.params if "=" in item)
    options, overrides, used = _settled(context, options, set_words)
    entry = _entry(options)
    options, entry = _on_its_gpu_type(context, options, entry, used)
    entries = _as_documented(context, options, entry)
    try:
        return flow.run(context, JobList(entries=entries), options, overrides)
    except UsageError as error:
        raise shell.place_at_variables(error, used, set_words, context.variables) from error


def _settled(
    context: CliContext, options: SingleOptions, set_words: dict[str, str]
) -> tuple[SingleOptions, "Settings", dict[str, str]]:
    """Read variables and options and return the options, their overrides and the variables used.

    Raises InputFaults.
    """
    from llmb.cli.submit import flow
    from llmb.cli.submit.overrides import overrides_of
    from llmb.plan.select import split_name

    faults: list[Fault] = []
    used: dict[str, str] = {}
    click_context, typed = click.get_current_context(), click.core.ParameterSource.COMMANDLINE
    on_command_line = {
        name for name in click_context.params if click_context.get_parameter_source(name) is typed
    }
    with collected(faults):
        options, used = shell.read_variables(
            options, on_command_line | set_words.keys(), os.environ, context.variables
        )
    try:
        overrides = overrides_of(options, context, _usable(context, options))
    except InputFaults as error:
        faults += shell.place_at_variables(error, used, {}, context.variables).faults
    with flow.refusing(dry_run=options.dry_run):
        context.need_type()
        if faults:
            raise InputFaults(faults)
        scales = shell.gpus_of_nodes(
            context, options.gpu_type, options.gpus_per_node, options.scales, used
        )
        options = replace(options, scales=scales)
        if not scales:
            split_name(options.workload, context.workloads)  # a misspelled name is the first fault
            names = names_that_set(context.variables, SCALES)
            or_variable = f", or {names[0]}=N before the command" if names else ""
            raise UsageError(
                "the GPU count is missing",
                hint=f"--scale N{or_variable}",
                code="scale-missing",
                key="scale",
            )
        shell.check_cluster_type(os.environ, context.config.cluster_type, context.variables)
    return options, overrides, used


def _usable(context: CliContext, options: SingleOptions) -> list[str] | None:
    """Return the names that ``--set`` takes for the workload and size, None if unknown."""
    from llmb.contract.switches import CHOICES
    from llmb.core.names import find_size
    from llmb.plan.entry_faults import known_names
    from llmb.plan.select import split_name

    try:
        key, size = split_name(options.workload, context.workloads)
    except UsageError:  # the plan reports it
        return None
    workload = context.workloads[key]
    size = size or find_size(options.size or workload.default_size, workload.sizes)
    return [*known_names(workload, size), *(CHOICES if workload.is_training else ())]


def _entry(options: SingleOptions) -> "JobEntry":
    from llmb.contract.entry import JobEntry
    from llmb.contract.settings import Settings

    return JobEntry(
        settings=Settings(
            workload=options.workload,
            model_size=options.size or "",
            profile=options.profile,
            framework=options.framework or "",
            release=options.release,
        ),
        sweeps={"dtype": options.dtypes, "scale": options.scales},
        repeats=options.repeats,
        proxy=options.proxy,
    )


def _on_its_gpu_type(
    context: CliContext, options: SingleOptions, entry: "JobEntry", used: dict[str, str]
) -> tuple[SingleOptions, "JobEntry"]:
    """Choose the only GPU type that the workload runs on, and a measured job beside a profiled one.

    In some releases of a launcher, its variable for profiles gave both jobs.
    """
    from llmb.plan import plan

    if options.gpu_type is None and (
        only := plan.only_gpu_type(entry, context.workloads, context.config)
    ):
        workload, size, gpu_type = only
        say(f"note: of this cluster's GPU types, {workload} {size} runs only on {gpu_type}")
        options = replace(options, gpu_type=gpu_type)
    given_type = options.gpu_type or context.config.gpu_type
    profiling = [context.variables[name] for name in used if context.variables[name].measured_too]
    wants_profile = bool(profiling) and entry.settings.profile
    if wants_profile and plan.measures_too(entry, context.workloads, context.config, given_type):
        say(
            f"note: {profiling[0].name} gives two jobs, {profiling[0].measured_too}: one measured,"
            " one profiled (-p: the second only)"
        )
        entry = replace(entry.with_settings(profile=False), add_profile=True)
    return options, entry


def _as_documented(
    context: CliContext, options: SingleOptions, entry: "JobEntry"
) -> tuple["JobEntry", ...]:
    """Use the proxy at the scales that it alone was tested at. Print a note for each."""
    from llmb.plan.select import with_proxies

    if options.force:
        return (entry,)
    gpu_type = options.gpu_type or context.config.gpu_type
    entries, notes = with_proxies([entry], context.workloads, context.config, gpu_type)
    for text in notes:
        say(f"note: {text}")
    return entries
