# SPDX-License-Identifier: Apache-2.0
"""`llmb-run submit-all` and `bulk`: a job list, or everything that the cluster can run, turned into jobs."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context, say
from llmb.cli.submit.options import submit_options
from llmb.errors import InputFaults, UsageError

F = TypeVar("F", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path)
_WORKLOADS = "Only these, as key or key_size."


def _narrowing_options(command: F) -> F:
    """What narrows a list, or says what to take without one."""
    for option in reversed(
        (
            click.option("--max-scale", type=click.IntRange(min=1), metavar="N", help="At most N GPUs."),
            click.option("--min-scale", is_flag=True, help="The smallest scale of each configuration only."),
            click.option(
                "--scale", "scales", callback=options.numbers, metavar="A,B", help="Exactly these GPU counts."
            ),
            click.option(
                "--dtype", "dtypes", multiple=True, callback=options.words, metavar="D", help="Only these dtypes."
            ),
            click.option("--workloads", multiple=True, callback=options.words, metavar="W", help=_WORKLOADS),
            click.option("--repeats", type=click.IntRange(min=1), metavar="N", help="Run each configuration N times."),
        )
    ):
        command = option(command)
    return command


_file_option = click.option("-f", "--file", type=_FILE, metavar="FILE", help="The job list, as JOBLIST.")


@click.command("submit-all")
@click.argument("joblist", required=False, type=_FILE)
@_file_option
@_narrowing_options
@submit_options
@pass_context
def command(context: Context, /, joblist: Path | None, **flags: Any) -> int:
    """Submit the jobs of JOBLIST, or everything installed at the scales that the options name.

    With a list the other options narrow it. The list is checked as a whole before anything is submitted.
    """
    return _submit(context, joblist, flags)


@click.command("bulk")
@click.argument("joblist", required=False, type=_FILE, metavar="JOBLIST")
@_file_option
@_narrowing_options
@submit_options
@pass_context
def bulk(context: Context, /, joblist: Path | None, **flags: Any) -> int:
    """Submit the jobs of JOBLIST: submit-all with a list."""
    if joblist is None and flags["file"] is None:
        click_context = click.get_current_context()
        (argument,) = (one for one in click_context.command.params if one.name == "joblist")
        raise click.MissingParameter(ctx=click_context, param=argument)
    return _submit(context, joblist, flags)


def _submit(context: Context, joblist: Path | None, flags: dict[str, Any]) -> int:
    from llmb.cli.submit import flow
    from llmb.planning.joblist import read_job_list
    from llmb.planning.select import Selection, adjust, discover, narrow
    from llmb.runs.job import JobList
    from llmb.workload import variables

    if joblist is not None and flags["file"] is not None:
        hint = "--force lifts checks; it has no short form"
        raise UsageError(f"two job lists are given: {joblist} and --file {flags['file']}", hint=hint)
    joblist = joblist or flags["file"]
    if unread := list(variables.unread(os.environ, ())):
        say(f"note: variables that only `single` reads: {', '.join(unread)}")
    names = ("max_scale", "min_scale", "scales", "dtypes", "workloads", "repeats", "profile", "strong_scaling")
    selection = Selection(**{name: flags[name] for name in names if flags.get(name) is not None})
    with flow.refusing(dry_run=flags["dry_run"]):
        how = flow.Options.from_flags(flags)
        listed = None if joblist is None else read_job_list(joblist)
    if listed is not None:
        requests = JobList(requests=tuple(adjust(listed.requests, selection)), faults=listed.faults)
        return flow.run(context, requests, how, lambda jobs: narrow(jobs, selection, context.workloads))
    if not selection.names_scales:
        hint = "llmb-run submit-all jobs.txt, or --max-scale N, --min-scale, --scale A,B for all that is installed"
        raise UsageError("neither a job list nor a scale is given", hint=hint)
    with flow.refusing(dry_run=how.dry_run):
        gpu_type = how.gpu_type or context.config.gpu_type
        found, left_out = discover(context.workloads, context.config, selection, gpu_type)
    for text in left_out:
        say(f"note: {text}")
    try:
        return flow.run(context, JobList(requests=tuple(found)), how)
    except InputFaults as error:
        fix = "--workloads and --dtype name what to take, --keep-going takes what is right"
        hints = (error.hint, fix if selection.scales else None)
        raise InputFaults(error.faults, hint="; ".join(filter(None, hints)) or None) from error
