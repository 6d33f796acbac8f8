# SPDX-License-Identifier: Apache-2.0
"""From an answers file to an install directory: the flow of llmb-install, whoever gave the answers."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from llmb import files, yamlfile
from llmb.errors import LlmbError, UsageError
from llmb_installer import apply, show
from llmb_installer.answers import read_answers, to_yaml
from llmb_installer.place import find_gpu, site_of
from llmb_installer.plan import Intent, intend, look


def prepare(answers_file: Path, folder: Path | None) -> tuple[Intent, list[str]]:
    """What the answers ask for on this machine, and notes for the user. Nothing is written. Raises UsageError."""
    from llmb.loader import load_plugins

    plugins = load_plugins()
    known = plugins.workloads()
    notes = [f"plugin {problem.source} is left out: {problem.reason}" for problem in plugins.problems]
    if not known:
        raise LlmbError("no plugin offers a workload", hint="pip install llmb brings three")
    answers = read_answers(yamlfile.load(answers_file), install=folder, known=known)
    gpu = find_gpu(answers.gpu_type)
    if gpu.note:
        notes.append(gpu.note)
    intent, left_out = intend(answers, site_of(answers, gpu.gpu_type), plugins)
    return intent, [*notes, *left_out]


def record_answers(intent: Intent, path: Path) -> None:
    """Write the answers in effect, a file that gives the same installation again."""
    files.write_text(path, to_yaml(intent.answers))


def carry_out(intent: Intent, *, yes: bool, dry_run: bool) -> None:
    """Show the plan, ask unless ``yes``, do it and say what is there. Raises LlmbError."""
    plan = look(intent)
    if plan.is_empty:
        click.echo("Nothing to do: all is as the answers say.")
        click.echo(show.summary(plan, plan.record))
        return
    click.echo(show.plan_text(plan))
    if dry_run:
        return
    if not yes:
        _ask()
    outcome = apply.apply(intent, show.step_line)
    for sentence in outcome.said:
        click.echo(f"note: {sentence}", err=True)
    click.echo(show.summary(plan, outcome.record))


def _ask() -> None:
    if not sys.stdin.isatty():
        raise UsageError("there is no terminal to confirm the plan in", hint="give --yes")
    if not click.confirm("Go ahead?", err=True):
        raise LlmbError("nothing was done", hint="--yes goes ahead without asking")
