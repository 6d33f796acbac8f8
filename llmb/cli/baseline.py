# SPDX-License-Identifier: Apache-2.0
"""`llmb-run baseline`: accepted results that later runs are compared with."""

import os
import time
from pathlib import Path

import click

from llmb.cli import options
from llmb.cli.choice import Choice, choice_options, choose_runs, gather, sessions_of
from llmb.cli.context import CliContext, pass_context, say
from llmb.cli.judging import judged
from llmb.cli.output import print_rows
from llmb.cli.reading import opened
from llmb.cli.results import print_report
from llmb.core import files
from llmb.core.tables import Column
from llmb.errors import LlmbError, UsageError
from llmb.judge.export import (
    accept_baseline,
    baseline_facts,
    baselines,
    read_baseline,
    why_rejected,
)
from llmb.judge.far_runs import far_runs
from llmb.judge.judge import pools_of, without_session

_UNWRITABLE = "file-unwritable"  # the code of a file that may not be written
_NAMED = 8  # runs in a command to type


@click.group("baseline", cls=options.CommandGroup)
def group() -> None:
    """Keep accepted results to compare later runs with."""


@group.command("accept")
@click.argument("name")
@click.argument("runs", nargs=-1)
@click.option("--replace", is_flag=True, help="Overwrite an existing baseline.")
@choice_options
@options.install_option
@pass_context
def accept(
    context: CliContext, name: str, runs: tuple[str, ...], replace: bool, choice: Choice
) -> None:
    """Accept the results of RUNS (default: the newest session) as baseline NAME.

    Runs that failed, have not ended or are INVALID are skipped.
    """
    all_runs = context.runs()
    measured = gather(context, choose_runs(all_runs, runs, choice), choice)
    results = judged(context, [result for *_, result in measured], runs=all_runs)
    accepted = [result for result in results if why_rejected(result) is None]
    for result in results:
        if (objection := why_rejected(result)) is not None:
            say(f"skipped: {result.identity.run} {result.identity.experiment}: {objection}")
    if not accepted:
        raise UsageError(
            "no run can be accepted",
            hint="llmb-run results shows the runs",
            code="runs-missing",
            key="RUNS",
        )
    install = context.config.llmb_install
    try:
        path = accept_baseline(
            install,
            name,
            accepted,
            time.time(),
            replace=replace,
            sessions=sessions_of(run for run, *_ in measured),
        )
    except LlmbError as error:
        if error.code != _UNWRITABLE or files.owner(install) == os.getuid():
            raise
        raise LlmbError(
            f"{error.message}; the installation is another user's",
            hint=(
                "keep the results in a file of your own: llmb-run results --format json > FILE."
                " Compare later runs with it: llmb-run compare EXPERIMENT FILE. Or ask the owner"
                " for the baseline"
            ),
            code=error.code,
            value=error.value,
        ) from error
    skipped = f", {len(results) - len(accepted)} skipped" if len(accepted) < len(results) else ""
    say(f"baseline {name}: {len(accepted)} run{'s' if len(accepted) != 1 else ''}{skipped}: {path}")
    # its sessions are one when later runs are compared with it
    for far_run in (far := far_runs(pools_of(map(without_session, accepted)))):
        say(f"warning: {far_run}: it widens the intervals of comparisons with this baseline")
    if far:
        far_ids = {far_run.result.identity.run for far_run in far}
        accepted_runs = [result.identity.run for result in accepted]
        ids = [run for run in accepted_runs if run is not None and run not in far_ids]
        named = " ".join(ids) if len(ids) <= _NAMED else "RUNS, the others"
        pronoun = "it" if len(far) == 1 else "them"
        say(f"without {pronoun}: llmb-run baseline accept {name} --replace {named}")
    say(f"Submit the same jobs again, then: llmb-run compare --baseline {name}")


@group.command("list")
@click.argument("archive", required=False)
@options.format_option
@options.read_option
@pass_context
def list_(context: CliContext, archive: str | None, fmt: str) -> None:
    """Show the baselines of this install directory, or of ARCHIVE."""
    if archive is not None and opened(context, (archive,)):
        raise UsageError(
            f"{archive} is no archive",
            hint="name a file FILE.tar.zst, or give --install DIR",
            code="archive-name",
            key="ARCHIVE",
            value=archive,
        )
    install = context.config.llmb_install
    rows = [baseline_facts(install, name) for name in baselines(install)]
    rows = [{**row, "file": context.shown(Path(row["file"]))} for row in rows]
    if not rows:
        say("No baselines yet. Accept one: llmb-run baseline accept NAME")
    day = Column(key="accepted", show=lambda text: str(text)[:10])
    print_rows(
        [Column(key="name"), day, Column(key="runs", right=True), Column(key="file")], rows, fmt
    )


@group.command("show")
@click.argument("baseline", metavar="NAME")
@options.format_option
@options.read_option
@pass_context
def show(context: CliContext, baseline: str, fmt: str) -> None:
    """Show the accepted results of baseline NAME as `results` does."""
    accepted = read_baseline(context.config.llmb_install, baseline)
    print_report(accepted.results, fmt, full_names=False, archived=context.archive is not None)
