# SPDX-License-Identifier: Apache-2.0
"""What of an installation is missing, damaged, out of date or no longer asked for."""

import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llmb.config import CONFIG_FILE, ClusterConfig
from llmb.errors import Fault, InputFaults, LlmbError, UsageError
from llmb.text import typed, yamlfile
from llmb.text.names import as_keys
from llmb_installer.images.image_step import ImageStep
from llmb_installer.planning import config, flow
from llmb_installer.planning.plan import Intent, own_config, unoffered
from llmb_installer.record import InstallRecord, StepRecord, answers_path
from llmb_installer.steps import Step, VenvStep, kind_of
from llmb_installer.steps.programs import ProgramsStep


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallStatus:
    """``intent``: what the answers ask for, without the workloads ``new``, which came after the installation.

    ``outdated``: what has to be made anew to be as asked for; ``unused``: keys of steps that nobody asks for now;
    ``unoffered``: workloads that no plugin offers here. Where the answers cannot be followed here, ``intent`` is None,
    and ``note`` says why.
    """

    intent: Intent | None = None
    new: tuple[str, ...] = ()
    outdated: tuple[Fault, ...] = ()
    unused: tuple[str, ...] = ()
    unoffered: tuple[str, ...] = ()
    note: str | None = None

    @property
    def wanted(self) -> tuple[str, ...]:
        """The keys of the steps that are to be there, but for those that are outdated."""
        older = {fault.place for fault in self.outdated}
        return tuple(step.key for step in self.intent.steps if step.key not in older) if self.intent is not None else ()


def find_status(folder: Path, found: InstallRecord, *, required: bool = False) -> InstallStatus:
    """Hold the record ``found`` of ``folder`` against its answers.

    Raises LlmbError where they cannot be followed and it is ``required``.
    """
    try:
        offered = flow.known()
        asked = flow.recorded_answers(folder, offered)
        intent, _ = flow.intent_of(asked, offered, before=found.config)
        new = came_later(intent, found)
        if new:
            staying = tuple(key for key in intent.workloads if key not in new)
            intent, _ = flow.intent_of(replace(asked, workloads=staying), offered, before=found.config)
        older = outdated(intent, found)
    except LlmbError as error:
        if required:
            raise
        return InstallStatus(note=f"not held against the answers: {error.message}")
    if not unreadable(folder):
        older += outdated_config(intent, found)
    intent = replace(intent, asked=asked)
    return InstallStatus(
        intent=intent, new=new, outdated=tuple(older), unused=unused(intent, found), unoffered=unoffered(intent, found)
    )


_SHOWN = 3  # packages that a sentence names


def outdated(intent: Intent, found: InstallRecord) -> list[Fault]:
    """A fault for each step that has to be carried out again, or in the place of another, to be as asked for now.

    Its place is the step's key. Steps that were never finished at all are not among them.
    """
    faults = []
    for step in intent.steps:
        done = found.steps.get(step.key)
        told = _replaces(step, intent, found) if done is None else _differs(step, done)
        faults += [Fault(place=step.key, message=told)] if told is not None else []
    return faults


def outdated_config(intent: Intent, found: InstallRecord) -> list[Fault]:
    """Whether the configuration leads to what was made before. Raises LlmbError where it cannot be read."""
    written = found.config.get("workloads", {}).get("installed", [])
    own = own_config(intent, tuple(key for key in intent.workloads if key in written), found)
    now = config.read_config(intent.site.install)
    if not now or not found.config:
        return []
    differing = [*_differences(now, config.plan_config(found.config, now, own).data)]
    if not differing:
        return []
    more = f" and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
    message = f"{CONFIG_FILE} is out of date ({', '.join(differing[:_SHOWN])}{more})"
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


def unused(intent: Intent, found: InstallRecord) -> tuple[str, ...]:
    """The keys of finished steps that the answers ask for no more; programs stay, runs may still need them."""
    wanted, gone = {step.key for step in intent.steps}, {*unoffered(intent, found)}
    return tuple(
        key
        for key, done in found.steps.items()
        if key not in wanted and not gone & {*done.workloads} and not key.startswith(f"{ProgramsStep.kind} ")
    )


def _replaces(step: Step, intent: Intent, found: InstallRecord) -> str | None:
    """The image that a new one takes the place of, for a workload that both are for."""
    if not isinstance(step, ImageStep):
        return None
    users = {*step.workloads}
    old = [key for key in unused(intent, found) if _kind(key) == step.kind and users & {*found.steps[key].workloads}]
    return f"it takes the place of {' and '.join(key.partition(' ')[2] for key in old)}" if old else None


def _differs(step: Step, done: StepRecord) -> str | None:
    if done.digest == step.digest:
        return None
    if isinstance(step, ProgramsStep) and done.facts.get("digest") != step.content:
        return "they are those of another release of llmb"
    if isinstance(step, VenvStep) and (other := _other_versions(step, done)):
        more = f" and {len(other) - _SHOWN} more" if len(other) > _SHOWN else ""
        return f"it is not what is asked for now: {', '.join(other[:_SHOWN])}{more}"
    return "it was made for other requirements or answers than are asked for now"


