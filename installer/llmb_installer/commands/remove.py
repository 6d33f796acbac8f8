# SPDX-License-Identifier: Apache-2.0
"""llmb-install remove: takes workloads out, with what no other workload uses."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llmb.system import console
from llmb_installer.commands.options import DRY_RUN, INSTALLED, YES

if TYPE_CHECKING:
    from llmb_installer.applying.remove import Removal
    from llmb_installer.record.record import InstallRecord


@click.command("remove")
@click.argument("workloads", nargs=-1)
@click.option("--unused", is_flag=True, help="Take out what nothing that is installed asks for any more.")
@INSTALLED
@YES
@DRY_RUN
def command(workloads: tuple[str, ...], unused: bool, install: Path | None, yes: bool, dry_run: bool) -> None:
    """Take WORKLOADS out; their runs stay."""
    import os
    from dataclasses import replace

    from llmb.errors import UsageError
    from llmb.text.names import as_keys, find_workload
    from llmb_installer.applying import remove
    from llmb_installer.applying.install import ask
    from llmb_installer.planning import flow
    from llmb_installer.record import record
    from llmb_installer.record.folder import config_of, find_folder

    if bool(workloads) == unused:
        said = "--unused goes alone" if unused else "no workload is named"
        raise UsageError(said, hint="llmb-install remove WORKLOAD, or llmb-install remove --unused")
    folder = find_folder(install, os.environ, console.current_folder())
    if unused:
        _remove_unused(folder, yes=yes, dry_run=dry_run)
        return
    offered = flow.known()
    config = config_of(folder, os.environ)
    found = record.load(folder)
    built = [key for done in found.steps.values() for key in done.workloads]
    installed = as_keys(config.workloads.installed or (), [*built, *offered.workloads])
    there = {*installed, *built}
    keys = [find_workload(name, sorted({*there, *offered.workloads})) for name in workloads]
    if absent := [key for key in keys if key not in there]:
        told = f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed in {folder}"
        raise UsageError(told, hint=f"installed: {', '.join(sorted(there)) or 'nothing'}")
    asked = flow.recorded_answers(folder, offered)
    staying = tuple(key for key in installed if key not in keys)
    by_hand = not record.answers_path(folder).is_file()  # what was not installed by the answers stays as it is
    wanted = tuple(key for key in asked.workloads or () if key not in keys) if by_hand else staying
    asked = replace(asked, workloads=wanted)
    removal = remove.plan_removal(found, keys)
    _show(folder, removal, found)
    if dry_run:
        return
    if not yes:
        ask()
    removed = remove.remove(flow.intent_of(asked, offered, before=found.config)[0], asked, keys)
    console.echo(f"Taken out: {', '.join([*keys, *removed.steps])}")
    console.echo(f"Installed now: {', '.join(staying) or 'nothing'}")


def _show(folder: Path, removal: Removal, found: InstallRecord) -> None:
    console.echo(f"To be taken out of {folder}: {', '.join(removal.workloads)}")
    for key in removal.steps:
        console.echo(f"  {key}: will be removed, no other workload uses it")
    for key in removal.kept:
        others = [user for user in found.steps[key].workloads if user not in removal.workloads]
        console.echo(f"  {key}: stays, for {', '.join(others or ['what was submitted before'])}")
    console.echo("  runs and their results stay")


def _remove_unused(folder: Path, *, yes: bool, dry_run: bool) -> None:
    """Take out what an earlier release, or earlier answers, asked for."""
    from llmb.errors import LlmbError
    from llmb_installer.applying import remove
    from llmb_installer.applying.install import ask
    from llmb_installer.planning.status import find_standing
    from llmb_installer.record import record

    standing = find_standing(folder, record.load(folder), required=True)
    if standing.outdated:
        hint = f"first llmb-install verify --repair --install {shlex.quote(str(folder))} --yes"
        raise LlmbError(f"{folder} is not up to date: what is there may still be in use", hint=hint)
    keys = standing.unused
    if not keys:
        console.echo(f"{folder} holds nothing that is not asked for")
        return
    console.echo(f"To be taken out of {folder}, as nothing that is installed asks for it: {', '.join(keys)}")
    console.echo("  jobs that were submitted before may still need it: llmb-run jobs shows them")
    if dry_run:
        return
    if not yes:
        ask()
    remove.remove_steps(folder, keys)
    console.echo(f"Taken out: {', '.join(keys)}")
