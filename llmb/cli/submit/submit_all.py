# SPDX-License-Identifier: Apache-2.0
"""`llmb-run submit-all` and `bulk`: turn a job list, or everything that the cluster can run, into jobs."""

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import click

from llmb.cli import options as common
from llmb.cli.context import Context, say
from llmb.cli.submit.options import Option, SubmitOptions, overrides_of, with_options
from llmb.errors import InputFaults, UsageError

_FILE = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions(SubmitOptions):
    """Options that narrow a list, or select what to run without one."""

    joblist: Annotated[Path | None, click.argument("joblist", required=False, type=_FILE)]
    file: Annotated[Path | None, Option("The job list, as JOBLIST.", "-f", "--file", type=_FILE, metavar="FILE")]
    max_scale: Annotated[int | None, Option("At most N GPUs.")]
    min_scale: Annotated[bool, Option("Only the smallest scale of each configuration.")]
    scales: Annotated[tuple[int, ...], Option("Only these scales.", "--scale", callback=common.numbers, metavar="A,B")]
    dtypes: Annotated[tuple[str, ...], Option("Only these dtypes.", "--dtype", callback=common.words, metavar="D")]
    workloads: Annotated[tuple[str, ...], Option("Only these: key or key_size.", callback=common.words, metavar="W")]
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
    from llmb.cli.submit import flow
    from llmb.planning.joblist import read_job_list
    from llmb.planning.select import Selection, adjust, discover, narrow
    from llmb.runs.job import JobList
    from llmb.workload import variables

    if options.joblist is not None and options.file is not None:
        message = f"two job lists are given: {options.joblist} and --file {options.file}"
        hint = "-f names a job list; to lift checks write --force"
        raise UsageError(message, hint=hint, code="joblist-twice", key="file")
    joblist = options.joblist or options.file
    if unread := list(variables.unread(os.environ, ())):
        say(f"note: only `single` reads these variables: {', '.join(unread)}")
    selection = Selection(**{field.name: getattr(options, field.name) for field in fields(Selection)})
    with flow.refusing(dry_run=options.dry_run):
        overrides = overrides_of(options, context.parameters)
        listed = None if joblist is None else read_job_list(joblist)
    if listed is not None:
        requests = JobList(requests=tuple(adjust(listed.requests, selection)), faults=listed.faults)
        return flow.run(context, requests, options, overrides, lambda jobs: narrow(jobs, selection, context.workloads))
    if not selection.names_scales:
        hint = "llmb-run submit-all jobs.txt, or --max-scale N, --min-scale, --scale A,B for everything installed"
        raise UsageError("neither a job list nor a scale is given", hint=hint, code="nothing-selected")
    with flow.refusing(dry_run=options.dry_run):
        gpu_type = options.gpu_type or context.config.gpu_type
        found, skipped = discover(context.workloads, context.config, selection, gpu_type)
    for text in skipped:
        say(f"note: {text}")
    try:
        return flow.run(context, JobList(requests=tuple(found)), options, overrides)
    except InputFaults as error:
        fix = "--workloads and --dtype select jobs, --keep-going submits the valid ones"
        hints = (error.hint, fix if selection.scales else None)
        raise InputFaults(error.faults, hint="; ".join(filter(None, hints)) or None) from error
