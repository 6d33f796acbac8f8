# SPDX-License-Identifier: Apache-2.0
"""`llmb-run single`: one configuration, given by flags, or by the variables of the older launch scripts."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from llmb.cli.context import Context, pass_context, say
from llmb.cli.submit.options import submit_options


@click.command("single")
@click.option("-w", "--workload", required=True, metavar="W", help="Workload, in any spelling.")
@click.option("-s", "--size", metavar="SIZE", help="Model size (else the workload's default).")
@click.option("--dtype", metavar="D", help="Precision (else the workload's default).")
@click.option("--scale", type=click.IntRange(min=1), metavar="N", help="GPU count (else JOB_TOTAL_GPUS).")
@click.option("--repeats", type=click.IntRange(min=1), default=1, metavar="N", help="Run it N times.")
@submit_options
@pass_context
@click.pass_context
def command(click_context: click.Context, context: Context, /, **flags: Any) -> int:
    """Submit one configuration.

    JOB_TOTAL_GPUS, GPU_TYPE, DTYPE, MODEL_SIZE and the other variables of the older launch scripts count below the
    options; those that are used are said.
    """
    from llmb.cli.submit import direct, flow
    from llmb.errors import Fault, InputFaults, UsageError
    from llmb.runs.job import JobList, JobRequest

    source = click.core.ParameterSource.COMMANDLINE
    given = {name for name in flags if click_context.get_parameter_source(name) is source}
    given |= {name for name, _, _ in (item.partition("=") for item in flags["params"])}
    faults: list[Fault] = []
    found = direct.Direct(flags=flags, used={}, said=())
    try:
        found = direct.read_variables(flags, given, os.environ)
    except InputFaults as error:
        faults += error.faults
    flags = found.flags
    try:
        how = flow.Options.from_flags(flags)
    except UsageError as error:
        faults += direct.name_variables(error, found.used, {}).faults
    with flow.refusing(dry_run=flags["dry_run"]):
        if faults:
            raise InputFaults(faults)
        for text in found.said:
            say(f"note: {text}")
        if "NUM_NODES" in found.used:
            flags["scale"] = direct.scale_of_nodes(flags, _gpus_per_node(context, flags))
            say(f"note: NUM_NODES={flags['num_nodes']}: {flags['scale']} GPUs")
        if flags["scale"] is None:
            raise UsageError("the GPU count is missing", hint="--scale N, or JOB_TOTAL_GPUS=N before the command")
        direct.check_cluster_type(os.environ, context.config.cluster_type)
    request = JobRequest(
        workload=flags["workload"],
        size=flags["size"],
        dtypes=(flags["dtype"],) if flags["dtype"] else (),
        scales=(flags["scale"],),
        repeats=flags["repeats"],
        profile=flags["profile"],
    )
    flags["gpu_type"] = flags["gpu_type"] or _only_gpu_type(context, request)
    if "ENABLE_PROFILE" in found.used and request.profile and _measured_too(context, request, flags["gpu_type"]):
        say("note: ENABLE_PROFILE is two jobs, as in release 25.04: one measured, one profiled (-p: the second alone)")
        request = replace(request, profile=False, add_profile=True)
    try:
        return flow.run(context, JobList(requests=(request,)), replace(how, gpu_type=flags["gpu_type"]))
    except UsageError as error:
        words = dict(item.split("=", 1) for item in flags["params"])
        raise direct.name_variables(error, found.used, words) from error


def _gpus_per_node(context: Context, flags: Mapping[str, Any]) -> int:
    """The GPUs that a job uses on each node: as given, else those of its GPU type, of the cluster's default one."""
    config, wanted = context.config, flags["gpu_type"]
    known = (config.gpu_type, *config.gpu_types)
    per_node: int = flags["gpus_per_node"] or config.gpu(wanted if wanted in known else config.gpu_type).gpus_per_node
    return per_node


def _measured_too(context: Context, request: Any, gpu_type: str | None) -> bool:
    """Whether ENABLE_PROFILE stood for two jobs in the release that this configuration is of."""
    from llmb.errors import UsageError
    from llmb.planning.configure import find_row
    from llmb.planning.plan import resolve
    from llmb.planning.rules import profile_window

    config = context.config
    gpu = gpu_type or config.gpu_type
    if gpu not in (config.gpu_type, *config.gpu_types):
        return False
    rows = config.rows_for(gpu)
    try:
        workload, name = resolve(request, context.workloads, gpu, rows)
    except UsageError:  # the plan says so, with all else that is wrong
        return False
    size, dtype = workload.sizes[name], next(iter(request.dtypes), workload.default_dtype)
    row = find_row(size, rows, dtype, request.scales[0], strong=False)
    release = row.release(request.scales[0]) if row is not None else None
    window = profile_window(workload, size, release, size.max_steps or workload.max_steps)
    return window is not None and window.measured_too


def _only_gpu_type(context: Context, request: Any) -> str | None:
    """The one GPU type of the cluster that the workload runs on, where that is not the cluster's default."""
    from llmb.errors import UsageError
    from llmb.planning.plan import resolve

    config = context.config
    try:
        workload, size = resolve(request, context.workloads, config.gpu_type, config.rows_for(config.gpu_type))
    except UsageError:  # the plan says so, with all else that is wrong
        return None
    types = dict.fromkeys([config.gpu_type, *config.gpu_types])
    able = [name for name in types if workload.sizes[size].dtypes(config.rows_for(name))]
    if config.gpu_type in able or len(able) != 1:
        return None
    say(f"note: {workload.key} {size} runs on {able[0]} alone of this cluster's GPU types")
    return able[0]
