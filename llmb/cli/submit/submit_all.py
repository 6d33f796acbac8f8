# SPDX-License-Identifier: Apache-2.0
"""`llmb-run submit-all` and `bulk`: turn a job list, or everything that the cluster can run, into jobs."""

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from llmb.cli import options as common
from llmb.cli.context import Context, say
from llmb.cli.submit import shell_variables as shell
from llmb.cli.submit.options import Option, SubmitOptions, with_options
from llmb.errors import InputFaults, UsageError
from llmb.workload import launch_variables

if TYPE_CHECKING:
    from llmb.planning.select import Selection

_FILE = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions(SubmitOptions):
    """Options that narrow a list, or select what to run without one."""

    joblist: Annotated[Path | None, click.argument("joblist", required=False, type=_FILE)]
    file: Annotated[Path | None, Option("The job list, same as JOBLIST.", "-f", "--file", type=_FILE, metavar="FILE")]
    max_scale: Annotated[int | None, Option("At most N GPUs.")]
    min_scale: Annotated[bool, Option("Only the smallest scale of each configuration.")]
    exact_scales: Annotated[bool, Option("No untested scales above the largest tested one.")]
    scales: Annotated[tuple[int, ...], Option("Only these scales.", "--scale", callback=common.numbers, metavar="A,B")]
    dtypes: Annotated[tuple[str, ...], Option("Only these dtypes.", "--dtype", callback=common.words, metavar="D")]
    workloads: Annotated[
        tuple[str, ...], Option("Only these workloads, as key or key_size.", callback=common.words, metavar="W")
    ]
    repeats: Annotated[int | None, Option("Run each configuration N times.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkOptions(ListOptions):
    """The same with a list, which the usage line shows as required."""

    joblist: Annotated[Path | None, click.argument("joblist", required=False, type=_FILE, metavar="JOBLIST")]


@click.command("submit-all")
@with_options(ListOptions)
def command(context: Context, options: ListOptions) -> int:
    """Submit a job list, or everything installed.

    Without JOBLIST, --max-scale, --min-scale or --scale selects the scales to run. With it, these options narrow the
    list. The whole list is checked before anything is submitted.
    """
    return _submit(context, options)


@click.command("bulk")
@with_options(BulkOptions)
def bulk(context: Context, options: BulkOptions) -> int:
    """Submit the jobs of JOBLIST: submit-all with a list."""
    if options.joblist is None and options.file is None:
        click_context = click.get_current_context()
        (argument,) = (one for one in click_context.command.params if one.name == "joblist")
        raise click.MissingParameter(ctx=click_context, param=argument)
    return _submit(context, options)


def _submit(context: Context, options: ListOptions) -> int:
    from llmb.planning.select import Selection

    shell.read_slurm_params(context, os.environ)
    if unread := list(launch_variables.unread(os.environ, (shell.SLURM_PARAMS,))):
        say(f"note: only `single` reads these variables: {', '.join(unread)}")
    own = {field.name for field in fields(options)}
    names = [field.name for field in fields(Selection) if field.name in own]
    return run(context, options, Selection(**{name: getattr(options, name) for name in names}))


def joblist_of(options: ListOptions) -> Path | None:
    """The job list that is given, as an argument or by an option. Raises UsageError where both are."""
    if options.joblist is not None and options.file is not None:
        message = f"two job lists are given: {options.joblist} and --file {options.file}"
        hint = "-f names a job list; to lift checks write --force"
        raise UsageError(message, hint=hint, code="joblist-twice", key="file")
    return options.joblist or options.file


def run(context: Context, options: ListOptions, selection: "Selection") -> int:
    """Submit the list of ``options``, or everything that ``selection`` discovers; the exit code. Raises UsageError."""
    joblist = joblist_of(options)
    if joblist is not None:
        return _run_list(context, joblist, options, selection)
    if not selection.names_scales:
        hint = "--scale A,B, --max-scale N or --min-scale selects"
        if options.workloads:
            message = f"no scale is given for {', '.join(options.workloads)}"
            raise UsageError(message, hint=f"{hint} its scales", code="nothing-selected", key="scale")
        hint = f"llmb-run {click.get_current_context().info_name} jobs.txt; {hint} from everything installed"
        raise UsageError("neither a job list nor a scale is given", hint=hint, code="nothing-selected")
    return _run_discovered(context, options, selection)


def _run_list(context: Context, joblist: Path, options: ListOptions, selection: "Selection") -> int:
    from llmb.cli.submit import flow
    from llmb.cli.submit.overrides import overrides_of
    from llmb.planning.joblist import read_job_list
    from llmb.planning.select import adjust, narrow
    from llmb.runs.job import JobList

    with flow.refusing(dry_run=options.dry_run):
        overrides = overrides_of(options, context.parameters)
        if selection.exact_scales:
            message, hint = "--exact-scales selects scales where there is no job list", "omit it, or --max-scale N"
            raise UsageError(message, hint=hint, code="option-without-effect", key="--exact-scales")
        if not joblist.exists():
            hint = "check the path; llmb-run docs job-lists shows what a list has, and --max-scale N needs none"
            message = f"there is no job list '{joblist}'"
            raise UsageError(message, hint=hint, code="file-missing", key="joblist", value=str(joblist))
        listed = read_job_list(joblist)
    for text in listed.notes:
        say(f"note: {text}")
    requests = JobList(requests=tuple(adjust(listed.requests, selection)), faults=listed.faults)
    return flow.run(context, requests, options, overrides, lambda jobs: narrow(jobs, selection, context.workloads))


def _run_discovered(context: Context, options: ListOptions, selection: "Selection") -> int:
    from llmb.cli.submit import flow
    from llmb.cli.submit.overrides import overrides_of
    from llmb.planning.discover import discover
    from llmb.planning.select import with_proxies
    from llmb.runs.job import JobList

    with flow.refusing(dry_run=options.dry_run):
        context.need_type()
        overrides = overrides_of(options, context.parameters)
        gpu_type = options.gpu_type or context.config.gpu_type
        found, skipped = discover(context.workloads, context.config, selection, gpu_type)
    requests, notes = tuple(found), tuple[str, ...]()
    if selection.supported and not options.force:
        requests, notes = with_proxies(found, context.workloads, context.config, gpu_type)
    for text in (*skipped, *notes):
        say(f"note: {text}")
    try:
        return flow.run(context, JobList(requests=requests), options, overrides)
    except InputFaults as error:
        fix = "--workloads and --dtype select jobs"
        hints = (error.hint, fix if selection.scales else None)
        raise InputFaults(error.faults, hint="; ".join(filter(None, hints)) or None) from error
