# SPDX-License-Identifier: Apache-2.0
"""`llmb-run jobs`: list, show, follow, cancel, retry and reconcile submitted runs."""

from typing import Any

import click

from llmb.cli import options
from llmb.cli.commands import Deferred
from llmb.cli.context import CliContext, pass_context
from llmb.cli.jobs import details, log_output, runs_table
from llmb.cli.jobs.filters import Filters, filter_options
from llmb.cli.reading import opened_run
from llmb.errors import UsageError


@click.group("jobs", cls=options.CommandGroup, invoke_without_command=True)
@filter_options
@click.option(
    "--format", "fmt", type=click.Choice(options.FORMATS), help="Output format of the list."
)
@options.read_option
@click.pass_context
def group(click_context: click.Context, /, fmt: str | None, **filters: Any) -> None:
    """List, follow, cancel and retry runs (default: list)."""
    command = click_context.invoked_subcommand
    if command is None:
        click_context.invoke(list_, fmt=fmt or "table", **filters)
    elif fmt is not None or Filters(**filters) != Filters():
        raise UsageError(
            "options before a sub-command are only for the list",
            hint=f"llmb-run jobs {command} --help",
            code="format-misplaced",
            key="format",
        )


@group.command("list", hidden=True)  # `jobs` alone does the same
@filter_options
@options.format_option
@options.read_option
@pass_context
def list_(context: CliContext, /, fmt: str, **filters: Any) -> None:
    """List runs with their states and results.

    STATE is one or more states, separated by commas. `ended` is any final state, `failed` any final
    state except COMPLETED and CANCELLED.
    """
    runs_table.list_runs(context, fmt, Filters(**filters))


@group.command("show")
@click.argument("run", metavar="[ARCHIVE] RUN", nargs=-1, required=True)
@click.option(
    "--format",
    "fmt",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    help="Output format.",
)
@click.option("--script", is_flag=True, help="Print the job script as it was submitted.")
@options.read_option
@pass_context
def show(context: CliContext, run: tuple[str, ...], fmt: str, script: bool) -> None:
    """Show one run: its job, state, result and files."""
    name = opened_run(context, run)
    if script:
        details.show_script(context, name)
    else:
        details.show(context, name, fmt)


@group.command("logs")
@click.argument("run", metavar="[ARCHIVE] RUN", nargs=-1, required=True)
@click.option(
    "-f", "--follow", "follows", is_flag=True, help="Follow the log until the run has ended."
)
@click.option(
    "-n", "--lines", type=click.IntRange(min=1), metavar="N", help="Only the last N lines."
)
@click.option("--path", "only_path", is_flag=True, help="Print only the path of the log.")
@click.option("--batch", is_flag=True, help="Print the output of the job script instead.")
@click.option(
    "--attempt", type=click.IntRange(min=1), metavar="N", help="Attempt (default: the last)."
)
@options.read_option
@pass_context
def logs(
    context: CliContext,
    run: tuple[str, ...],
    follows: bool,
    lines: int | None,
    only_path: bool,
    batch: bool,
    attempt: int | None,
) -> None:
    """Print the log of one run."""
    if only_path and (follows or lines):
        raise UsageError(
            "--path prints no log, so --follow and --lines have no effect",
            hint="omit them, or --path",
            code="option-conflict",
            key="--path",
        )
    record = context.runs((opened_run(context, run),))[0]
    path = log_output.log_path(record, attempt=attempt, batch=batch)
    if only_path:
        log_output.print_path(context, path)
    else:
        log_output.print_log(context, record, path, attempt=attempt, follows=follows, lines=lines)


# The module of each imports what submits, which the list does not need.
_ACTIONS = {
    "wait": "Follow RUNS until they end (default: all).",
    "cancel": "Cancel RUNS that are waiting or running.",
    "retry": "Retry failed RUNS as new attempts of the same runs.",
    "reconcile": "Complete an interrupted submission.",
}
for name, summary in _ACTIONS.items():
    group.add_command(Deferred(name, "jobs.actions", name, summary))
