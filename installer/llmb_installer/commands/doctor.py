# SPDX-License-Identifier: Apache-2.0
"""llmb-install doctor: what this machine and its cluster have and lack, with fixes."""

import os
from pathlib import Path

import click

from llmb.core import console, tables, typed
from llmb.errors import KeyFaultError, UsageError
from llmb_installer.answers.schema import check_cluster_type
from llmb_installer.detect.detected import detect
from llmb_installer.doctor import examine
from llmb_installer.doctor.cluster_types import ALL


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
    examination = examine.examine(
        detected, os.environ, install=install, cluster_type=cluster_type, ask_registries=registries
    )
    if fmt == "json":
        data = {
            **typed.to_data(examination),
            "lacking": [finding.check for finding in examination.lacking],
        }
        console.echo(tables.to_json(data), nl=False)
    else:
        console.echo(_text(examination), coloured=True)
    if examination.lacking:
        raise click.exceptions.Exit(1)


def _text(examination: examine.Examination) -> str:
    columns = [tables.Column(key=key) for key in ("check", "state", "found", "needed_by")]
    rows = [
        {
            "check": finding.check,
            "state": finding.state,
            "found": finding.found,
            "needed_by": ", ".join(finding.needed_by) or None,
        }
        for finding in examination.findings
    ]
    kind = examination.cluster_type or "unknown"
    heading = (
        f"{examination.install}, cluster type {kind}"
        if examination.install
        else "no install directory here"
    )
    lines = []
    for finding in examination.findings:
        if finding.fix is not None:
            lines += [f"{finding.check}: {finding.found}", f"  fix: {finding.fix}"]
    if examination.cluster_type is not None or examination.lacking:
        lacking: dict[tuple[str, ...], list[str]] = {}
        for finding in examination.lacking:
            types = finding.needed_by if examination.cluster_type is None else (kind,)
            lacking.setdefault(types, []).append(f"{finding.check} ({finding.state})")
        for types, checks in (lacking or {(kind,): ["nothing is missing"]}).items():
            name = (
                "every cluster type"
                if {*types} == {*ALL}
                else f"cluster type{'s' * (len(types) > 1)} {' and '.join(types)}"
            )
            lines.append(f"For {name}: {', '.join(dict.fromkeys(checks))}.")
    width = tables.output_width()
    wrapped = (console.wrap_line(line, width, len("  ")) for line in lines)
    return "\n".join([heading, tables.render(columns, rows, "table").rstrip("\n"), *wrapped])
