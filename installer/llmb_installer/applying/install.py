# SPDX-License-Identifier: Apache-2.0
"""The path of every command that installs: plan with costs, confirmation, build, report."""

import sys
import threading

import click

from llmb.core import console
from llmb.core.fold import fold
from llmb.core.tables import output_width, to_json
from llmb.errors import LlmbError, UsageError
from llmb_installer import record
from llmb_installer.answers.schema import to_yaml
from llmb_installer.applying import show
from llmb_installer.applying.apply import InstallOutcome, apply, make_context
from llmb_installer.planning.costs import find_costs
from llmb_installer.planning.plan import InstallPlan, Intent, plan_install


def carry_out(
    intent: Intent, *, yes: bool, dry_run: bool, fmt: str = "table", agreed: bool = False
) -> None:
    """Show the plan, confirm unless ``yes``, build it and print the outcome. Raises LlmbError.

    ``agreed`` means that the user confirmed the plan in the wizard. With ``fmt`` json only data
    goes to standard output: the plan of a dry run, otherwise the outcome.
    """
    plan = plan_install(intent)
    if plan.is_empty and not (dry_run and fmt == "json"):
        _nothing_to_do(plan, dry_run=dry_run, fmt=fmt)
        return
    if not agreed:
        costs = find_costs(plan.todo, plan.install, make_context(intent, threading.Event()))
        if fmt == "json" and dry_run:
            console.echo(to_json(show.plan_data(plan, costs)), nl=False)
        else:  # before an installation in JSON, on standard error
            console.echo(show.format_plan(plan, costs), err=fmt == "json")
        costs.require()
    if dry_run:
        return
    if not (yes or agreed):
        confirm()
    try:
        outcome = apply(intent)
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(_interrupted(intent, yes=yes)) from error
    for sentence in outcome.notes:
        console.echo(f"note: {sentence}", err=True)
    if fmt == "json":
        console.echo(to_json(show.outcome_data(plan, outcome)), nl=False)
    elif text := show.format_outcome(plan, outcome):
        console.echo(text)
    outcome.require()


def _interrupted(intent: Intent, *, yes: bool) -> str:
    """Describe what an interrupted installation keeps, and the command that continues it."""
    try:
        progress = f"{plan_install(intent).progress} and kept; "
    except LlmbError:  # the command to continue reports it
        progress = ""
    command = f"llmb-install{record.format_option(intent.site.install)}{' --yes' if yes else ''}"
    text = f"Interrupted: {progress}downloads continue where they were cut off."
    return f"{fold(text, output_width())}\nTo continue: {command}"


def _nothing_to_do(plan: InstallPlan, *, dry_run: bool, fmt: str) -> None:
    intent, kept_notes = plan.intent, plan.config.kept
    if not dry_run:
        record.save_answers(plan.install, to_yaml(intent.asked))
    if fmt == "table":
        console.echo(
            "Nothing to do: everything in the answers is"
            f" installed{', except for changes by hand' if kept_notes else ''}."
        )
    for sentence in kept_notes:
        console.echo(f"note: {sentence}", err=True)
    if fmt == "json":
        outcome = InstallOutcome(record=plan.record, notes=kept_notes, ready=intent.workloads)
        console.echo(to_json(show.outcome_data(plan, outcome)), nl=False)
    else:
        console.echo(show.summarize_plan(plan, plan.record, intent.workloads))


def confirm(question: str = "Continue?") -> None:
    """Ask the user to confirm.

    A no ends the command with exit code 0. Raises UsageError without a terminal.
    """
    if not sys.stdin.isatty():
        raise UsageError(
            "the plan must be confirmed, and this is no terminal",
            hint="add --yes",
            code="no-terminal",
        )
    if not click.confirm(question, err=True):
        console.echo("Nothing was changed.", err=True)
        raise click.exceptions.Exit(0)
