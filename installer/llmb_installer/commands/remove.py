# SPDX-License-Identifier: Apache-2.0
"""llmb-install remove: removes workloads, with what no other workload uses."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llmb.errors import LlmbError, UsageError
from llmb.system import console
from llmb.text.names import as_keys, find_workload
from llmb_installer import record
from llmb_installer.commands import DRY_RUN, INSTALLED, YES, option_of

if TYPE_CHECKING:
    from llmb_installer.applying.remove import Removal


@click.command("remove")
@click.argument("workloads", nargs=-1)
@click.option("--unused", is_flag=True, help="Remove what no installed workload needs any more.")
@INSTALLED
@YES
@DRY_RUN
def command(workloads: tuple[str, ...], unused: bool, install: Path | None, yes: bool, dry_run: bool) -> None:
    """Remove WORKLOADS; their runs are kept."""
    from llmb_installer.applying import install as applying
    from llmb_installer.applying import remove
    from llmb_installer.planning import flow

    if bool(workloads) == unused:
        message = "--unused cannot be combined with workloads" if unused else "no workload is named"
        option = option_of(install)
        hint = f"llmb-install remove WORKLOAD{option}, or llmb-install remove --unused{option}"
        raise UsageError(message, hint=hint, code="unused-with-workloads" if unused else "workload-missing")
    folder = record.find_folder(install, os.environ, console.current_folder())
    if unused:
        _remove_unused(folder, yes=yes, dry_run=dry_run)
        return
    offered = flow.known()
    config = record.config_of(folder, os.environ)
    found = record.load(folder)
    built = [key for done in found.steps.values() for key in done.workloads]
    installed = as_keys(config.workloads.installed or (), [*built, *offered.workloads])
    removable = {*installed, *built}
    keys = [find_workload(name, sorted({*removable, *offered.workloads})) for name in workloads]
    if absent := [key for key in keys if key not in removable]:
        message = f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed in {folder}"
        hint = f"installed: {', '.join(sorted(removable)) or 'none'}"
        raise UsageError(message, hint=hint, code="workload-not-installed", key="workloads", value=absent[0])
    asked = flow.recorded_answers(folder, offered)
    kept = tuple(key for key in installed if key not in keys)
    by_hand = not record.answers_path(folder).is_file()  # workloads that llmb-install did not install stay
    wanted = tuple(key for key in asked.workloads or () if key not in keys) if by_hand else kept
    asked = replace(asked, workloads=wanted)
    removal = remove.plan_removal(found, keys)
    _show(folder, removal, found)
    if dry_run:
        return
    if not yes:
        applying.ask()
    removed = remove.remove(flow.intent_of(asked, offered, before=found.config)[0], asked, keys)
    console.echo(f"Removed: {', '.join([*keys, *removed.steps])}")
    console.echo(f"Installed now: {', '.join(kept) or 'none'}")


def _show(folder: Path, removal: Removal, found: record.InstallRecord) -> None:
    console.echo(f"To remove from {folder}: {', '.join(removal.workloads)}")
    for key in removal.steps:
        console.echo(f"  {key}: will be removed, no other workload needs it")
    for key in removal.kept:
        others = [user for user in found.steps[key].workloads if user not in removal.workloads]
        console.echo(f"  {key}: kept for {', '.join(others or ['submitted jobs'])}")
    console.echo("  runs and their results are kept")


def _remove_unused(folder: Path, *, yes: bool, dry_run: bool) -> None:
    """Remove the steps that only an earlier release, or earlier answers, needed."""
    from llmb_installer.applying import install, remove
    from llmb_installer.planning.status import find_status

    status = find_status(folder, record.load(folder), required=True)
    if status.outdated:
        hint = f"bring it up to date first: llmb-install verify --repair --install {shlex.quote(str(folder))} --yes"
        raise LlmbError(f"{folder} is out of date: its steps may still be in use", hint=hint, code="install-outdated")
    if not status.unused:
        console.echo(f"{folder} has no unused steps")
        return
    console.echo(f"To remove from {folder}, as no installed workload needs them: {', '.join(status.unused)}")
    console.echo(f"  jobs submitted earlier may still need them: llmb-run jobs --install {shlex.quote(str(folder))}")
    if dry_run:
        return
    if not yes:
        install.ask()
    remove.remove_steps(folder, status.unused)
    console.echo(f"Removed: {', '.join(status.unused)}")
