# SPDX-License-Identifier: Apache-2.0
"""Removes workloads from an install directory, with what no other workload uses; runs and results are kept."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llmb.errors import LlmbError
from llmb.system import locks
from llmb_installer import record
from llmb_installer.answers import Answers, to_yaml
from llmb_installer.planning import config
from llmb_installer.planning.plan import Intent, own_config
from llmb_installer.record import InstallRecord
from llmb_installer.steps import kind_of
from llmb_installer.steps.programs import ProgramsStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The workloads to remove, and the keys of their steps; ``kept`` are steps that other workloads need too.

    The programs of compute nodes are always kept: queued runs may still need them.
    """

    workloads: tuple[str, ...]
    steps: tuple[str, ...]
    kept: tuple[str, ...]


def plan_removal(found: InstallRecord, workloads: Collection[str]) -> Removal:
    """The steps to remove with ``workloads``."""
    own = {key: done for key, done in found.steps.items() if set(done.workloads) & set(workloads)}
    alone = [key for key, done in own.items() if set(done.workloads) <= set(workloads)]
    gone = tuple(key for key in alone if not key.startswith(f"{ProgramsStep.kind} "))
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
        found = replace(found, config=own)
        for key in removal.steps:
            _delete(key, found, install)
            found = found.without(key)
            record.save(install, found)
        gone = set(workloads)
        steps = {
            key: replace(done, workloads=tuple(other for other in done.workloads if other not in gone))
            for key, done in found.steps.items()
        }
        record.save(install, replace(found, steps=steps))
    return removal


def _own(found: InstallRecord, now: Mapping[str, Any], workloads: Collection[str]) -> Mapping[str, Any]:
    """The part of the configuration ``now`` that is removed with ``workloads``, also where it was written by hand."""
    if not found.config:
        return config.adopted(now, removed=workloads)
    written = found.config.get("workloads", {}).get("installed", ())
    return config.with_entries(found.config, now, [key for key in workloads if key not in written])


def remove_steps(install: Path, keys: Collection[str]) -> None:
    """Delete the results of the steps ``keys``, and record each. Raises LlmbError where the user may not."""
    with locks.hold(install / record.FOLDER, record.LOCK):
        found = record.load(install)
        for key in keys:
            if key in found.steps:
                _delete(key, found, install)
                found = found.without(key)
                record.save(install, found)


def _delete(key: str, found: InstallRecord, install: Path) -> None:
    kind, name = kind_of(key)
    try:
        kind.remove(name, found.steps[key].facts, install)
    except FileNotFoundError:  # deleted meanwhile
        return
    except OSError as error:
        message = f"{key}: {error.filename or install} cannot be removed: {error.strerror}"
        hint = "ask its owner to remove it, then run the same command again"
        raise LlmbError(message, hint=hint, code="not-removable", key=key) from error
