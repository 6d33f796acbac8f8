# SPDX-License-Identifier: Apache-2.0
"""Shows a plan with its costs, asks, carries it out, says what works: the one path of every command that installs."""

import sys
import threading

import click

from llmb.errors import LlmbError, UsageError
from llmb.system import console
from llmb.text.tables import to_json
from llmb_installer.answers import to_yaml
from llmb_installer.applying import show
from llmb_installer.applying.apply import Outcome, apply, context_for
from llmb_installer.planning.costs import Costs, find_costs
from llmb_installer.planning.plan import Intent, Plan, look
from llmb_installer.record import record


def carry_out(intent: Intent, *, yes: bool, dry_run: bool, fmt: str = "table", agreed: bool = False) -> None:
    """Show the plan, ask unless ``yes``, do it and say what is there. Raises LlmbError.

    ``agreed``: the user has seen the plan in the conversation and said yes. With ``fmt`` json nothing but data goes to
    standard output: of a dry run the plan, else what came of it.
    """
    plan = look(intent)
    if plan.is_empty and not (dry_run and fmt == "json"):
        _nothing_to_do(plan, dry_run=dry_run, fmt=fmt)
        return
    if not agreed:
        costs = find_costs(plan.todo, plan.install, context_for(intent, threading.Event()))
        _show(plan, costs, fmt, dry_run=dry_run)
        costs.require()
    if dry_run:
        return
    if not (yes or agreed):
        ask()
    outcome = apply(intent)
    for sentence in outcome.said:
        console.echo(f"note: {sentence}", err=True)
    if fmt == "json":
        console.echo(to_json(show.outcome_data(plan, outcome)), nl=False)
    elif text := show.outcome_text(plan, outcome):
        console.echo(text)
    outcome.require()


def _nothing_to_do(plan: Plan, *, dry_run: bool, fmt: str) -> None:
    intent, kept = plan.intent, plan.config.kept
    if not dry_run:
        record.save_answers(plan.install, to_yaml(intent.asked))
    if fmt == "table":
        console.echo(f"Nothing to do: all is as the answers say{', but for changes by hand' if kept else ''}.")
    for sentence in kept:
        console.echo(f"note: {sentence}", err=True)
    if fmt == "json":
        outcome = Outcome(record=plan.record, said=kept, ready=intent.workloads)
        console.echo(to_json(show.outcome_data(plan, outcome)), nl=False)
    else:
        console.echo(show.summary(plan.install, plan.record, intent.workloads, show.without_torch(plan), intent.smoke))


def _show(plan: Plan, costs: Costs, fmt: str, *, dry_run: bool) -> None:
    """The plan, as data where that is all that is wanted; before an installation told as data, on standard error."""
    if fmt == "json" and dry_run:
        console.echo(to_json(show.plan_data(plan, costs)), nl=False)
    else:
        console.echo(show.plan_text(plan, costs), err=fmt == "json")


def ask(question: str = "Go ahead?") -> None:
    """Have the user confirm. Raises UsageError where there is no terminal, LlmbError after a no."""
    if not sys.stdin.isatty():
        raise UsageError("there is no terminal to confirm the plan in", hint="give --yes")
    if not click.confirm(question, err=True):
        raise LlmbError("nothing was done", hint="--yes goes ahead without asking")
