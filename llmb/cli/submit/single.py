# SPDX-License-Identifier: Apache-2.0
"""`llmb-run single`: one workload, by options or by the variables of NVIDIA's launch scripts."""

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import click

from llmb.cli import options as common
from llmb.cli.context import Context, say
from llmb.cli.submit import shell_variables as shell
from llmb.cli.submit.options import Option, SubmitOptions, with_options
from llmb.errors import Fault, InputFaults, UsageError, collected

if TYPE_CHECKING:
    from llmb.planning.job_spec import JobOverrides
    from llmb.runs.job import JobRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleOptions(SubmitOptions):
    workload: Annotated[str, Option("Workload, in any spelling.", "-w", "--workload", required=True, metavar="W")]
    size: Annotated[str | None, Option("Model size (default: the workload's).", "-s", "--size", metavar="SIZE")]
    dtypes: Annotated[
        tuple[str, ...],
        Option("Precision: D or D,E (default: the workload's).", "--dtype", callback=common.words, metavar="D"),
    ]
    scales: Annotated[
        tuple[int, ...],
        Option("GPU count: N or N,M (default: JOB_TOTAL_GPUS).", "--scale", callback=common.numbers, metavar="N"),
    ]
    repeats: Annotated[int, Option("Run each configuration N times.", default=1)]


@click.command("single")
@with_options(SingleOptions)
def command(context: Context, options: SingleOptions) -> int:
    """Submit one workload at one or more scales and dtypes.

    Also reads the variables of NVIDIA's launch scripts (JOB_TOTAL_GPUS, GPU_TYPE, DTYPE, MODEL_SIZE, ...). Options
    override them; llmb prints the variables that it uses.
    """
    shell.read_slurm_params(context, os.environ)
    return run(context, options)


def run(context: Context, options: SingleOptions) -> int:
    """Submit the product of the dtypes and scales of ``options``; the exit code. Raises UsageError."""
    from llmb.cli.submit import flow
    from llmb.runs.job import JobList

    set_words = dict(item.split("=", 1) for item in options.params if "=" in item)
    options, overrides, used = _settled(context, options, set_words)
    request = _request(options)
    options, request = _on_its_gpu_type(context, options, request, used)
    requests = _as_documented(context, options, request)
    try:
        return flow.run(context, JobList(requests=requests), options, overrides)
    except UsageError as error:
        raise shell.place_at_variables(error, used, set_words) from error


def _settled(
    context: Context, options: SingleOptions, set_words: dict[str, str]
) -> tuple[SingleOptions, "JobOverrides", dict[str, str]]:
    """``options`` with the shell's variables, what they override, and the variables used. Raises InputFaults."""
    from llmb.cli.submit import flow
    from llmb.cli.submit.overrides import overrides_of

    faults: list[Fault] = []
    used: dict[str, str] = {}
    click_context, typed = click.get_current_context(), click.core.ParameterSource.COMMANDLINE
    given = {name for name in click_context.params if click_context.get_parameter_source(name) is typed}
    with collected(faults):
        options, used = shell.read_variables(options, given | set_words.keys(), os.environ)
    try:
        overrides = overrides_of(options, context.parameters, _usable(context, options))
    except InputFaults as error:
        faults += shell.place_at_variables(error, used, {}).faults
    with flow.refusing(dry_run=options.dry_run):
        context.need_type()
        if faults:
            raise InputFaults(faults)
        if shell.NODES in used:
            nodes = int(used[shell.NODES])
            scales = shell.gpus_of_nodes(context, options.gpu_type, options.gpus_per_node, options.scales, nodes)
            options = replace(options, scales=scales)
        if not options.scales:
            hint = "--scale N, or JOB_TOTAL_GPUS=N before the command"
            raise UsageError("the GPU count is missing", hint=hint, code="scale-missing", key="scale")
        shell.check_cluster_type(os.environ, context.config.cluster_type)
    return options, overrides, used


def _usable(context: Context, options: SingleOptions) -> list[str] | None:
    """What ``--set`` takes for the workload and its size; None where these are unknown."""
    from llmb.planning.request_faults import known_names
    from llmb.planning.select import split_name
    from llmb.text.names import find_size
    from llmb.workload.switches import CHOICES

    try:
        key, size = split_name(options.workload, context.workloads)
    except UsageError:  # the plan reports it
        return None
    workload = context.workloads[key]
    size = size or find_size(options.size or workload.default_size, workload.sizes)
    return [*known_names(workload, size), *(CHOICES if workload.is_training else ())]


def _request(options: SingleOptions) -> "JobRequest":
    from llmb.runs.job import JobRequest

    return JobRequest(
        workload=options.workload,
        size=options.size,
        dtypes=options.dtypes,
        scales=options.scales,
        repeats=options.repeats,
        profile=options.profile,
        proxy=options.proxy,
        framework=options.framework,
        release=options.release,
    )


def _on_its_gpu_type(
    context: Context, options: SingleOptions, request: "JobRequest", used: dict[str, str]
) -> tuple[SingleOptions, "JobRequest"]:
    """Both on the only GPU type that the workload runs on; with the jobs that ENABLE_PROFILE gave in its release."""
    from llmb.planning import plan

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
    return options, request


def _as_documented(context: Context, options: SingleOptions, request: "JobRequest") -> tuple["JobRequest", ...]:
    """The request, with the proxy at the scales where NVIDIA's documents mean it; prints a note for each."""
    from llmb.planning.select import with_proxies

    if options.force:
        return (request,)
    gpu_type = options.gpu_type or context.config.gpu_type
    requests, notes = with_proxies([request], context.workloads, context.config, gpu_type)
    for text in notes:
        say(f"note: {text}")
    return requests
