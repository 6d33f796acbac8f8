# SPDX-License-Identifier: Apache-2.0
"""`llmb-run jobs`: list, show, follow, cancel, retry and reconcile submitted runs."""

from typing import Any

import click

from llmb.cli import options
from llmb.cli.commands import Deferred
from llmb.cli.context import CliContext, pass_context
from llmb.cli.jobs import runs_table
from llmb.cli.jobs.filters import Filters, filter_options
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


# The module of each imports more than the list needs.
_OTHERS = {
    "show": ("details", "Show one run: its job, state, result and files."),
    "logs": ("log_output", "Print the log of one run."),
    "wait": ("actions", "Follow RUNS until they end (default: all)."),
    "cancel": ("actions", "Cancel RUNS that are waiting or running."),
    "retry": ("actions", "Retry failed RUNS as new attempts of the same runs."),
    "reconcile": ("actions", "Complete an interrupted submission."),
}
for name, (module, summary) in _OTHERS.items():
    group.add_command(Deferred(name, f"jobs.{module}", name, summary))
