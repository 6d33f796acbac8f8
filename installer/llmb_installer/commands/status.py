# SPDX-License-Identifier: Apache-2.0
"""llmb-install status: what an install directory holds."""

import shlex
from pathlib import Path

import click

from llmb.system import console
from llmb_installer.commands.options import FORMAT, INSTALLED


@click.command("status")
@INSTALLED
@FORMAT
def command(install: Path | None, fmt: str) -> None:
    """Show what is installed."""
    import os

    import llmb
    from llmb.config import CONFIG_FILE
    from llmb.text.tables import to_json
    from llmb_installer.applying import show
    from llmb_installer.planning.status import find_standing
    from llmb_installer.record import record
    from llmb_installer.record.folder import config_of, find_folder

    folder = find_folder(install, os.environ, console.current_folder())
    config = config_of(folder, os.environ)
    found = record.load(folder)
    standing = find_standing(folder, found)
    named = config.workloads.installed
    installed = named or ()
    if fmt == "json":
        data = {
            "install": str(folder),
            "cluster_type": config.cluster_type,
            "gpu_type": config.gpu_type,
            "workloads": list(installed),
            "steps": show.rows(folder, found),
            "outdated": [{"step": fault.place, "message": fault.message} for fault in standing.outdated],
            "not_installed": [*standing.new],
            "unused": [*standing.unused],
        }
        console.echo(to_json(data), nl=False)
        return
    console.echo(f"{folder}: cluster type {config.cluster_type}, GPU type {config.gpu_type}")
    nothing = "none" if named is not None else f"{CONFIG_FILE} names none: all that plugins offer"
    console.echo(f"workloads: {', '.join(installed) or nothing}")
    for line in show.steps_text(folder, found):
        console.echo(line)
    place = f"--install {shlex.quote(str(folder))}"
    if standing.outdated:
        console.echo(f"llmb {llmb.__version__} asks for something else than is installed:")
        for fault in standing.outdated:
            console.echo(f"  {fault}")
        console.echo(f"hint: llmb-install verify --repair {place} --yes brings it up to date", err=True)
    for note in show.notes_on(standing, place):
        console.echo(f"note: {note}", err=True)
    if not all(row["there"] for row in show.rows(folder, found)):
        console.echo("hint: llmb-install verify says what is missing; with --repair it builds that again", err=True)
