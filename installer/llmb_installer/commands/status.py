# SPDX-License-Identifier: Apache-2.0
"""llmb-install status: what an install directory has."""

from pathlib import Path

import llmb
from llmb.core import console
from llmb.core.tables import to_json
from llmb.plan.locate import CONFIG_FILE
from llmb_installer import record
from llmb_installer.applying import show
from llmb_installer.planning.status import find_status


def run(install: Path | None, fmt: str) -> None:
    folder = record.find_folder(install)
    config = record.load_layered_config(folder)
    install_record = record.load(folder)
    status = find_status(folder, install_record)
    named = config.workloads.installed
    rows = show.list_steps(folder, install_record)
    missing = [key for key in status.wanted if key not in install_record.steps]
    if fmt == "json":
        data = {
            "install": str(folder),
            "cluster_type": config.cluster_type,
            "gpu_type": config.gpu_type,
            "workloads": list(named or ()),
            "steps": rows,
            "missing": missing,
            "outdated": [
                {"step": fault.place, "message": fault.message} for fault in status.outdated
            ],
            "not_installed": [*status.new],
            "unused": [*status.unused],
        }
        console.echo(to_json(data), nl=False)
        return
    nothing = "none" if named is not None else f"all that plugins offer ({CONFIG_FILE} names none)"
    console.echo(f"{folder}: cluster type {config.cluster_type}, GPU type {config.gpu_type}")
    console.echo(f"workloads: {', '.join(named or ()) or nothing}")
    for line in show.format_steps(folder, install_record):
        console.echo(line)
    for key in missing if install_record.steps else ():
        console.echo(f"{key}: missing, it was never installed")
    if not install_record.steps:
        console.echo("steps: none; llmb-install has installed nothing here")
        again = (
            f"llmb-install add {' '.join(named or ()) or 'WORKLOAD'}{record.format_option(folder)}"
        )
        console.echo(f"hint: {again} installs workloads", err=True)
    if status.outdated:
        console.echo(f"out of date for llmb {llmb.__version__}:")
        for fault in status.outdated:
            console.echo(f"  {fault}")
        console.echo(f"hint: {record.repair_hint(folder)} brings it up to date", err=True)
    for note in show.list_notes(status, folder):
        console.echo(f"note: {note}", err=True)
    if not all(row["there"] for row in rows) or (missing and install_record.steps):
        console.echo(f"hint: {record.repair_hint(folder)} rebuilds what is missing", err=True)
