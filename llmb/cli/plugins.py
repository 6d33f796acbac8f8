# SPDX-License-Identifier: Apache-2.0
"""`llmb-run plugins`: which plugins there are, what each offers, why one is left out; and a new one."""

from pathlib import Path

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context, say
from llmb.system import console


@click.group("plugins", cls=options.Group, invoke_without_command=True)
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
    from llmb.text.tables import Column

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
    """Look through every plugin and say what is wrong; exit 1 when something is.

    It must load, its published figures must be readable, each of its rows must come out whole, and its launch answer.
    """
    from llmb.errors import InputFaults, describe
    from llmb.plugins.checkup import faults_of

    plugins = context.plugins
    workloads = plugins.workloads()
    plugins.cluster_types()
    for problem in plugins.problems:
        until = f"until then plugin {problem.source} is left out"
        wrong = InputFaults(list(problem.faults), hint=until) if problem.faults else None
        say(describe(wrong) if wrong is not None else f"error: {problem.source}: {problem.reason}")
    context.figures(workloads)
    faults = [fault for workload in workloads.values() for fault in faults_of(workload, plugins)]
    if faults:
        say(describe(InputFaults(faults)))
    if plugins.problems or context.faulty_figures or faults:
        return 1
    count = len(plugins.sources)
    console.echo(f"{count} plugin{'' if count == 1 else 's'}, all in order")
    return 0


@group.command("new")
@click.argument("name")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@pass_context
def new(context: Context, name: str, folder: Path | None) -> None:
    """Write a plugin with a workload of your own, called NAME, into FOLDER (else ./NAME).

    It is complete as it is: a table with a small llama, for H100s and for this machine, to be changed into yours.
    """
    from llmb.errors import UsageError
    from llmb.plugins import scaffold
    from llmb.system import files
    from llmb.text.names import squash_workload

    plain = scaffold.plain_name(name)
    folder = folder or Path(plain)
    for key in context.workloads:
        if squash_workload(key) == squash_workload(plain):
            hint = "choose another name: of two plugins that offer one workload neither is taken"
            raise UsageError(f"{context.plugins.offers[key].source} offers {key} already", hint=hint)
    if folder.exists():
        raise UsageError(f"{folder} is there already", hint="name another folder: llmb-run plugins new NAME FOLDER")
    texts = scaffold.scaffold(plain)
    files.write_folder(folder, texts)
    for path in texts:
        console.echo(f"{folder / path}")
    where = folder if folder.is_absolute() else f"./{folder}"
    say(f"it is found once it is installed: pip install -e {where}")
    say(f"then: llmb-run plugins check; llmb-run list -w {plain}; llmb-run single -w {plain} -s tiny --scale 1 -d")
    say(f"before it runs, install what it needs: llmb-install add {plain} --yes")


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
