# SPDX-License-Identifier: Apache-2.0
"""llmb-install verify: what is missing or changed, and its repair."""

from __future__ import annotations

from pathlib import Path

import click

from llmb_installer.options import INSTALLED, YES


@click.command("verify")
@INSTALLED
@click.option("--deep", is_flag=True, help="Read the contents of every file, which takes a while.")
@click.option("--repair", is_flag=True, help="Build again what is missing or changed.")
@YES
def command(install: Path | None, deep: bool, repair: bool, yes: bool) -> None:
    """Find what is missing or changed."""
    import os

    from llmb.config import find_install
    from llmb_installer import record
    from llmb_installer.apply import StepsFailed
    from llmb_installer.verify import find_faults

    folder = find_install(install, os.environ, Path.cwd())
    found = record.load(folder)
    faults = find_faults(folder, found, deep=deep)
    if not faults:
        click.echo(
            f"{folder} is whole: {len(found.steps)} steps and the configuration, {'' if deep else 'not '}by contents"
        )
        return
    if not repair:
        raise StepsFailed(
            faults, hint=f"llmb-install verify {'--deep ' if deep else ''}--repair --install {folder} builds them again"
        )
    for fault in faults:
        click.echo(f"found: {fault}", err=True)
    _repair(folder, {fault.place for fault in faults}, yes=yes)


def _repair(folder: Path, keys: set[str], *, yes: bool) -> None:
    from llmb import locks
    from llmb_installer import flow, record
    from llmb_installer.install import ask, carry_out

    offered = flow.known()
    intent, _ = flow.intent_of(flow.recorded_answers(folder, offered), offered)
    if not yes:
        ask(f"Build {', '.join(sorted(keys))} again?")
    with locks.hold(folder / record.FOLDER, "install"):
        found = record.load(folder)
        for key in keys:
            found = found.without(key)
        record.save(folder, found)
    carry_out(intent, yes=True, dry_run=False)
