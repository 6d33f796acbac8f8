# SPDX-License-Identifier: Apache-2.0
"""llmb-install remove: removes workloads, with what no other workload uses."""

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llmb.errors import LlmbError, UsageError
from llmb.system import console, locks
from llmb.text.names import as_keys, find_workload
from llmb_installer import record
from llmb_installer.answers.schema import Answers, to_yaml
from llmb_installer.applying.install import ask
from llmb_installer.planning import config
from llmb_installer.planning.plan import Intent, intent_of, load_offered, own_config, recorded_answers
from llmb_installer.planning.status import find_status
from llmb_installer.steps import kind_of, programs


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The workloads to remove, and the keys of their steps; ``kept`` are steps that other workloads need too.

    The programs of compute nodes are always kept: queued runs may still need them.
    """

    workloads: tuple[str, ...]
    steps: tuple[str, ...]
    kept: tuple[str, ...]


def run(workloads: tuple[str, ...], unused: bool, install: Path | None, yes: bool, dry_run: bool) -> None:
    if bool(workloads) == unused:
        message = "--unused cannot be combined with workloads" if unused else "no workload is named"
        option = record.option_of(install)
        hint = f"llmb-install remove WORKLOAD{option}, or llmb-install remove --unused{option}"
        raise UsageError(message, hint=hint, code="unused-with-workloads" if unused else "workload-missing")
    folder = record.find_folder(install)
    if unused:
        _remove_unused(folder, yes=yes, dry_run=dry_run)
        return
    offered = load_offered()
    configured = record.config_of(folder)
    found = record.load(folder)
    built = [key for done in found.steps.values() for key in done.workloads]
    installed = as_keys(configured.workloads.installed or (), [*built, *offered.workloads])
    removable = {*installed, *built}
    keys = [find_workload(name, sorted({*removable, *offered.workloads})) for name in workloads]
    if absent := [key for key in keys if key not in removable]:
        message = f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed in {folder}"
        hint = f"installed: {', '.join(sorted(removable)) or 'none'}"
        raise UsageError(message, hint=hint, code="workload-not-installed", key="workloads", value=absent[0])
    asked = recorded_answers(folder, offered)
    kept = tuple(key for key in installed if key not in keys)
    by_hand = not record.answers_path(folder).is_file()  # workloads that llmb-install did not install stay
    wanted = tuple(key for key in asked.workloads or () if key not in keys) if by_hand else kept
    asked = replace(asked, workloads=wanted)
    removal = plan_removal(found, keys)
    _show(folder, removal, found)
    if dry_run:
        return
    if not yes:
        ask()
    removed = remove(intent_of(asked, offered, before=found.config)[0], asked, keys)
    console.echo(f"Removed: {', '.join([*keys, *removed.steps])}")
    console.echo(f"Installed now: {', '.join(kept) or 'none'}")


def _show(folder: Path, removal: Removal, found: record.InstallRecord) -> None:
    console.echo(f"To remove from {folder}: {', '.join(removal.workloads)}")
    for key in removal.steps:
        console.echo(f"  {key}: will be removed, no other workload needs it")
    for key in removal.kept:
        others = [user for user in found.steps[key].workloads if user not in removal.workloads]
        console.echo(f"  {key}: kept for {', '.join(others or ['submitted jobs'])}")
    console.echo("  runs and their results are kept")


def _remove_unused(folder: Path, *, yes: bool, dry_run: bool) -> None:
    """Remove the steps that only an earlier release, or earlier answers, needed."""
    status = find_status(folder, record.load(folder), required=True)
    if status.outdated:
        hint = f"bring it up to date first: {record.repair_hint(folder)}"
        raise LlmbError(f"{folder} is out of date: its steps may still be in use", hint=hint, code="install-outdated")
    if not status.unused:
        console.echo(f"{folder} has no unused steps")
        return
    console.echo(f"To remove from {folder}, as no installed workload needs them: {', '.join(status.unused)}")
    console.echo(f"  jobs submitted earlier may still need them: llmb-run jobs{record.option_of(folder)}")
    if dry_run:
        return
    if not yes:
        ask()
    with locks.hold(folder / record.FOLDER, record.LOCK):
        found = record.load(folder)
        _delete([key for key in status.unused if key in found.steps], found, folder)
    console.echo(f"Removed: {', '.join(status.unused)}")


def plan_removal(found: record.InstallRecord, workloads: Collection[str]) -> Removal:
    """The steps to remove with ``workloads``."""
    own = {key: done for key, done in found.steps.items() if set(done.workloads) & set(workloads)}
    alone = [key for key, done in own.items() if set(done.workloads) <= set(workloads)]
    gone = tuple(key for key in alone if not key.startswith(f"{programs.ProgramsStep.kind} "))
    kept = tuple(key for key in own if key not in gone)
    return Removal(workloads=tuple(workloads), steps=gone, kept=kept)


def remove(intent: Intent, asked: Answers, workloads: Collection[str]) -> Removal:
    """Remove ``workloads``; ``intent`` is what remains, by the answers ``asked``. Raises LlmbError.

    The configuration is changed first and each removed step is recorded, so an interrupted removal can be repeated.
    """
    install = intent.site.install
    with locks.hold(install / record.FOLDER, record.LOCK):
        found = record.load(install)
        removal = plan_removal(found, workloads)
        own = own_config(intent, intent.workloads, found, without=workloads)
        now = config.read_config(install)
        change = config.plan_config(_own(found, now, workloads), now, own)
        if change.changed:
            config.write_config(install, change)
        record.save_answers(install, to_yaml(asked))
        found = _delete(removal.steps, replace(found, config=own), install)
        gone = set(workloads)
        steps = {
            key: replace(done, workloads=tuple(other for other in done.workloads if other not in gone))
            for key, done in found.steps.items()
        }
        record.save(install, replace(found, steps=steps))
    return removal


def _own(found: record.InstallRecord, now: Mapping[str, Any], workloads: Collection[str]) -> Mapping[str, Any]:
    """The part of the configuration ``now`` that is removed with ``workloads``, also where it was written by hand."""
    if not found.config:
        return config.adopted(now, removed=workloads)
    written = found.config.get("workloads", {}).get("installed", ())
    return config.with_entries(found.config, now, [key for key in workloads if key not in written])


def _delete(keys: Collection[str], found: record.InstallRecord, install: Path) -> record.InstallRecord:
    """Delete the results of the steps ``keys``, and record each; the record. Raises LlmbError."""
    for key in keys:
        kind, name = kind_of(key)
        try:
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                kind.remove(name, found.steps[key].facts, install)
        except OSError as error:
            message = f"{key}: {error.filename or install} cannot be removed: {error.strerror}"
            hint = "ask its owner to remove it, then run the same command again"
            raise LlmbError(message, hint=hint, code="not-removable", key=key) from error
        found = found.without(key)
        record.save(install, found)
    return found
