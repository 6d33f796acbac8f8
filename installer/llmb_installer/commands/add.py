# SPDX-License-Identifier: Apache-2.0
"""llmb-install add: one or more workloads more, by the answers that the folder was made by."""

from pathlib import Path

import click

from llmb.system import console
from llmb_installer.commands.options import DRY_RUN, FORMAT, INSTALLED, YES


@click.command("add")
@click.argument("workloads", nargs=-1, required=True)
@INSTALLED
@YES
@DRY_RUN
@FORMAT
def command(workloads: tuple[str, ...], install: Path | None, yes: bool, dry_run: bool, fmt: str) -> None:
    """Install WORKLOADS as well."""
    import os
    from dataclasses import replace

    from llmb.text.names import as_keys, find_workload
    from llmb_installer.applying.install import carry_out
    from llmb_installer.fits import cluster_fit
    from llmb_installer.planning import flow
    from llmb_installer.record import record
    from llmb_installer.record.folder import config_of, find_folder

    folder = find_folder(install, os.environ, console.current_folder())
    offered = flow.known()
    keys = [find_workload(name, offered.workloads) for name in workloads]
    asked = flow.recorded_answers(folder, offered)
    if asked.workloads is None:
        there = config_of(folder, os.environ).workloads.installed or ()
        asked = replace(asked, workloads=tuple(as_keys(there, offered.workloads)))
    asked = replace(asked, workloads=tuple(dict.fromkeys([*(asked.workloads or ()), *keys])))
    intent, notes = flow.intent_of(asked, offered, before=record.load(folder).config)
    for note in [*notes, *cluster_fit.check(intent.answers)]:
        console.echo(f"note: {note}", err=True)
    carry_out(replace(intent, takes_over=True), yes=yes, dry_run=dry_run, fmt=fmt)
