# SPDX-License-Identifier: Apache-2.0
"""The path of every command that installs: show the plan with its costs, confirm, build, and report."""

import sys
import threading

import click

from llmb.errors import LlmbError, UsageError
from llmb.system import console
from llmb.text.fold import fold
from llmb.text.tables import output_width, to_json
from llmb_installer import record
from llmb_installer.answers.schema import to_yaml
from llmb_installer.applying import show
from llmb_installer.applying.apply import Outcome, apply, context_for
from llmb_installer.planning.costs import find_costs
from llmb_installer.planning.plan import Intent, Plan, look


def carry_out(intent: Intent, *, yes: bool, dry_run: bool, fmt: str = "table", agreed: bool = False) -> None:
    """Show the plan, confirm unless ``yes``, build it and print the outcome. Raises LlmbError.

    ``agreed``: the user confirmed the plan in the wizard. With ``fmt`` json only data goes to standard output: the plan
    of a dry run, otherwise the outcome.
    """
    plan = look(intent)
    if plan.is_empty and not (dry_run and fmt == "json"):
        _nothing_to_do(plan, dry_run=dry_run, fmt=fmt)
        return
    if not agreed:
        costs = find_costs(plan.todo, plan.install, context_for(intent, threading.Event()))
        if fmt == "json" and dry_run:
            console.echo(to_json(show.plan_data(plan, costs)), nl=False)
        else:  # before an installation in JSON, on standard error
            console.echo(show.plan_text(plan, costs), err=fmt == "json")
        costs.require()
    if dry_run:
        return
    if not (yes or agreed):
        ask()
    try:
        outcome = apply(intent)
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(_interrupted(intent, yes=yes)) from error
    for sentence in outcome.notes:
        console.echo(f"note: {sentence}", err=True)
    if fmt == "json":
        console.echo(to_json(show.outcome_data(plan, outcome)), nl=False)
    elif text := show.outcome_text(plan, outcome):
        console.echo(text)
    outcome.require()


def _interrupted(intent: Intent, *, yes: bool) -> str:
    """What is kept of an interrupted installation, and the command that continues it, in one line to be pasted."""
    try:
        kept = f"{look(intent).progress} and kept; "
    except LlmbError:  # the command to continue reports it
        kept = ""
    command = f"llmb-install{record.option_of(intent.site.install)}{' --yes' if yes else ''}"
    text = f"Interrupted: {kept}downloads continue where they were cut off."
    return f"{fold(text, output_width())}\nTo continue: {command}"


def _nothing_to_do(plan: Plan, *, dry_run: bool, fmt: str) -> None:
    intent, kept = plan.intent, plan.config.kept
    if not dry_run:
        record.save_answers(plan.install, to_yaml(intent.asked))
    if fmt == "table":
        console.echo(
            f"Nothing to do: everything in the answers is installed{', except for changes by hand' if kept else ''}."
        )
    for sentence in kept:
        console.echo(f"note: {sentence}", err=True)
    if fmt == "json":
        outcome = Outcome(record=plan.record, notes=kept, ready=intent.workloads)
        console.echo(to_json(show.outcome_data(plan, outcome)), nl=False)
    else:
        console.echo(show.summary_of(plan, plan.record, intent.workloads))


def ask(question: str = "Continue?") -> None:
    """Ask the user to confirm. Raises UsageError without a terminal, LlmbError after a no."""
    if not sys.stdin.isatty():
        raise UsageError("the plan must be confirmed, and this is no terminal", hint="add --yes", code="no-terminal")
    if not click.confirm(question, err=True):
        raise LlmbError("nothing was done", hint="--yes skips the question", code="declined")
