# SPDX-License-Identifier: Apache-2.0
"""`llmb-run plugins`: which plugins there are, what each offers, and why one is left out."""

from __future__ import annotations

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context


@click.group("plugins", invoke_without_command=True)
@options.format_option
@click.pass_context
def group(click_context: click.Context, fmt: str) -> None:
    """Show the plugins and what each offers."""
    if click_context.invoked_subcommand is None:
        click_context.invoke(list_, fmt=fmt)


@group.command("list")
@options.format_option
@pass_context
def list_(context: Context, fmt: str) -> None:
    """Show the plugins and what each offers."""
    from llmb.cli.output import print_rows
    from llmb.tables import Column

    columns = [
        Column(key="plugin", heading="Plugin"),
        Column(key="status", heading="Status"),
        Column(key="workload", heading="Workload"),
        Column(key="reason", heading="Reason"),
    ]
    print_rows(columns, _rows(context), fmt)


@group.command("check")
@pass_context
def check(context: Context) -> int:
    """Exit 1 when a plugin is left out, or the figures that it published cannot be read; with the reason."""
    workloads = context.plugins.workloads()
    for problem in context.plugins.problems:
        click.echo(f"error: {problem.source}: {problem.reason}", err=True)
    context.figures(workloads)
    if context.plugins.problems or context.faulty_figures:
        return 1
    click.echo(f"{len(context.plugins.sources)} plugins, all in order")
    return 0


def _rows(context: Context) -> list[dict[str, str]]:
    plugins = context.plugins
    workloads = plugins.workloads()
    by_source = {plugins.offers[key].source: key for key in workloads}
    refused = {problem.source: problem.reason for problem in plugins.problems}
    sources = sorted({*plugins.sources, *refused})
    return [
        {
            "plugin": source,
            "status": "left out" if source in refused else "ok",
            "workload": by_source.get(source, ""),
            "reason": refused.get(source, ""),
        }
        for source in sources
    ]
