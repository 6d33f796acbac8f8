# SPDX-License-Identifier: Apache-2.0
"""`llmb-run submit-all` and `bulk`: a job list, or everything that the cluster can run."""

import os
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from llmb.cli import options as common
from llmb.cli.context import CliContext, say
from llmb.cli.submit import shell_variables as shell
from llmb.cli.submit.options import OptionField, SubmitCommand, SubmitOptions, with_options
from llmb.core.files import suggest_file
from llmb.core.values import dataclass
from llmb.errors import InputFaults, UsageError

if TYPE_CHECKING:
    from llmb.plan.select import Selection

_FILE = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions(SubmitOptions):
    """Options that narrow a list, or select what to run without one."""

    joblist: Annotated[Path | None, click.argument("joblist", required=False, type=_FILE)]
    file: Annotated[
        Path | None,
        OptionField(
            "The job list, same as JOBLIST.",
            *("-f", "--file"),
            type=_FILE,
            metavar="JOBLIST",
            hidden=True,
        ),
    ]
    max_scale: Annotated[int | None, OptionField("At most N GPUs.")]
    min_scale: Annotated[bool, OptionField("Only the smallest scale of each configuration.")]
    exact_scales: Annotated[bool, OptionField("No untested scales above the largest tested one.")]
    scales: Annotated[
        tuple[int, ...],
        OptionField("Only these scales.", "--scale", callback=common.numbers, metavar="A,B"),
    ]
    dtypes: Annotated[
        tuple[str, ...],
        OptionField("Only these dtypes.", "--dtype", callback=common.words, metavar="D"),
    ]
    workloads: Annotated[
        tuple[str, ...],
        OptionField(
            "Only these workloads, as key or key_size.", callback=common.words, metavar="W"
        ),
    ]
    repeats: Annotated[int | None, OptionField("Run each configuration N times.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkOptions(ListOptions):
    """The same with a list, which the usage line shows as required."""

    joblist: Annotated[
        Path | None, click.argument("joblist", required=False, type=_FILE, metavar="JOBLIST")
    ]


@click.command("submit-all", cls=SubmitCommand)
@with_options(ListOptions)
def command(context: CliContext, options: ListOptions) -> int:
    """Submit a job list: submit JOBLIST.

    Without JOBLIST, --max-scale, --min-scale or --scale selects the scales to run. With it, these
    options narrow the list. The whole list is checked before anything is submitted.
    """
    return _submit(context, options)


@click.command("bulk", cls=SubmitCommand, hidden=True)
@with_options(BulkOptions)
def bulk(context: CliContext, options: BulkOptions) -> int:
    """Submit a job list: submit JOBLIST."""
    if options.joblist is None and options.file is None:
        click_context = click.get_current_context()
        (argument,) = (
            parameter for parameter in click_context.command.params if parameter.name == "joblist"
        )
        raise click.MissingParameter(ctx=click_context, param=argument)
    return _submit(context, options)


def _submit(context: CliContext, options: ListOptions) -> int:
    from llmb.plan.select import Selection

    shell.read_slurm_params(context, os.environ)
    shell.name_unpassed(context, options.env, os.environ)
    shell.name_unread(os.environ, context.variables)
    option_names = {field.name for field in fields(options)}
    names = [field.name for field in fields(Selection) if field.name in option_names]
    return run(context, options, Selection(**{name: getattr(options, name) for name in names}))


def joblist_of(options: ListOptions) -> Path | None:
    """The job list, from the argument or the option. Raises UsageError for both."""
    if options.joblist is not None and options.file is not None:
        raise UsageError(
            f"two job lists are given: {options.joblist} and --file {options.file}",
            hint="-f names a job list; to lift checks write --force",
            code="joblist-twice",
            key="file",
        )
    return options.joblist or options.file


def run(context: CliContext, options: ListOptions, selection: "Selection") -> int:
    """Submit the list of ``options``, or everything that ``selection`` discovers.

    Raises UsageError.
    """
    joblist = joblist_of(options)
    if joblist is not None:
        return _run_list(context, joblist, options, selection)
    if not selection.names_scales:
        from llmb.plan.select import split_name

        hint = "--scale A,B, --max-scale N or --min-scale selects"
        if options.workloads:
            for name in options.workloads:
                split_name(name, context.workloads)  # a name that no workload has comes first
            raise UsageError(
                f"no scale is given for {', '.join(options.workloads)}",
                hint=f"{hint} its scales",
                code="nothing-selected",
                key="scale",
            )
        hint = (
            f"llmb-run {click.get_current_context().info_name} jobs.txt; {hint} from everything"
            " installed"
        )
        raise UsageError(
            "neither a job list nor a scale is given", hint=hint, code="nothing-selected"
        )
    return _run_discovered(context, options, selection)


def _run_list(
    context: CliContext, joblist: Path, options: ListOptions, selection: "Selection"
) -> int:
    from llmb.cli.submit import flow
    from llmb.cli.submit.overrides import overrides_of
    from llmb.contract.entry import JobList
    from llmb.plan.joblist import read_job_list, shortened
    from llmb.plan.select import adjust, narrow

    with flow.refusing(dry_run=options.dry_run):
        overrides = overrides_of(options, context)
        if selection.exact_scales:
            raise UsageError(
                "--exact-scales selects scales where there is no job list",
                hint="omit it, or --max-scale N",
                code="option-without-effect",
                key="--exact-scales",
            )
        if not joblist.exists():
            raise UsageError(
                f"there is no job list '{joblist}'",
                hint=suggest_file(joblist)
                or "check the path; llmb-run docs job-lists shows what a list has,"
                " and --max-scale N needs none",
                code="file-missing",
                key="joblist",
                value=str(joblist),
            )
        listed = read_job_list(joblist, context.plugins.job_list, context.variables)
        listed = shortened(joblist, listed, context.workloads)
    for text in listed.notes:
        say(f"note: {text}")
    return flow.run(
        context,
        JobList(entries=tuple(adjust(listed.entries, selection)), faults=listed.faults),
        options,
        overrides,
        lambda jobs: narrow(jobs, selection, context.workloads),
        joblist=joblist,
    )


def _run_discovered(context: CliContext, options: ListOptions, selection: "Selection") -> int:
    from llmb.cli.submit import flow
    from llmb.cli.submit.overrides import overrides_of
    from llmb.contract.entry import JobList
    from llmb.plan.discover import discover
    from llmb.plan.select import with_proxies

    with flow.refusing(dry_run=options.dry_run):
        context.need_type()
        overrides = overrides_of(options, context)
        gpu_type = options.gpu_type or context.config.gpu_type
        discovered, skipped = discover(context.workloads, context.config, selection, gpu_type)
    entries, notes = tuple(discovered), tuple[str, ...]()
    if selection.supported and not options.force:
        entries, notes = with_proxies(discovered, context.workloads, context.config, gpu_type)
    for text in (*skipped, *notes):
        say(f"note: {text}")
    try:
        return flow.run(context, JobList(entries=entries), options, overrides)
    except InputFaults as error:
        fix = "--workloads and --dtype select jobs"
        hints = (error.hint, fix if selection.scales and len(entries) > 1 else None)
        raise InputFaults(error.faults, hint="; ".join(filter(None, hints)) or None) from error
