# SPDX-License-Identifier: Apache-2.0
"""llmb-install import: makes an install directory from one of another tool."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from llmb.builtin.plugins import builtin_plugins
from llmb.core import console, files, tables, typed
from llmb.errors import UsageError
from llmb.plan.locate import CONFIG_FILE
from llmb.plugins.foreign import imported_folder
from llmb.plugins.loader import load_plugins
from llmb_installer import record
from llmb_installer.applying.install import confirm
from llmb_installer.importing.carry import ImportPlan, carry_out, count_items, plan_import
from llmb_installer.importing.item import ImportItem

_PLURALS = {
    "run": "runs",
    "image": "images",
    "variable": "variables",
    "setting": "settings",
    "secret": "secrets",
}
_LISTED = 20  # things of one reason that are named


def run(
    folder: Path,
    into: Path | None,
    gpu_type: str | None,
    with_secrets: bool,
    no_checksums: bool,
    yes: bool,
    dry_run: bool,
    fmt: str,
) -> None:
    """Import the install directory ``folder`` of another tool."""
    plugins = load_plugins(builtin_plugins())
    plugins.offers  # noqa: B018 - finds the plugins that are skipped
    for problem in plugins.problems:
        console.echo(f"note: plugin {problem.source} is skipped: {problem.reason}", err=True)
    cwd = console.current_folder()
    plan = plan_import(
        cwd / files.expand(folder),
        cwd / files.expand(into) if into is not None else None,
        plugins,
        os.environ,
        gpu_type=gpu_type,
        with_secrets=with_secrets,
    )
    if fmt == "json":
        console.echo(tables.to_json(_data(plan, dry_run=dry_run)), nl=False)
    else:
        for line in _text(plan):
            console.echo(line)
    if dry_run:
        return
    if not plan.changes_nothing:
        if not yes:
            confirm(f"Import into {plan.target}?")
        carry_out(plan, checksums=not no_checksums, say=lambda text: console.echo(text, err=True))
    for line in _next(plan):
        console.echo(line, err=fmt == "json")


def offer(refused: UsageError, *, dry_run: bool) -> None:
    """Offer the import of the folder that ``refused`` is about, in a terminal.

    Raises LlmbError after a no.
    """
    folder = Path(str(refused.value))
    if (imported_folder(folder) / CONFIG_FILE).is_file():
        raise refused
    console.echo(refused.message, err=True)
    if not click.confirm(f"Import it into {imported_folder(folder)}?", default=True, err=True):
        raise refused
    options: dict[str, Any] = {
        "into": None,
        "gpu_type": None,
        "with_secrets": False,
        "no_checksums": False,
    }
    run(folder, **options, yes=True, dry_run=dry_run, fmt="table")


def _data(plan: ImportPlan, *, dry_run: bool) -> dict[str, Any]:
    return {
        "source": str(plan.source.folder),
        "release": plan.source.release,
        "install": str(plan.target),
        "dry_run": dry_run,
        "summary": count_items(plan.items),
        "items": [typed.to_data(item) for item in plan.items],
    }


def _text(plan: ImportPlan) -> Iterator[str]:
    release = f" {plan.source.release}" if plan.source.release else ""
    yield f"{plan.source.folder} of {plan.source.program}{release} is not changed."
    if plan.changes_nothing:
        yield f"{plan.target} already has everything."
    else:
        yield f"{plan.target} gets:"
        yield from _list_taken(plan.items)
    if present_items := [
        item for item in plan.items if item.action == "present" and item.kind in _PLURALS
    ]:
        yield f"already there: {_counts(present_items)}"
    leaving = [item for item in plan.items if item.action == "leave"]
    if leaving:
        yield "not taken:"
        yield from _list_left(leaving)


def _list_taken(items: tuple[ImportItem, ...]) -> Iterator[str]:
    taken_items = [item for item in items if item.action == "take"]
    for item in taken_items:
        if item.kind in ("setting", "image", "secret"):
            yield f"  {item.kind} {item.name}: {item.detail}"
    counted = [item for item in taken_items if item.kind in ("variable", "run")]
    if names := [item.name for item in counted if item.kind == "variable"]:
        yield f"  variables {', '.join(names)}"
    if runs := [item for item in counted if item.kind == "run"]:
        yield f"  {_counts(runs)}, with links to their logs"


def _list_left(items: list[ImportItem]) -> Iterator[str]:
    """Each reason once, with what it is the reason of."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for item in items:
        name = Path(item.name).name if item.kind == "run" else item.name
        reasons.setdefault((item.kind, item.detail), []).append(name)
    for (kind, detail), names in reasons.items():
        if len(names) == 1:
            yield f"  {kind} {names[0]}: {detail}"
            continue
        yield f"  {len(names)} {_PLURALS.get(kind, f'{kind}s')}: {detail}"
        yield from (f"    {name}" for name in names[:_LISTED])
        if len(names) > _LISTED:
            yield f"    and {len(names) - _LISTED} more: --format json lists all"


def _counts(items: list[ImportItem]) -> str:
    by_kind = count_items(items)
    counts = {kind: sum(actions.values()) for kind, actions in by_kind.items()}
    return ", ".join(
        f"{n} {kind if n == 1 else _PLURALS.get(kind, f'{kind}s')}" for kind, n in counts.items()
    )


def _next(plan: ImportPlan) -> Iterator[str]:
    option = record.format_option(plan.target)
    if any(item.code == "secret-consent" for item in plan.items):
        into = (
            ""
            if plan.target == imported_folder(plan.source.folder)
            else f" --into {shlex.quote(str(plan.target))}"
        )
        folder = shlex.quote(str(plan.source.folder))
        yield f"to copy the secrets: llmb-install import {folder}{into} --with-secrets"
    yield f"the results: llmb-run results{option}"
    if plan.workloads:
        yield f"to run more: llmb-install add {' '.join(map(shlex.quote, plan.workloads))}{option}"
