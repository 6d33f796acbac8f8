# SPDX-License-Identifier: Apache-2.0
"""Carries a plan out, one step after another, each recorded as soon as it is whole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from llmb import locks
from llmb.errors import Fault, LlmbError
from llmb_installer import config, record, venv
from llmb_installer.plan import Intent, Plan, look
from llmb_installer.record import InstallRecord, StepRecord
from llmb_installer.steps import VenvStep, is_there

Progress = Callable[[VenvStep], contextlib.AbstractContextManager[None]]


class StepsFailed(LlmbError):
    """Steps that failed, each with its cure; the others were carried out (exit code 1)."""

    def __init__(self, faults: list[Fault], *, hint: str | None = None) -> None:
        super().__init__("\n".join(str(fault) for fault in faults), hint=hint)
        self.faults = faults


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an installation came to: the record now, and sentences that the user should read."""

    record: InstallRecord
    said: tuple[str, ...]


def apply(intent: Intent, progress: Progress) -> Outcome:
    """Do what is still to do for ``intent``. Raises StepsFailed after the last step, LockHeldError before the first.

    The plan is made again under the lock: another installer may have done all of it meanwhile.
    """
    install = intent.site.install
    _make_folder(install)
    with locks.hold(install / record.FOLDER, "install"):
        plan = look(intent)
        found, faults = _build_all(plan, progress)
        outcome = _configure(plan, found)
    if faults:
        raise StepsFailed(faults, hint="the same command goes on from here")
    return outcome


def _make_folder(install: Path) -> None:
    try:
        (install / record.FOLDER).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"{install} cannot be made: {error.strerror}"
        raise LlmbError(message, hint="choose a folder that you may write: --install DIR") from error


def _build_all(plan: Plan, progress: Progress) -> tuple[InstallRecord, list[Fault]]:
    """Build what is not there; one failure does not keep the other steps from their turn."""
    found, faults = plan.record, []
    for step in plan.todo:
        log = plan.install / record.FOLDER / "logs" / f"{step.key.replace(' ', '-')}.log"
        try:
            with progress(step):
                facts = venv.build(step, log)
        except LlmbError as error:
            faults.append(Fault(place=step.key, message=error.message, hint=error.hint))
            continue
        found = found.finished(step.key, StepRecord(digest=step.digest, facts=facts))
        record.save(plan.install, found)
    return found, faults


def _configure(plan: Plan, found: InstallRecord) -> Outcome:
    """Write the configuration for the workloads whose steps are there, and the record of it."""
    intent = plan.intent
    missing = {key for step in intent.steps if not _usable(step, found) for key in step.workloads}
    workloads = [key for key in intent.workloads if key not in missing]
    if not workloads:
        return Outcome(record=found, said=())
    own = config.own_part(intent.answers, intent.site, workloads, intent.steps)
    change = config.plan_config(found.config, config.read_config(plan.install), own)
    said = config.write_config(plan.install, change) if change.changed else None
    if found.config != own:
        found = replace(found, config=own)
        record.save(plan.install, found)
    return Outcome(record=found, said=(*change.kept, *([said] if said else [])))


def _usable(step: VenvStep, found: InstallRecord) -> bool:
    """Whether its environment is there, perhaps still with the content of an earlier plan."""
    done = found.steps.get(step.key)
    return done is not None and is_there(step.path, done.facts.get("folder"))
