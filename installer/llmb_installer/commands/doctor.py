# SPDX-License-Identifier: Apache-2.0
"""llmb-install doctor: what this machine and its cluster have and lack, with fixes."""

import os
from pathlib import Path

import click

from llmb.errors import KeyFaultError, UsageError
from llmb.system import console
from llmb.text import tables, typed
from llmb_installer.answers.schema import check_cluster_type
from llmb_installer.detect.detected import detect
from llmb_installer.doctor import ALL, examine


def run(install: Path | None, cluster_type: str | None, registries: bool, fmt: str) -> None:
    if cluster_type is not None:
        try:
            check_cluster_type(cluster_type)
        except KeyFaultError as error:
            code, option = "cluster-type-unknown", "--cluster-type"
            raise UsageError(
                f"{option}: {error}", hint=error.hint, code=code, key=option, value=cluster_type
            ) from error
    detected = detect(os.environ, console.current_folder(), install)
    found = examine.examine(detected, os.environ, install=install, cluster_type=cluster_type, ask_registries=registries)
    if fmt == "json":
        data = {**typed.to_data(found), "lacking": [one.check for one in found.lacking]}
        console.echo(tables.to_json(data), nl=False)
    else:
        console.echo(_text(found))
    if found.lacking:
        raise click.exceptions.Exit(1)


def _text(found: examine.Examination) -> str:
    columns = [tables.Column(key=key) for key in ("check", "state", "found", "needed_by")]
    rows = [
        {"check": one.check, "state": one.state, "found": one.found, "needed_by": ", ".join(one.needed_by) or None}
        for one in found.findings
    ]
    kind = found.cluster_type or "unknown"
    where = f"{found.install}, cluster type {kind}" if found.install else "no install directory here"
    lines = [where, tables.render(columns, rows, "table").rstrip("\n")]
    lines += [f"{one.check}: {one.found}\n  fix: {one.fix}" for one in found.findings if one.fix is not None]
    if found.cluster_type is not None or found.lacking:
        lacking: dict[tuple[str, ...], list[str]] = {}
        for one in found.lacking:
            types = one.needed_by if found.cluster_type is None else (kind,)
            lacking.setdefault(types, []).append(f"{one.check} ({one.state})")
        for types, checks in (lacking or {(kind,): ["nothing is missing"]}).items():
            name = (
                "every cluster type"
                if {*types} == {*ALL}
                else f"cluster type{'s' * (len(types) > 1)} {' and '.join(types)}"
            )
            lines.append(f"For {name}: {', '.join(dict.fromkeys(checks))}.")
    return "\n".join(lines)
