# SPDX-License-Identifier: Apache-2.0
"""llmb-install verify: find and repair what is missing, changed or out of date."""

from pathlib import Path

from llmb.core import console, locks
from llmb.core.tables import to_json
from llmb.errors import UsageError
from llmb.plan.locate import CONFIG_FILE
from llmb.plan.read_config import NEWER
from llmb_installer import record
from llmb_installer.applying import apply, show
from llmb_installer.applying.install import carry_out, confirm
from llmb_installer.planning import config
from llmb_installer.planning.plan import Intent
from llmb_installer.planning.status import check_readable, find_faults, find_status


def run(install: Path | None, deep: bool, repair: bool, yes: bool, fmt: str) -> None:
    if repair and fmt == "json":
        raise UsageError(
            "--repair has no JSON output",
            hint="omit --repair or --format json",
            code="option-conflict",
        )
    folder = record.find_folder(install)
    install_record = record.load(folder)
    status = find_status(folder, install_record, required=repair)
    damaged = find_faults(folder, install_record, status.wanted, deep=deep)
    faults = [*damaged, *status.outdated]
    if fmt == "json":
        data = {
            "install": str(folder),
            "whole": not faults,
            "faults": [show.fault_data(fault) for fault in faults],
            "not_installed": [*status.new],
            "unused": [*status.unused],
        }
        console.echo(to_json(data), nl=False)
    for note in show.list_notes(status, folder) if fmt == "table" else ():
        console.echo(f"note: {note}", err=True)
    if not faults:
        depth = "all contents read" if deep else "contents not read (--deep reads them)"
        count = len(install_record.steps)
        steps = f"{count} step{'s' * (count != 1)} and the configuration, {depth}"
        if fmt == "table":
            console.echo(
                f"{folder} is complete:"
                f" {steps if count else 'the configuration; nothing was installed here'}"
            )
        return
    if status.intent is None or not repair:
        if (installer := record.running_installer(folder)) is not None:
            raise apply.StepsFailed(faults, hint=f"{installer}: wait until it has finished")
        again = (
            "to repair, run: llmb-install verify"
            f" {'--deep ' if deep else ''}--repair{record.format_option(folder)} --yes"
            f"{record.by_owner(folder)}"
        )
        can_repair = any(fault.place != "answers" for fault in faults) and all(
            one.code != NEWER for one in faults
        )
        raise apply.StepsFailed(faults, hint=again if can_repair else None)
    for fault in faults:
        console.echo(f"found: {fault}", err=True)
    if not yes:
        confirm(f"Repair {', '.join(sorted({fault.place for fault in faults}))}?")
    _repair(folder, status.intent, {fault.place for fault in damaged})


def _repair(folder: Path, intent: Intent, keys: set[str]) -> None:
    """Rebuild damaged and outdated steps, and forget damaged steps that no workload needs."""
    with locks.hold(folder / record.FOLDER, record.LOCK):
        install_record = record.load(folder)
        wanted_keys = {step.key for step in intent.steps}
        for key in keys & set(install_record.steps):
            install_record = (
                install_record.marked(key) if key in wanted_keys else install_record.without(key)
            )
        record.save(folder, install_record)
        if check_readable(folder) and (aside := config.set_aside(folder)) is not None:
            console.echo(f"note: the previous {CONFIG_FILE} is kept as {aside.name}", err=True)
        if install_record.config and not (folder / CONFIG_FILE).exists():
            config.write_config(
                folder, config.ConfigChange(data=install_record.config, changed=True, kept=())
            )
            console.echo(f"{CONFIG_FILE} is written again", err=True)
    if intent.workloads:
        carry_out(intent, yes=True, dry_run=False)
    else:
        console.echo(f"{folder} is repaired")
