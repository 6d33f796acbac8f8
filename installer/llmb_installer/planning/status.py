# SPDX-License-Identifier: Apache-2.0
"""The status of an installation: what is missing, damaged, out of date or not needed any more."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llmb.config import CONFIG_FILE
from llmb.config.reading import read_config
from llmb.errors import Fault, InputFaults, LlmbError, UsageError, as_fault
from llmb.text import yamlfile
from llmb.text.names import as_keys, listed
from llmb_installer import record
from llmb_installer.cluster_types import all_types
from llmb_installer.images.image_step import ImageStep
from llmb_installer.planning import config
from llmb_installer.planning.plan import Intent, intent_of, load_offered, own_config, recorded_answers, unoffered
from llmb_installer.steps import Step, VenvStep, kind_of, programs
from llmb_installer.venv.lock import normalized


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallStatus:
    """An installation compared with its answers and this release of llmb.

    ``intent`` is without the workloads ``new``, whose plugins came later; None where the answers do not apply here, for
    the reason in ``note``. ``outdated`` steps must be built again, ``unused`` ones are keys of steps that no workload
    needs, ``unoffered`` are installed workloads that no plugin offers.
    """

    intent: Intent | None = None
    new: tuple[str, ...] = ()
    outdated: tuple[Fault, ...] = ()
    unused: tuple[str, ...] = ()
    unoffered: tuple[str, ...] = ()
    note: str | None = None

    @property
    def wanted(self) -> tuple[str, ...]:
        """The keys of the required steps that are not outdated."""
        older = {fault.place for fault in self.outdated}
        return tuple(step.key for step in self.intent.steps if step.key not in older) if self.intent is not None else ()


def find_status(folder: Path, found: record.InstallRecord, *, required: bool = False) -> InstallStatus:
    """Compare the record ``found`` of ``folder`` with its answers.

    Raises LlmbError where these do not apply here and are ``required``.
    """
    try:
        offered = load_offered()
        asked = recorded_answers(folder, offered)
        intent, _ = intent_of(asked, offered, before=found.config)
        new = came_later(intent, found)
        if new:
            staying = tuple(key for key in intent.workloads if key not in new)
            intent, _ = intent_of(replace(asked, workloads=staying), offered, before=found.config)
        older = outdated(intent, found)
    except LlmbError as error:
        if required:
            raise
        return InstallStatus(note=f"the answers were not checked: {error.message}")
    if not unreadable(folder):
        older += outdated_config(intent, found)
    intent = replace(intent, asked=asked)
    return InstallStatus(
        intent=intent, new=new, outdated=tuple(older), unused=unused(intent, found), unoffered=unoffered(intent, found)
    )


_SHOWN = 3  # items that a message shows


def outdated(intent: Intent, found: record.InstallRecord) -> list[Fault]:
    """A fault for each finished step that the answers now ask for with other content; its place is the step's key."""
    faults = []
    for step in intent.steps:
        done = found.steps.get(step.key)
        fault = _replaces(step, intent, found) if done is None else _differs(step, done)
        faults += [replace(fault, place=step.key)] if fault is not None else []
    return faults


def outdated_config(intent: Intent, found: record.InstallRecord) -> list[Fault]:
    """A fault where the configuration differs from the answers. Raises LlmbError where it cannot be read."""
    written = found.config.get("workloads", {}).get("installed", [])
    own = own_config(intent, tuple(key for key in intent.workloads if key in written), found)
    now = config.read_config(intent.site.install)
    if not now or not found.config:
        return []
    differing = [*_differences(now, config.plan_config(found.config, now, own).data)]
    if not differing:
        return []
    message = f"{CONFIG_FILE} is out of date ({listed(differing, _SHOWN)})"
    return [Fault(place="config", message=message, code="config-outdated", value=tuple(differing))]


def _differences(now: Any, wanted: Any, name: str = "") -> Iterator[str]:
    """Each key that differs: ``install.venv_type: venv, expected uv``."""
    if now == wanted:
        return
    if not isinstance(now, Mapping) or not isinstance(wanted, Mapping):
        yield f"{name}: {_shown(now)}, expected {_shown(wanted)}"
        return
    for key in dict.fromkeys([*now, *wanted]):
        yield from _differences(now.get(key), wanted.get(key), f"{name}.{key}".lstrip("."))


def _shown(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value) if isinstance(value, (list, dict)) else str(value)


def unused(intent: Intent, found: record.InstallRecord) -> tuple[str, ...]:
    """The keys of finished steps that no workload needs; programs are kept, since runs may still need them."""
    wanted, gone = {step.key for step in intent.steps}, {*unoffered(intent, found)}
    return tuple(
        key
        for key, done in found.steps.items()
        if key not in wanted and not gone & {*done.workloads} and not key.startswith(f"{programs.ProgramsStep.kind} ")
    )


def _replaces(step: Step, intent: Intent, found: record.InstallRecord) -> Fault | None:
    """A fault for an image that replaces another of the same workload."""
    if not isinstance(step, ImageStep):
        return None
    users = {*step.workloads}
    old = [
        key
        for key in unused(intent, found)
        if key.startswith(f"{step.kind} ") and users & {*found.steps[key].workloads}
    ]
    names = [key.partition(" ")[2] for key in old]
    return Fault(message=f"replaces {' and '.join(names)}", code="image-outdated", value=tuple(names)) if old else None


