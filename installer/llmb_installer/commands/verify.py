# SPDX-License-Identifier: Apache-2.0
"""llmb-install verify: what is missing or changed, and its repair."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llmb.system import console
from llmb_installer.commands.options import FORMAT, INSTALLED, YES

if TYPE_CHECKING:
    from llmb.errors import Fault
    from llmb_installer.planning.plan import Intent
    from llmb_installer.planning.status import Standing


@click.command("verify")
@INSTALLED
@click.option("--deep", is_flag=True, help="Read the contents of every file, which takes a while.")
@click.option("--repair", is_flag=True, help="Build again what is missing, changed or older.")
@YES
@FORMAT
def command(install: Path | None, deep: bool, repair: bool, yes: bool, fmt: str) -> None:
    """Find what is missing or changed, or older than this release asks for."""
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
        raise UsageError("--repair tells what it does as it goes: not as json", hint="leave one of the two out")
    folder = find_folder(install, os.environ, console.current_folder())
    found = record.load(folder)
    standing = find_standing(folder, found, required=repair)
    damaged = find_faults(folder, found, standing.wanted, deep=deep)
    faults = [*damaged, *standing.outdated]
    place = f"--install {shlex.quote(str(folder))}"
    if fmt == "json":
        _print_json(folder, faults, standing)
    for note in notes_on(standing, place) if fmt == "table" else ():
        console.echo(f"note: {note}", err=True)
    if not faults:
        how = "read whole" if deep else "not by contents: --deep reads them"
        count = len(found.steps)
        if fmt == "table":
            console.echo(f"{folder} is whole: {count} step{'s' * (count != 1)} and the configuration, {how}")
        return
    if standing.intent is None or not repair:
        if (who := at_work(folder)) is not None:
            raise StepsFailed(faults, hint=f"{who}, and may yet make them: wait until it has finished")
        again = f"llmb-install verify {'--deep ' if deep else ''}--repair {place} --yes makes them"
        raise StepsFailed(faults, hint=again if any(fault.place != "answers" for fault in faults) else None)
    for fault in faults:
        console.echo(f"found: {fault}", err=True)
    if not yes:
        ask(f"Build {', '.join(sorted({fault.place for fault in faults}))} again?")
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
    console.echo(to_json(data), nl=False)


def _repair(folder: Path, intent: Intent, keys: set[str]) -> None:
    """Note what is damaged, then build it, and what is outdated; what nobody asks for any more is only forgotten."""
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
            console.echo(f"note: {CONFIG_FILE} as it was is now {aside.name}", err=True)
        if found.config and not (folder / CONFIG_FILE).exists():
            config.write_config(folder, config.ConfigChange(data=found.config, changed=True, kept=()))
    if intent.workloads:
        carry_out(intent, yes=True, dry_run=False)
    else:
        console.echo(f"{folder} is mended")
