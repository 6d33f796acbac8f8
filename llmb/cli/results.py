# SPDX-License-Identifier: Apache-2.0
"""`llmb-run results`, and the table of results for every command."""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

import click

from llmb.cli import options
from llmb.cli.choice import (
    Choice,
    choice_options,
    choose_runs,
    gather,
    sessions_of,
    unreadable_results,
)
from llmb.cli.context import CliContext, pass_context, say
from llmb.cli.judging import judged
from llmb.cli.output import print_rows, print_runs
from llmb.cli.reading import opened
from llmb.contract.record import Session
from llmb.contract.state import COMPLETED
from llmb.core import console
from llmb.core.tables import escape, to_json
from llmb.errors import RUN_FAILED, LlmbError
from llmb.judge import export
from llmb.judge.compare import is_comparable
from llmb.judge.export import newest_baseline, read_baseline
from llmb.judge.far_runs import far_runs
from llmb.judge.judge import pools_of
from llmb.judge.value import BAD, INCONCLUSIVE, NO_REFERENCE
from llmb.measure import columns
from llmb.measure.result import UNKNOWN, Result
from llmb.show import results_table
from llmb.show.report.digest import digest


@click.command("results")
@click.argument("runs", nargs=-1)
@choice_options
@options.reference_option
@click.option("--full-names", is_flag=True, help="Do not shorten names.")
@options.format_or_junit_option
@options.read_option
@pass_context
def command(
    context: CliContext,
    runs: tuple[str, ...],
    choice: Choice,
    reference: str | None,
    full_names: bool,
    fmt: str,
) -> int:
    """Show results of RUNS (default: the newest session), with verdicts.

    RUNS are unique prefixes of ids, job ids of the scheduler, or directories. If the first one is
    the file of an archive, the runs in it are shown.
    """
    names = opened(context, runs)
    all_runs, damaged = context.read_runs()
    chosen = choose_runs(all_runs, names, choice)
    measured = gather(context, chosen, choice)
    results = [result for *_, result in measured]
    if not names:
        results += unreadable_results(context, damaged, choice)
    results = judged(context, results, reference, runs=all_runs)
    is_judged = any(result.verdict.word not in (None, NO_REFERENCE) for result in results)
    is_read_by_people = fmt in ("table", "md")
    return print_report(
        results,
        fmt,
        full_names=full_names,
        baseline=(
            comparable_baseline(context, results) if is_read_by_people and not is_judged else None
        ),
        # a baseline can neither be kept in an archive nor in an installation of others
        archived=context.archive is not None or not os.access(context.config.llmb_install, os.W_OK),
        sessions=sessions_of(run for run, *_ in measured) if fmt == "json" else (),
    )


def print_report(
    results: Sequence[Result],
    fmt: str,
    *,
    full_names: bool,
    archived: bool = False,
    baseline: str | None = None,
    sessions: Sequence[Session] = (),
) -> int:
    """Print ``results`` and return the exit code of the command.

    ``archived``: they are of an archive, or of an installation that this user cannot write to.
    ``baseline``: an accepted one that has their configurations.
    """
    if fmt == "json":
        console.echo(to_json(columns.report(results, sessions)), nl=False)
    elif fmt == "junit":
        console.echo(export.to_junit(map(export.junit_case, results)), nl=False)
    elif fmt == "csv":
        print_rows(columns.csv_columns(results), columns.csv_rows(results), fmt)
    else:
        print_runs(*results_table.table_of(results), fmt, full_names=full_names)
        for line in (
            *results_table.legend(results, archived=archived or baseline is not None),
            *(digest(results) if fmt == "table" else ()),
            *(_undecided(results) if fmt == "table" else ()),
        ):
            say(escape(line))
    if baseline is not None:
        say(f"Compare with the accepted baseline: llmb-run compare --baseline {baseline}")
    return exit_code(results)


def comparable_baseline(context: CliContext, results: Sequence[Result]) -> str | None:
    """Return the newest baseline if it has the configuration of one of ``results``."""
    install = context.config.llmb_install
    name = newest_baseline(install)
    with suppress(LlmbError):  # a damaged baseline: comparing with it says so
        if name is not None and is_comparable(results, read_baseline(install, name).results):
            return name
    return None


def _undecided(results: Sequence[Result]) -> list[str]:
    """Return a line for each run that is far from its repeats, which have no clear verdict."""
    results = [result for result in results if result.verdict.word == INCONCLUSIVE]
    return [f"note: {run}, which widens intervals" for run in far_runs(pools_of(results))]


def exit_code(results: Iterable[Result]) -> int:
    """3 if a run failed or a verdict is FAIL or INVALID, else 1 if a log says nothing, else 0.

    A log says nothing if it cannot be read, or if its run completed and nothing in it is known.
    """
    results = list(results)
    if any(result.is_failure or result.verdict.word in BAD for result in results):
        return RUN_FAILED
    says_nothing = any(
        result.unreadable or (result.status, result.state) == (UNKNOWN, COMPLETED)
        for result in results
    )
    return LlmbError.exit_code if says_nothing else 0
