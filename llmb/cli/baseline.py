# SPDX-License-Identifier: Apache-2.0
"""`llmb-run baseline`: accepted results that later runs are compared with."""

import time
from pathlib import Path

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context, say
from llmb.cli.output import print_rows
from llmb.cli.reading import opened
from llmb.cli.results import Choice, choice_options, gather, judged
from llmb.errors import UsageError
from llmb.text.tables import Column
from llmb.verdict.export import accept_baseline, baseline_facts, baselines, why_rejected


@click.group("baseline", cls=options.Group)
def group() -> None:
    """Keep accepted results to compare later runs with."""


@group.command("accept")
@click.argument("name")
@click.argument("runs", nargs=-1)
@click.option("--replace", is_flag=True, help="Overwrite an existing baseline.")
@choice_options
@options.install_option
@pass_context
def accept(context: Context, name: str, runs: tuple[str, ...], replace: bool, choice: Choice) -> None:
    """Accept the results of RUNS (default: all runs) as baseline NAME.

    Runs that failed, have not ended or are INVALID are skipped.
    """
    results = judged(context, [result for _, result in gather(context, context.runs(runs), choice)])
    good = [result for result in results if why_rejected(result) is None]
    for result in results:
        if (why := why_rejected(result)) is not None:
            say(f"skipped: {result.identity.run} {result.identity.experiment}: {why}")
    if not good:
        hint = "llmb-run results shows the runs"
        raise UsageError("no run can be accepted", hint=hint, code="runs-missing", key="RUNS")
    path = accept_baseline(context.config.llmb_install, name, good, time.time(), replace=replace)
    skipped = f", {len(results) - len(good)} skipped" if len(good) < len(results) else ""
    say(f"baseline {name}: {len(good)} run{'s' if len(good) != 1 else ''}{skipped}: {path}")
    say(f"compare with it: llmb-run compare --baseline {name}")


@group.command("list")
@click.argument("archive", required=False)
@options.format_option
@options.read_option
@pass_context
def list_(context: Context, archive: str | None, fmt: str) -> None:
    """Show the baselines of this install directory, or of ARCHIVE."""
    if archive is not None and opened(context, (archive,)):
        message, hint = f"{archive} is no archive", "name a file FILE.tar.zst, or give --install DIR"
        raise UsageError(message, hint=hint, code="archive-name", key="ARCHIVE", value=archive)
    install = context.config.llmb_install
    rows = [baseline_facts(install, name) for name in baselines(install)]
    rows = [{**row, "file": context.shown(Path(row["file"]))} for row in rows]
    if not rows:
        say("no baselines yet; accept one: llmb-run baseline accept NAME")
    day = Column(key="accepted", show=lambda text: str(text)[:10])
    print_rows([Column(key="name"), day, Column(key="runs", right=True), Column(key="file")], rows, fmt)
