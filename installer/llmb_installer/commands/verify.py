# SPDX-License-Identifier: Apache-2.0
"""llmb-install verify: finds what is missing, changed or out of date, and repairs it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llmb.system import edge
from llmb_installer.commands import FORMAT, INSTALLED, YES

if TYPE_CHECKING:
    from llmb.errors import Fault
    from llmb_installer.planning.plan import Intent
    from llmb_installer.planning.status import Standing


@click.command("verify")
@INSTALLED
@click.option("--deep", is_flag=True, help="Read the contents of every file; takes a while.")
@click.option("--repair", is_flag=True, help="Rebuild what is missing, changed or out of date.")
@YES
@FORMAT
def command(install: Path | None, deep: bool, repair: bool, yes: bool, fmt: str) -> None:
    """Find what is missing, changed, or out of date for this release."""
    import os

    from llmb.errors import UsageError
    from llmb_installer.applying.apply import StepsFailed
    from llmb_installer.applying.install import ask
    from llmb_installer.applying.show import notes_on
    from llmb_installer.planning.status import find_standing
    from llmb_installer.planning.verify import find_faults
    from llmb_installer.record import record
    from llmb_installer.record.folder import at_work, find_folder

    if repair and fmt == "json":
        raise UsageError(
            "--repair cannot be combined with --format json", hint="omit one of them", code="repair-as-json"
        )
    folder = find_folder(install, os.environ, edge.current_folder())
    found = record.load(folder)
    standing = find_standing(folder, found, required=repair)
    damaged = find_faults(folder, found, standing.wanted, deep=deep)
    faults = [*damaged, *standing.outdated]
    place = f"--install {shlex.quote(str(folder))}"
    if fmt == "json":
        _print_json(folder, faults, standing)
    for note in notes_on(standing, place) if fmt == "table" else ():
        edge.echo(f"note: {note}", err=True)
    if not faults:
        how = "with the contents of every file" if deep else "without file contents, which --deep reads"
        count = len(found.steps)
        if fmt == "table":
            steps = f"{count} step{'s' * (count != 1)} and the configuration, {how}"
            edge.echo(f"{folder} is valid: {steps if count else 'the configuration; nothing was installed here'}")
        return
    if standing.intent is None or not repair:
        if (who := at_work(folder)) is not None:
            raise StepsFailed(faults, hint=f"{who}: wait until it has finished, it may still be building them")
        again = f"llmb-install verify {'--deep ' if deep else ''}--repair {place} --yes rebuilds them"
        raise StepsFailed(faults, hint=again if any(fault.place != "answers" for fault in faults) else None)
    for fault in faults:
        edge.echo(f"found: {fault}", err=True)
    if not yes:
        ask(f"Rebuild {', '.join(sorted({fault.place for fault in faults}))}?")
    _repair(folder, standing.intent, {fault.place for fault in damaged})


def _print_json(folder: Path, faults: list[Fault], standing: Standing) -> None:
    from llmb.text.tables import to_json

    rows = [{"step": fault.place, "message": fault.message, "hint": fault.hint} for fault in faults]
    data = {
        "install": str(folder),
        "whole": not faults,
        "faults": rows,
        "not_installed": [*standing.new],
        "unused": [*standing.unused],
    }
    edge.echo(to_json(data), nl=False)


def _repair(folder: Path, intent: Intent, keys: set[str]) -> None:
    """Mark what is damaged and rebuild it, with what is out of date; steps that are no longer needed are forgotten."""
    from llmb.config import CONFIG_FILE
    from llmb.system import locks
    from llmb_installer.applying.install import carry_out
    from llmb_installer.planning import config
    from llmb_installer.planning.verify import unreadable
    from llmb_installer.record import record

    with locks.hold(folder / record.FOLDER, record.LOCK):
        found = record.load(folder)
        wanted = {step.key for step in intent.steps}
        for key in keys & set(found.steps):
            found = found.marked(key) if key in wanted else found.without(key)
        record.save(folder, found)
        if unreadable(folder) and (aside := config.set_aside(folder)) is not None:
            edge.echo(f"note: the invalid {CONFIG_FILE} was renamed to {aside.name}", err=True)
        if found.config and not (folder / CONFIG_FILE).exists():
            config.write_config(folder, config.ConfigChange(data=found.config, changed=True, kept=()))
    if intent.workloads:
        carry_out(intent, yes=True, dry_run=False)
    else:
        edge.echo(f"{folder} is repaired")
