# SPDX-License-Identifier: Apache-2.0
"""llmb-install remove: takes workloads out, with what no other workload uses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from llmb_installer.options import DRY_RUN, INSTALLED, YES

if TYPE_CHECKING:
    from llmb_installer.answers import Answers
    from llmb_installer.flow import Known
    from llmb_installer.plan import Intent


@click.command("remove")
@click.argument("workloads", nargs=-1, required=True)
@INSTALLED
@YES
@DRY_RUN
def command(workloads: tuple[str, ...], install: Path | None, yes: bool, dry_run: bool) -> None:
    """Take WORKLOADS out; their runs stay."""
    import os
    from dataclasses import replace

    from llmb.config import find_install, load_config
    from llmb.errors import UsageError
    from llmb.names import find_workload
    from llmb_installer import flow, record, remove
    from llmb_installer.install import ask

    folder = find_install(install, os.environ, Path.cwd())
    offered = flow.known()
    config, _ = load_config(folder, os.environ)
    found = record.load(folder)
    there = {*(config.workloads.installed or ()), *(key for done in found.steps.values() for key in done.workloads)}
    keys = [find_workload(name, sorted(there)) for name in workloads]
    if not keys:
        raise UsageError("nothing is installed there")
    asked = flow.recorded_answers(folder, offered)
    staying = tuple(key for key in config.workloads.installed or () if key not in keys)
    asked = replace(asked, workloads=staying or None)
    removal = remove.plan_removal(found, keys)
    click.echo(f"Taken out of {folder}: {', '.join(keys)}")
    for key in removal.steps:
        click.echo(f"  {key}: removed, no other workload uses it")
    for key in removal.kept:
        users = [user for user in found.steps[key].workloads if user not in keys] or ["what was submitted before"]
        click.echo(f"  {key}: stays, for {', '.join(users)}")
    click.echo("  runs and their results stay")
    if dry_run:
        return
    if not yes:
        ask()
    remove.remove(_staying(asked, offered), asked, keys)
    click.echo(f"Installed now: {', '.join(staying) or 'nothing'}")


def _staying(asked: Answers, offered: Known) -> Intent:
    """What stays installed."""
    from dataclasses import replace

    from llmb_installer import flow
    from llmb_installer.place import settle, site_of
    from llmb_installer.plan import Intent

    if asked.workloads:
        return flow.intent_of(asked, offered)[0]
    answers, _ = settle(replace(asked, workloads=None))
    return Intent(answers=answers, asked=asked, site=site_of(answers, answers.gpu_type), workloads=(), steps=())
