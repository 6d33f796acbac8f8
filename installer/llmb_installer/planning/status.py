# SPDX-License-Identifier: Apache-2.0
"""The status of an installation: what is missing, damaged, out of date or not needed any more."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmb.core import yamlfile
from llmb.core.names import as_keys, listed
from llmb.core.values import dataclass
from llmb.errors import Fault, InputFaults, LlmbError, UsageError, as_fault
from llmb.plan.locate import CONFIG_FILE
from llmb.plan.read_config import read_config
from llmb_installer import record
from llmb_installer.cluster_types import all_types
from llmb_installer.images.image_step import ImageStep
from llmb_installer.planning import config
from llmb_installer.planning.plan import (
    Intent,
    find_unoffered,
    load_offered,
    make_own_part,
    read_recorded_answers,
    resolve_intent,
)
from llmb_installer.step import InstallStep
from llmb_installer.steps import programs
from llmb_installer.steps.kinds import find_kind
from llmb_installer.venv.lock import normalized
from llmb_installer.venv.venv_step import VenvStep


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallStatus:
    """An installation compared with its answers and this release of llmb.

    ``intent`` is without the workloads ``new``, whose plugins came later. None if the answers do
    not apply here, for the reason in ``note``. ``outdated`` steps must be built again,
    ``unused`` ones are keys of steps that no workload needs, ``unoffered`` are installed
    workloads that no plugin offers.
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
        return (
            tuple(step.key for step in self.intent.steps if step.key not in older)
            if self.intent is not None
            else ()
        )


def find_status(
    folder: Path, install_record: record.InstallRecord, *, required: bool = False
) -> InstallStatus:
    """Compare the record ``install_record`` of ``folder`` with its answers.

    Raises LlmbError if these do not apply here and are ``required``.
    """
    try:
        offered = load_offered(folder)
        answers = read_recorded_answers(folder, offered)
        intent, _ = resolve_intent(answers, offered, before=install_record.config)
        new = find_new_workloads(intent, install_record)
        if new:
            staying = tuple(key for key in intent.workloads if key not in new)
            intent, _ = resolve_intent(
                replace(answers, workloads=staying), offered, before=install_record.config
            )
        older = find_outdated(intent, install_record)
    except LlmbError as error:
        if required:
            raise
        return InstallStatus(note=f"the answers were not checked: {error.message}")
    if not check_readable(folder):
        older += find_outdated_config(intent, install_record)
    intent = replace(intent, asked=answers)
    return InstallStatus(
        intent=intent,
        new=new,
        outdated=tuple(older),
        unused=find_unused(intent, install_record),
        unoffered=find_unoffered(intent, install_record),
    )


_SHOWN = 3  # items that a message shows


def find_outdated(intent: Intent, install_record: record.InstallRecord) -> list[Fault]:
    """A fault for each finished step that the answers now ask for with other content.

    Its place is the step's key.
    """
    faults = []
    for step in intent.steps:
        finished = install_record.steps.get(step.key)
        fault = (
            _replaces(step, intent, install_record)
            if finished is None
            else _differs(step, finished)
        )
        faults += [replace(fault, place=step.key)] if fault is not None else []
    return faults


def find_outdated_config(intent: Intent, install_record: record.InstallRecord) -> list[Fault]:
    """A fault if the configuration differs from the answers.

    Raises LlmbError if it cannot be read.
    """
    written = install_record.config.get("workloads", {}).get("installed", [])
    own_part = make_own_part(
        intent, tuple(key for key in intent.workloads if key in written), install_record
    )
    now = config.read_config(intent.site.install)
    if not now or not install_record.config:
        return []
    differing = [*_differences(now, config.plan_config(install_record.config, now, own_part).data)]
    if not differing:
        return []
    message = f"{CONFIG_FILE} is out of date ({listed(differing, _SHOWN)})"
    return [Fault(place="config", message=message, code="config-outdated", value=tuple(differing))]


def _differences(now: Any, expected: Any, name: str = "") -> Iterator[str]:
    """Yield each key that differs, such as ``install.venv_type: venv, expected uv``."""
    if now == expected:
        return
    if not isinstance(now, Mapping) or not isinstance(expected, Mapping):
        yield f"{name}: {_shown(now)}, expected {_shown(expected)}"
        return
    for key in dict.fromkeys([*now, *expected]):
        yield from _differences(now.get(key), expected.get(key), f"{name}.{key}".lstrip("."))


def _shown(value: Any) -> str:
    return (
        "nothing"
        if value is None
        else json.dumps(value)
        if isinstance(value, (list, dict))
        else str(value)
    )


def find_unused(intent: Intent, install_record: record.InstallRecord) -> tuple[str, ...]:
    """The keys of finished steps that no workload needs.

    Programs are kept, since runs may still need them.
    """
    wanted_keys, orphans = (
        {step.key for step in intent.steps},
        {*find_unoffered(intent, install_record)},
    )
    return tuple(
        key
        for key, finished in install_record.steps.items()
        if key not in wanted_keys
        and not orphans & {*finished.workloads}
        and not key.startswith(f"{programs.ProgramsStep.kind} ")
    )


def _replaces(
    step: InstallStep, intent: Intent, install_record: record.InstallRecord
) -> Fault | None:
    """A fault for an image that replaces another of the same workload."""
    if not isinstance(step, ImageStep):
        return None
    users = {*step.workloads}
    old = [
        key
        for key in find_unused(intent, install_record)
        if key.startswith(f"{step.kind} ") and users & {*install_record.steps[key].workloads}
    ]
    names = [key.partition(" ")[2] for key in old]
    return (
        Fault(message=f"replaces {' and '.join(names)}", code="image-outdated", value=tuple(names))
        if old
        else None
    )


