# SPDX-License-Identifier: Apache-2.0
"""`llmb-run baseline`: results that were accepted as good, to compare later ones with."""

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context, say
from llmb.cli.results import choose


@click.group("baseline", cls=options.Group)
def group() -> None:
    """Keep good results under a name, to compare later ones with."""


@group.command("accept")
@click.argument("name")
@click.argument("runs", nargs=-1)
@click.option("--replace", is_flag=True, help="Put it in the place of the one that is there.")
@choose.choice_options
@options.install_option
@pass_context
def accept(
    context: Context,
    name: str,
    runs: tuple[str, ...],
    replace: bool,
    workloads: tuple[str, ...],
    exclude_cancelled: bool,
    window: str | None,
) -> None:
    """Keep what RUNS measured, all runs of this install without names, as the baseline NAME.

    Runs that failed, go on or do not count are left out.
    """
    import time

    from llmb.cli.results.judged import judged
    from llmb.errors import UsageError
    from llmb.verdict.export import accept_baseline, why_left_out

    choice = choose.choice_of(workloads, exclude_cancelled, window)
    results = judged(context, [result for _, result in choose.gather(context, runs, choice)])
    good = [result for result in results if why_left_out(result) is None]
    for result in results:
        if (why := why_left_out(result)) is not None:
            say(f"left out: {result.run} {result.experiment}: {why}")
    if not good:
        raise UsageError("no run to accept has succeeded", hint="llmb-run results shows the runs")
    path = accept_baseline(context.config.llmb_install, name, good, time.time(), replace=replace)
    left = f", {len(results) - len(good)} left out" if len(good) < len(results) else ""
    say(f"baseline {name}: {len(good)} run{'s' if len(good) != 1 else ''}{left}: {path}")
    say(f"compare with it: llmb-run compare --baseline {name}")


@group.command("list")
@options.format_option
@options.install_option
@pass_context
def list_(context: Context, fmt: str) -> None:
    """Show the baselines of this install."""
    from llmb.cli.output import print_rows
    from llmb.text.tables import Column
    from llmb.verdict.export import baseline_facts, baselines

    install = context.config.llmb_install
    rows = [baseline_facts(install, name) for name in baselines(install)]
    if not rows:
        say("no baseline yet; accept one: llmb-run baseline accept NAME")
    day = Column(key="accepted", show=lambda text: str(text)[:10])
    print_rows([Column(key="name"), day, Column(key="runs", right=True), Column(key="file")], rows, fmt)
