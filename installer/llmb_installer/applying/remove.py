# SPDX-License-Identifier: Apache-2.0
"""Takes workloads out of an install directory, with what no other workload uses; never what they have measured."""

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
    """What goes: the workloads, and the keys of steps that were for them alone; ``kept`` are for others as well.

    The programs of compute nodes always stay: runs that were submitted before may still need them.
    """

    workloads: tuple[str, ...]
    steps: tuple[str, ...]
    kept: tuple[str, ...]


def plan_removal(found: InstallRecord, workloads: Collection[str]) -> Removal:
    """What goes when these workloads do."""
    own = {key: done for key, done in found.steps.items() if set(done.workloads) & set(workloads)}
    alone = [key for key, done in own.items() if set(done.workloads) <= set(workloads)]
    gone = tuple(key for key in alone if not key.startswith(f"{ProgramsStep.kind} "))
    kept = tuple(key for key in own if key not in gone)
    return Removal(workloads=tuple(workloads), steps=gone, kept=kept)


def remove(intent: Intent, asked: Answers, workloads: Collection[str]) -> Removal:
    """Take ``workloads`` out; ``intent`` is what stays, by the answers ``asked``. Raises LlmbError.

    First nothing leads to them any more, then they go, each noted at once: a removal that was cut can be given again.
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
            _take_away(key, found, install)
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
    """What of the configuration ``now`` may go with ``workloads``: our own, and all that a person says of them."""
    if not found.config:
        return config.adopted(now, removed=workloads)
    written = found.config.get("workloads", {}).get("installed", ())
    return config.with_entries(found.config, now, [key for key in workloads if key not in written])


def remove_steps(install: Path, keys: Collection[str]) -> None:
    """Take away what these steps made, each noted at once. Raises LlmbError for what is not this user's to remove."""
    with locks.hold(install / record.FOLDER, record.LOCK):
        found = record.load(install)
        for key in keys:
            if key in found.steps:
                _take_away(key, found, install)
                found = found.without(key)
                record.save(install, found)


def _take_away(key: str, found: InstallRecord, install: Path) -> None:
    kind, name = kind_of(key)
    try:
        kind.remove(name, found.steps[key].facts, install)
    except FileNotFoundError:  # it went meanwhile
        return
    except OSError as error:
        message = f"{key}: {error.filename or install} cannot be removed: {error.strerror}"
        raise LlmbError(message, hint="its owner may; then the same command goes on from here") from error