def _differs(step: Step, done: record.StepRecord) -> Fault | None:
    if done.digest == step.digest:
        return None
    if isinstance(step, programs.ProgramsStep) and done.facts.get("digest") != step.content:
        return Fault(message="are of another release of llmb", code="programs-outdated")
    if isinstance(step, VenvStep) and (other := [*_other_versions(step, done)]):
        more = f" and {len(other) - _SHOWN} more" if len(other) > _SHOWN else ""
        message = f"is out of date ({', '.join(other[:_SHOWN])}{more})"
        return Fault(message=message, code="venv-outdated", value=tuple(other))
    return Fault(message="is out of date (made for other requirements or answers)", code="step-outdated")


def _other_versions(step: VenvStep, done: record.StepRecord) -> Iterator[str]:
    """Each package of which another version is required: ``torch 2.7.0, expected 2.8.0``."""
    installed = {normalized(name): version for name, version in done.facts.get("packages", {}).items()}
    for line in step.need.requirements:
        pinned = re.match(r"([\w.-]+)(?:\[[^\]]*\])?\s*==\s*([^\s;,]+)", line)
        if pinned is None:
            continue
        found = installed.get(normalized(pinned[1]))
        if found is None:
            yield f"{pinned[1]} {pinned[2]} is missing"
        elif found.partition("+")[0] != pinned[2].partition("+")[0]:  # 2.8.0+cpu is a build of 2.8.0
            yield f"{pinned[1]} {found}, expected {pinned[2]}"


def find_faults(install: Path, found: record.InstallRecord, wanted: Iterable[str] = (), *, deep: bool) -> list[Fault]:
    """What is missing or damaged, with the step's key as place; ``deep`` reads the contents of every file.

    ``wanted`` are the keys of the steps that the answers ask for.
    """
    faults = []
    for key, done in found.steps.items():
        own = _step_faults(key, done, install, deep=deep)
        if done.damaged and not own:
            own = [Fault(place=key, message="is damaged, and its repair did not finish", code="repair-unfinished")]
        faults += own
    missing = [key for key in wanted if key not in found.steps]
    faults += [
        Fault(place=key, message="is in the answers, and was never finished", code="never-finished") for key in missing
    ]
    return [*faults, *_answers_faults(install), *_config_faults(install, found)]


def _step_faults(key: str, done: record.StepRecord, install: Path, *, deep: bool) -> list[Fault]:
    kind, name = kind_of(key)
    try:
        return [replace(fault, place=key) for fault in kind.verify(name, done.facts, install, deep=deep)]
    except PermissionError as error:
        where = os.path.realpath(error.filename or install)
        home = "if it is a Python in a home folder, set 'python' in the answers to another one"
        hint = f"{record.readable_hint(install)}; {home}"
        return [Fault(place=key, message=f"you may not read {where}", hint=hint, code="not-readable", value=where)]
    except LlmbError as error:
        return [as_fault(error, key)]


def came_later(intent: Intent, found: record.InstallRecord) -> tuple[str, ...]:
    """The workloads whose plugins came after the installation, where the answers ask for all workloads.

    Such a workload is in no recorded step; one that failed to install is at least in that of the programs.
    """
    if intent.asked.workloads is not None or not found.config:
        return ()
    recorded = {key for done in found.steps.values() for key in done.workloads}
    return tuple(key for key in intent.workloads if key not in recorded)


def _answers_faults(install: Path) -> list[Fault]:
    """A fault where the recorded answers cannot be read: without them nothing can be added, removed or repaired."""
    path = record.answers_path(install)
    if not path.is_file():
        return []
    try:
        yamlfile.load(path)
    except UsageError as error:
        return [replace(as_fault(error, "answers"), hint=record.replace_hint(install))]
    return []


def unreadable(install: Path) -> list[Fault]:
    """Why the configuration in ``install`` cannot be read; empty where it can."""
    try:
        read_config(yamlfile.load(install / CONFIG_FILE), cluster_types=all_types)
    except InputFaults as error:
        return [replace(fault, place="config", message=str(fault)) for fault in error.faults]
    except UsageError as error:
        return [as_fault(error, "config")]
    return []


def _config_faults(install: Path, found: record.InstallRecord) -> list[Fault]:
    """Why the configuration cannot be used, or which environments and workloads it names that are missing."""
    if faults := unreadable(install):
        return faults
    config = read_config(yamlfile.load(install / CONFIG_FILE), cluster_types=all_types)
    built = {key for done in found.steps.values() for key in done.workloads}
    for key in as_keys(config.workloads.installed or (), built):
        own = config.workloads.of(key)
        for venv in dict.fromkeys([*([own.venv_path] if own.venv_path is not None else []), *own.venvs.values()]):
            if not venv.is_dir():
                text = f"{CONFIG_FILE}: the environment of {key} is missing: {venv}"
                faults.append(Fault(place="config", message=text, code="venv-missing", key=key, value=str(venv)))
        has_own = own.venv_path is not None or own.venvs  # written by hand
        if found.steps and key not in built and not has_own:
            text = f"{CONFIG_FILE}: {key} is listed as installed, but nothing is installed for it"
            hint = f"run: llmb-install add {key}{record.option_of(install)}; or remove it from the list"
            faults.append(Fault(place="config", message=text, hint=hint, code="workload-not-installed", key=key))
    return faults
