# SPDX-License-Identifier: Apache-2.0
"""llmb-install doctor: what this machine and cluster have and lack, with the fixes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from llmb.system import console
from llmb_installer.commands.options import FORMAT, INSTALLED

if TYPE_CHECKING:
    from llmb_installer.doctor import Examination


@click.command("doctor")
@INSTALLED
@click.option(
    "--cluster-type",
    type=click.Choice(["local", "slurm", "runai"]),
    help="For this one; else that of the installation.",
)
@click.option("--registries", is_flag=True, help="Ask the registries for the workloads' images as well.")
@FORMAT
def command(install: Path | None, cluster_type: str | None, registries: bool, fmt: str) -> None:
    """Find what this machine and its cluster lack, and the fix."""
    import os

    from llmb.text import typed
    from llmb.text.tables import to_json
    from llmb_installer.detect.look import look
    from llmb_installer.doctor import examine

    detected = look(os.environ, console.current_folder(), install)
    found = examine(detected, os.environ, install=install, cluster_type=cluster_type, ask_registries=registries)
    if fmt == "json":
        data = {**typed.to_data(found), "lacking": [one.check for one in found.lacking]}
        console.echo(to_json(data), nl=False)
    else:
        console.echo(_text(found))
    if found.lacking:
        raise click.exceptions.Exit(1)


def _text(found: Examination) -> str:
    from llmb.text.tables import Column, render
    from llmb_installer.doctor.finding import ALL

    columns = [Column(key=key) for key in ("check", "state", "found", "needed_by")]
    rows = [
        {"check": one.check, "state": one.state, "found": one.found, "needed_by": ", ".join(one.needed_by) or None}
        for one in found.findings
    ]
    kind = found.cluster_type or "not known"
    where = f"{found.install}, cluster type {kind}" if found.install else "no installation here"
    lines = [where, render(columns, rows, "table").rstrip("\n")]
    lines += [f"{one.check}: {one.found}\n  fix: {one.fix}" for one in found.findings if one.fix is not None]
    if found.cluster_type is not None or found.lacking:
        lacks: dict[tuple[str, ...], list[str]] = {}
        for one in found.lacking:
            whom = one.needed_by if found.cluster_type is None else (kind,)
            lacks.setdefault(whom, []).append(f"{one.check} ({one.state})")
        for types, checks in (lacks or {(kind,): ["nothing is missing"]}).items():
            many = "s" * (len(types) > 1)
            whom_text = "every cluster type" if {*types} == {*ALL} else f"cluster type{many} {' and '.join(types)}"
            lines.append(f"For {whom_text}: {', '.join(dict.fromkeys(checks))}.")
    return "\n".join(lines)
