# SPDX-License-Identifier: Apache-2.0
"""`llmb-run results`: what runs measured, and how that compares with published figures."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context
from llmb.cli.results.judged import choice_of, gather, judged, print_report, unreadable

F = TypeVar("F", bound=Callable[..., Any])


def choice_options(command: F) -> F:
    """Add ``-w``, ``--exclude-cancelled`` and ``--window``; ``judged.choice_of`` reads them."""
    text = "Only these workloads, as key or key_size."
    for option in (
        options.window_option,
        click.option("--exclude-cancelled", is_flag=True, help="Omit cancelled runs."),
        click.option("-w", "--workloads", multiple=True, callback=options.words, metavar="W", help=text),
    ):
        command = option(command)
    return command


@click.command("results")
@click.argument("runs", nargs=-1)
@choice_options
@options.reference_option
@click.option("--full-names", is_flag=True, help="Do not shorten names.")
@options.format_or_junit_option
@options.install_option
@pass_context
def command(
    context: Context,
    runs: tuple[str, ...],
    workloads: tuple[str, ...],
    window: str | None,
    reference: str | None,
    exclude_cancelled: bool,
    full_names: bool,
    fmt: str,
) -> int:
    """Show results of RUNS (default: all runs), with verdicts.

    Name a run by a unique prefix of its id, by the scheduler's job id, or by its directory.
    """
    choice = choice_of(workloads, exclude_cancelled, window)
    results = [result for _, result in gather(context, runs, choice)]
    if not runs and not workloads:
        results += unreadable(context)
    return print_report(judged(context, results, reference), fmt, full_names=full_names)
