# SPDX-License-Identifier: Apache-2.0
"""llmb-install verify: find and repair what is missing, changed or out of date."""

from pathlib import Path

from llmb.config import CONFIG_FILE
from llmb.config.reading import NEWER
from llmb.errors import UsageError
from llmb.system import console, locks
from llmb.text.tables import to_json
from llmb_installer import record
from llmb_installer.applying import apply, show
from llmb_installer.applying.install import ask, carry_out
from llmb_installer.planning import config
from llmb_installer.planning.plan import Intent
from llmb_installer.planning.status import find_faults, find_status, unreadable


def run(install: Path | None, deep: bool, repair: bool, yes: bool, fmt: str) -> None:
    if repair and fmt == "json":
        raise UsageError("--repair has no JSON output", hint="omit --repair or --format json", code="option-conflict")
    folder = record.find_folder(install)
    found = record.load(folder)
    status = find_status(folder, found, required=repair)
    damaged = find_faults(folder, found, status.wanted, deep=deep)
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
    for note in show.notes_on(status, folder) if fmt == "table" else ():
        console.echo(f"note: {note}", err=True)
    if not faults:
        how = "all contents read" if deep else "contents not read (--deep reads them)"
        count = len(found.steps)
        steps = f"{count} step{'s' * (count != 1)} and the configuration, {how}"
        if fmt == "table":
            console.echo(f"{folder} is complete: {steps if count else 'the configuration; nothing was installed here'}")
        return
    if status.intent is None or not repair:
        if (who := record.running_installer(folder)) is not None:
            raise apply.StepsFailed(faults, hint=f"{who}: wait until it has finished")
        again = (
            f"to repair, run: llmb-install verify {'--deep ' if deep else ''}--repair{record.option_of(folder)} --yes"
        )
        can_repair = any(fault.place != "answers" for fault in faults) and all(one.code != NEWER for one in faults)
        raise apply.StepsFailed(faults, hint=again if can_repair else None)
    for fault in faults:
        console.echo(f"found: {fault}", err=True)
    if not yes:
        ask(f"Repair {', '.join(sorted({fault.place for fault in faults}))}?")
    _repair(folder, status.intent, {fault.place for fault in damaged})


def _repair(folder: Path, intent: Intent, keys: set[str]) -> None:
    """Mark the damaged steps and build them with the outdated ones; forget those that no workload needs."""
    with locks.hold(folder / record.FOLDER, record.LOCK):
        found = record.load(folder)
        wanted = {step.key for step in intent.steps}
        for key in keys & set(found.steps):
            found = found.marked(key) if key in wanted else found.without(key)
        record.save(folder, found)
        if unreadable(folder) and (aside := config.set_aside(folder)) is not None:
            console.echo(f"note: the previous {CONFIG_FILE} is kept as {aside.name}", err=True)
        if found.config and not (folder / CONFIG_FILE).exists():
            config.write_config(folder, config.ConfigChange(data=found.config, changed=True, kept=()))
    if intent.workloads:
        carry_out(intent, yes=True, dry_run=False)
    else:
        console.echo(f"{folder} is repaired")
