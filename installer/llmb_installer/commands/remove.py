# SPDX-License-Identifier: Apache-2.0
"""llmb-install remove: takes workloads out, with what no other workload uses."""

from __future__ import annotations

from pathlib import Path

import click

from llmb_installer.options import DRY_RUN, INSTALLED, YES


@click.command("remove")
@click.argument("workloads", nargs=-1, required=True)
@INSTALLED
@YES
@DRY_RUN
def command(workloads: tuple[str, ...], install: Path | None, yes: bool, dry_run: bool) -> None:
    """Take WORKLOADS out; their runs stay."""
    import os
    from dataclasses import replace

    from llmb.errors import UsageError
    from llmb.names import find_workload
    from llmb_installer import flow, record, remove
    from llmb_installer.folder import config_of, find_folder
    from llmb_installer.install import ask

    folder = find_folder(install, os.environ, Path.cwd())
    offered = flow.known()
    config = config_of(folder, os.environ)
    found = record.load(folder)
    there = {*(config.workloads.installed or ()), *(key for done in found.steps.values() for key in done.workloads)}
    keys = [find_workload(name, sorted({*there, *offered.workloads})) for name in workloads]
    if absent := [key for key in keys if key not in there]:
        told = f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed in {folder}"
        raise UsageError(told, hint=f"installed: {', '.join(sorted(there)) or 'nothing'}")
    asked = flow.recorded_answers(folder, offered)
    staying = tuple(key for key in config.workloads.installed or () if key not in keys)
    asked = replace(asked, workloads=staying)
    removal = remove.plan_removal(found, keys)
    click.echo(f"To be taken out of {folder}: {', '.join(keys)}")
    for key in removal.steps:
        click.echo(f"  {key}: will be removed, no other workload uses it")
    for key in removal.kept:
        users = [user for user in found.steps[key].workloads if user not in keys] or ["what was submitted before"]
        click.echo(f"  {key}: stays, for {', '.join(users)}")
    click.echo("  runs and their results stay")
    if dry_run:
        return
    if not yes:
        ask()
    removed = remove.remove(flow.intent_of(asked, offered)[0], asked, keys)
    click.echo(f"Taken out: {', '.join([*keys, *removed.steps])}")
    click.echo(f"Installed now: {', '.join(staying) or 'nothing'}")
