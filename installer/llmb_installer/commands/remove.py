# SPDX-License-Identifier: Apache-2.0
"""llmb-install remove: removes workloads, with what no other workload uses."""

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmb.core import console, locks
from llmb.core.names import as_keys, find_workload
from llmb.core.values import dataclass
from llmb.errors import LlmbError, UsageError
from llmb_installer import record
from llmb_installer.answers.schema import Answers, to_yaml
from llmb_installer.applying.install import confirm
from llmb_installer.planning import config
from llmb_installer.planning.plan import (
    Intent,
    load_offered,
    make_own_part,
    read_recorded_answers,
    resolve_intent,
)
from llmb_installer.planning.status import find_status
from llmb_installer.steps import programs
from llmb_installer.steps.kinds import find_kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The workloads to remove, and the keys of their steps.

    ``kept`` are steps that other workloads need too. The programs of compute nodes are always kept:
    queued runs may still need them.
    """

    workloads: tuple[str, ...]
    steps: tuple[str, ...]
    kept: tuple[str, ...]


def run(
    workloads: tuple[str, ...], unused: bool, install: Path | None, yes: bool, dry_run: bool
) -> None:
    if bool(workloads) == unused:
        message = "--unused cannot be combined with workloads" if unused else "no workload is named"
        option = record.format_option(install)
        hint = f"llmb-install remove WORKLOAD{option}, or llmb-install remove --unused{option}"
        raise UsageError(
            message, hint=hint, code="unused-with-workloads" if unused else "workload-missing"
        )
    folder = record.find_folder(install)
    if unused:
        _remove_unused(folder, yes=yes, dry_run=dry_run)
        return
    offered = load_offered(folder)
    configured = record.load_layered_config(folder)
    install_record = record.load(folder)
    built = [key for finished in install_record.steps.values() for key in finished.workloads]
    installed = as_keys(configured.workloads.installed or (), [*built, *offered.workloads])
    removable = {*installed, *built}
    keys = [find_workload(name, sorted({*removable, *offered.workloads})) for name in workloads]
    if absent := [key for key in keys if key not in removable]:
        message = (
            f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed in"
            f" {folder}"
        )
        hint = f"installed: {', '.join(sorted(removable)) or 'none'}"
        raise UsageError(
            message, hint=hint, code="workload-not-installed", key="workloads", value=absent[0]
        )
    answers = read_recorded_answers(folder, offered)
    remaining = tuple(key for key in installed if key not in keys)
    # workloads that llmb-install did not install stay
    by_hand = not record.answers_path(folder).is_file()
    remaining_names = (
        tuple(key for key in answers.workloads or () if key not in keys) if by_hand else remaining
    )
    answers = replace(answers, workloads=remaining_names)
    removal = plan_removal(install_record, keys)
    _show(folder, removal, install_record)
    if dry_run:
        return
    if not yes:
        confirm()
    removed = remove(
        resolve_intent(answers, offered, before=install_record.config)[0], answers, keys
    )
    console.echo(f"Removed: {', '.join([*keys, *removed.steps])}")
    console.echo(f"Installed now: {', '.join(remaining) or 'none'}")


def _show(folder: Path, removal: Removal, install_record: record.InstallRecord) -> None:
    console.echo(f"To remove from {folder}: {', '.join(removal.workloads)}")
    for key in removal.steps:
        console.echo(f"  {key}: will be removed, no other workload needs it")
    for key in removal.kept:
        users = [
            user for user in install_record.steps[key].workloads if user not in removal.workloads
        ]
        console.echo(f"  {key}: kept for {', '.join(users or ['jobs that may still use it'])}")
    console.echo("  runs and their results are kept")


def _remove_unused(folder: Path, *, yes: bool, dry_run: bool) -> None:
    """Remove the steps that only an earlier release, or earlier answers, needed."""
    status = find_status(folder, record.load(folder), required=True)
    if status.outdated:
        raise LlmbError(
            f"{folder} is out of date: its steps may still be in use",
            hint=f"bring it up to date first: {record.repair_hint(folder)}",
            code="install-outdated",
        )
    if not status.unused:
        console.echo(f"{folder} has no unused steps")
        return
    console.echo(
        f"To remove from {folder}, as no installed workload needs them: {', '.join(status.unused)}"
    )
    console.echo(
        f"  jobs submitted earlier may still need them: llmb-run jobs{record.format_option(folder)}"
    )
    if dry_run:
        return
    if not yes:
        confirm()
    with locks.hold(folder / record.FOLDER, record.LOCK):
        install_record = record.load(folder)
        delete_steps(
            [key for key in status.unused if key in install_record.steps], install_record, folder
        )
    console.echo(f"Removed: {', '.join(status.unused)}")


def plan_removal(install_record: record.InstallRecord, workloads: Collection[str]) -> Removal:
    """The steps to remove with ``workloads``."""
    steps = {
        key: finished
        for key, finished in install_record.steps.items()
        if set(finished.workloads) & set(workloads)
    }
    alone = [key for key, finished in steps.items() if set(finished.workloads) <= set(workloads)]
    removed = tuple(key for key in alone if not key.startswith(f"{programs.ProgramsStep.kind} "))
    shared = tuple(key for key in steps if key not in removed)
    return Removal(workloads=tuple(workloads), steps=removed, kept=shared)


def remove(intent: Intent, answers: Answers, workloads: Collection[str]) -> Removal:
    """Remove ``workloads``.

    ``intent`` is what remains, by the answers ``answers``. Raises LlmbError. The configuration is
    changed first and each removed step is recorded, so an interrupted removal can be repeated.
    """
    install = intent.site.install
    with locks.hold(install / record.FOLDER, record.LOCK):
        install_record = record.load(install)
        removal = plan_removal(install_record, workloads)
        own_part = make_own_part(intent, intent.workloads, install_record, without=workloads)
        now = config.read_config(install)
        change = config.plan_config(
            _find_written_part(install_record, now, workloads), now, own_part
        )
        if change.changed:
            config.write_config(install, change)
        record.save_answers(install, to_yaml(answers))
        install_record = delete_steps(
            removal.steps, replace(install_record, config=own_part), install
        )
        removed = set(workloads)
        steps = {
            key: replace(
                finished,
                workloads=tuple(user for user in finished.workloads if user not in removed),
            )
            for key, finished in install_record.steps.items()
        }
        record.save(install, replace(install_record, steps=steps))
    return removal


def _find_written_part(
    install_record: record.InstallRecord, now: Mapping[str, Any], workloads: Collection[str]
) -> Mapping[str, Any]:
    """Return the part of the configuration ``now`` that is removed with ``workloads``."""
    if not install_record.config:
        return config.adopt(now, removed=workloads)
    written = install_record.config.get("workloads", {}).get("installed", ())
    return config.add_entries(
        install_record.config, now, [key for key in workloads if key not in written]
    )


def delete_steps(
    keys: Collection[str], install_record: record.InstallRecord, install: Path
) -> record.InstallRecord:
    """Delete the results of the steps ``keys``, record each, and return the record.

    Raises LlmbError.
    """
    for key in keys:
        kind, name = find_kind(key)
        try:
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                kind.remove(name, install_record.steps[key].facts, install)
        except OSError as error:
            message = f"{key}: {error.filename or install} cannot be removed: {error.strerror}"
            hint = "ask its owner to remove it, then run the same command again"
            raise LlmbError(message, hint=hint, code="not-removable", key=key) from error
        install_record = install_record.without(key)
        record.save(install, install_record)
    return install_record
