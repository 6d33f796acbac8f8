# SPDX-License-Identifier: Apache-2.0
"""llmb-install verify: what is missing or changed, and its repair."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from llmb_installer.options import INSTALLED, YES

if TYPE_CHECKING:
    from llmb_installer.plan import Intent


@click.command("verify")
@INSTALLED
@click.option("--deep", is_flag=True, help="Read the contents of every file, which takes a while.")
@click.option("--repair", is_flag=True, help="Build again what is missing or changed.")
@YES
def command(install: Path | None, deep: bool, repair: bool, yes: bool) -> None:
    """Find what is missing or changed."""
    import os

    from llmb_installer import flow, record
    from llmb_installer.apply import StepsFailed
    from llmb_installer.folder import find_folder
    from llmb_installer.verify import find_faults

    folder = find_folder(install, os.environ, Path.cwd())
    found, intent = record.load(folder), None if repair else _wanted(folder)
    if repair:
        offered = flow.known()
        intent, _ = flow.intent_of(flow.recorded_answers(folder, offered), offered)
    faults = find_faults(folder, found, [step.key for step in intent.steps] if intent is not None else (), deep=deep)
    if not faults:
        how = "read whole" if deep else "not by contents: --deep reads them"
        count = len(found.steps)
        click.echo(f"{folder} is whole: {count} step{'s' * (count != 1)} and the configuration, {how}")
        return
    if intent is None or not repair:
        raise StepsFailed(
            faults, hint=f"llmb-install verify {'--deep ' if deep else ''}--repair --install {folder} builds them again"
        )
    for fault in faults:
        click.echo(f"found: {fault}", err=True)
    _repair(folder, intent, {fault.place for fault in faults}, yes=yes)


def _wanted(folder: Path) -> Intent | None:
    """What the answers ask for; None, with a note, where that cannot be told here."""
    from llmb.errors import LlmbError
    from llmb_installer import flow

    try:
        offered = flow.known()
        return flow.intent_of(flow.recorded_answers(folder, offered), offered)[0]
    except LlmbError as error:
        click.echo(f"note: not held against the answers: {error.message}", err=True)
        return None


def _repair(folder: Path, intent: Intent, keys: set[str], *, yes: bool) -> None:
    """Note what is damaged, then build it; what nobody asks for any more is only forgotten."""
    from llmb import locks
    from llmb.config import CONFIG_FILE
    from llmb_installer import config, record
    from llmb_installer.install import ask, carry_out
    from llmb_installer.verify import unreadable

    if not yes:
        ask(f"Build {', '.join(sorted(keys))} again?")
    with locks.hold(folder / record.FOLDER, "install"):
        found = record.load(folder)
        wanted = {step.key for step in intent.steps}
        for key in keys & set(found.steps):
            found = found.marked(key) if key in wanted else found.without(key)
        record.save(folder, found)
        if unreadable(folder) and (aside := config.set_aside(folder)) is not None:
            click.echo(f"note: {CONFIG_FILE} as it was is now {aside.name}", err=True)
        if found.config and not (folder / CONFIG_FILE).exists():
            config.write_config(folder, config.ConfigChange(data=found.config, changed=True, kept=()))
    if intent.workloads:
        carry_out(intent, yes=True, dry_run=False)
    else:
        click.echo(f"{folder} is mended")