def _differs(step: InstallStep, finished: record.FinishedStep) -> Fault | None:
    if finished.digest == step.digest:
        return None
    if isinstance(step, programs.ProgramsStep) and finished.facts.get("digest") != step.content:
        return Fault(message="are of another release of llmb", code="programs-outdated")
    if isinstance(step, VenvStep) and (versions := [*_other_versions(step, finished)]):
        omitted = f" and {len(versions) - _SHOWN} more" if len(versions) > _SHOWN else ""
        message = f"is out of date ({', '.join(versions[:_SHOWN])}{omitted})"
        return Fault(message=message, code="venv-outdated", value=tuple(versions))
    return Fault(
        message="is out of date (made for other requirements or answers)", code="step-outdated"
    )


def _other_versions(step: VenvStep, finished: record.FinishedStep) -> Iterator[str]:
    """Each package of which another version is required: ``torch 2.7.0, expected 2.8.0``."""
    installed = {
        normalized(name): version for name, version in finished.facts.get("packages", {}).items()
    }
    for line in step.need.requirements:
        pinned = re.match(r"([\w.-]+)(?:\[[^\]]*\])?\s*==\s*([^\s;,]+)", line)
        if pinned is None:
            continue
        found = installed.get(normalized(pinned[1]))
        if found is None:
            yield f"{pinned[1]} {pinned[2]} is missing"
        # 2.8.0+cpu is a build of 2.8.0
        elif found.partition("+")[0] != pinned[2].partition("+")[0]:
            yield f"{pinned[1]} {found}, expected {pinned[2]}"


def find_faults(
    install: Path,
    install_record: record.InstallRecord,
    wanted_keys: Iterable[str] = (),
    *,
    deep: bool,
) -> list[Fault]:
    """Return what is missing or damaged, with the step's key as place.

    ``deep`` reads the contents of every file. ``wanted_keys`` are the steps that the answers ask
    for.
    """
    faults = []
    for key, finished in install_record.steps.items():
        step_faults = _step_faults(key, finished, install, deep=deep)
        if finished.damaged and not step_faults:
            step_faults = [
                Fault(
                    place=key,
                    message="is damaged, and its repair did not finish",
                    code="repair-unfinished",
                )
            ]
        faults += step_faults
    missing = [key for key in wanted_keys if key not in install_record.steps]
    faults += [
        Fault(place=key, message="is in the answers, and was never finished", code="never-finished")
        for key in missing
    ]
    return [*faults, *_answers_faults(install), *_config_faults(install, install_record)]


def _step_faults(
    key: str, finished: record.FinishedStep, install: Path, *, deep: bool
) -> list[Fault]:
    kind, name = find_kind(key)
    try:
        return [
            replace(fault, place=key)
            for fault in kind.verify(name, finished.facts, install, deep=deep)
        ]
    except PermissionError as error:
        path = os.path.realpath(error.filename or install)
        home = "if it is a Python in a home folder, set 'python' in the answers to another one"
        return [
            Fault(
                place=key,
                message=f"you may not read {path}",
                hint=f"{record.readable_hint(install)}; {home}",
                code="not-readable",
                value=path,
            )
        ]
    except LlmbError as error:
        return [as_fault(error, key)]


def find_new_workloads(intent: Intent, install_record: record.InstallRecord) -> tuple[str, ...]:
    """Return workloads whose plugins came later, if the answers ask for all workloads.

    Such a workload is in no recorded step. One that failed to install is at least in the step of
    the programs.
    """
    if intent.asked.workloads is not None or not install_record.config:
        return ()
    recorded = {key for finished in install_record.steps.values() for key in finished.workloads}
    return tuple(key for key in intent.workloads if key not in recorded)


def _answers_faults(install: Path) -> list[Fault]:
    """Return a fault if the recorded answers cannot be read, as every change needs them."""
    path = record.answers_path(install)
    if not path.is_file():
        return []
    try:
        yamlfile.load(path)
    except UsageError as error:
        return [replace(as_fault(error, "answers"), hint=record.replace_hint(install))]
    return []


def check_readable(install: Path) -> list[Fault]:
    """Return the reason why the configuration in ``install`` cannot be read, or an empty text."""
    try:
        read_config(yamlfile.load(install / CONFIG_FILE), cluster_types=all_types)
    except InputFaults as error:
        return [replace(fault, place="config", message=str(fault)) for fault in error.faults]
    except UsageError as error:
        return [as_fault(error, "config")]
    return []


def _config_faults(install: Path, install_record: record.InstallRecord) -> list[Fault]:
    """Return why the configuration is unusable, or which environments and workloads are missing."""
    if faults := check_readable(install):
        return faults
    config = read_config(yamlfile.load(install / CONFIG_FILE), cluster_types=all_types)
    built = {key for finished in install_record.steps.values() for key in finished.workloads}
    for key in as_keys(config.workloads.installed or (), built):
        entry = config.workloads.of(key)
        for venv in dict.fromkeys(
            [*([entry.venv_path] if entry.venv_path is not None else []), *entry.venvs.values()]
        ):
            if not venv.is_dir():
                text = f"{CONFIG_FILE}: the environment of {key} is missing: {venv}"
                faults.append(
                    Fault(
                        place="config", message=text, code="venv-missing", key=key, value=str(venv)
                    )
                )
        has_own = entry.venv_path is not None or entry.venvs  # written by hand
        if install_record.steps and key not in built and not has_own:
            text = f"{CONFIG_FILE}: {key} is listed as installed, but nothing is installed for it"
            hint = (
                f"run: llmb-install add {key}{record.format_option(install)}; or remove it from the"
                " list"
            )
            faults.append(
                Fault(
                    place="config", message=text, hint=hint, code="workload-not-installed", key=key
                )
            )
    return faults