def _other_versions(step: VenvStep, done: StepRecord) -> list[str]:
    """What is installed beside what is pinned now: ``torch 2.7.0 is to be 2.8.0``."""
    there = {_plain(name): version for name, version in done.facts.get("packages", {}).items()}
    return [*_said(step.need.requirements, there)]


def _said(requirements: Iterable[str], there: dict[str, str]) -> Iterable[str]:
    for line in requirements:
        pinned = re.match(r"([\w.-]+)(?:\[[^\]]*\])?\s*==\s*([^\s;,]+)", line)
        if pinned is None:
            continue
        has = there.get(_plain(pinned[1]))
        if has is None:
            yield f"{pinned[1]} {pinned[2]} is missing"
        elif has.partition("+")[0] != pinned[2].partition("+")[0]:  # a build: 2.8.0+cpu
            yield f"{pinned[1]} {has} is to be {pinned[2]}"


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _kind(key: str) -> str:
    return key.partition(" ")[0]


_OWN_PYTHON = "of a Python in a home folder, 'python' in the answers names one that all may use"


def find_faults(install: Path, found: InstallRecord, wanted: Iterable[str] = (), *, deep: bool) -> list[Fault]:
    """What is wrong, the step's key as its place; ``deep`` reads the contents of every file.

    ``wanted`` are the keys of the steps that the answers ask for.
    """
    faults = []
    for key, done in found.steps.items():
        told = _step_faults(key, done, install, deep=deep)
        if done.damaged and not told:
            told = [Fault(place=key, message="it was found damaged, and its repair did not come to an end")]
        faults += told
    lacking = [key for key in wanted if key not in found.steps]
    faults += [Fault(place=key, message="the answers ask for it, and it was never finished") for key in lacking]
    return [*faults, *_answers_faults(install), *_config_faults(install, found)]


def _step_faults(key: str, done: StepRecord, install: Path, *, deep: bool) -> list[Fault]:
    kind, name = kind_of(key)
    try:
        return [replace(fault, place=key) for fault in kind.verify(name, done.facts, install, deep=deep)]
    except PermissionError as error:
        where = os.path.realpath(error.filename or install)
        hint = f"its owner lets others read it: chmod -R go+rX {shlex.quote(str(install))}; {_OWN_PYTHON}"
        return [Fault(place=key, message=f"you may not read {where}", hint=hint)]
    except LlmbError as error:
        return [Fault(place=key, message=error.message, hint=error.hint)]


def came_later(intent: Intent, found: InstallRecord) -> tuple[str, ...]:
    """The workloads of answers that ask for all, which were not there to be asked for when they were carried out.

    Such a one has no step in the record, not even one that it would share; what was asked for then and failed has: the
    programs of compute nodes are for all of them.
    """
    if intent.asked.workloads is not None or not found.config:
        return ()
    there = {key for done in found.steps.values() for key in done.workloads}
    return tuple(key for key in intent.workloads if key not in there)


def _answers_faults(install: Path) -> list[Fault]:
    """Whether the noted answers can be read: nothing can be added, removed or repaired without them."""
    path = answers_path(install)
    if not path.is_file():
        return []
    try:
        yamlfile.load(path)
    except UsageError as error:
        hint = f"llmb-install --config answers.yaml --install {shlex.quote(str(install))} writes it anew"
        return [Fault(place="answers", message=error.message, hint=hint)]
    return []


def unreadable(install: Path) -> list[Fault]:
    """Why the configuration in ``install`` cannot be used at all; empty where it can."""
    try:
        typed.read(ClusterConfig, yamlfile.load(install / CONFIG_FILE))
    except InputFaults as error:
        return [Fault(place="config", message=str(fault), hint=fault.hint) for fault in error.faults]
    except UsageError as error:
        return [Fault(place="config", message=error.message, hint=error.hint)]
    return []


def _config_faults(install: Path, found: InstallRecord) -> list[Fault]:
    """Whether the configuration can be read, and leads to environments that are there."""
    if faults := unreadable(install):
        return faults
    config = typed.read(ClusterConfig, yamlfile.load(install / CONFIG_FILE))
    built = {key for done in found.steps.values() for key in done.workloads}
    for key in as_keys(config.workloads.installed or (), built):
        own = config.workloads.of(key)
        for venv in dict.fromkeys([*([own.venv_path] if own.venv_path is not None else []), *own.venvs.values()]):
            if not venv.is_dir():
                text = f"{CONFIG_FILE}: {key} has its environment at {venv}: missing"
                faults.append(Fault(place="config", message=text))
        has_own = own.venv_path is not None or own.venvs  # that a person named
        if found.steps and key not in built and not has_own:
            text = f"{CONFIG_FILE}: {key} is named as installed, and nothing was installed for it"
            hint = f"llmb-install add {key} --install {shlex.quote(str(install))}, or take it out of the list there"
            faults.append(Fault(place="config", message=text, hint=hint))
    return faults
