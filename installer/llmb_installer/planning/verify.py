# SPDX-License-Identifier: Apache-2.0
"""Finds what an install directory lacks or what was changed in it, against its record."""

import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from llmb.config import CONFIG_FILE, ClusterConfig
from llmb.errors import Fault, InputFaults, LlmbError, UsageError
from llmb.text import typed, yamlfile
from llmb.text.names import as_keys
from llmb_installer.planning.plan import Intent
from llmb_installer.record.record import InstallRecord, StepRecord, answers_path
from llmb_installer.steps.kinds import kind_of

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
        return [Fault(place=key, message=text) for text in kind.verify(name, done.facts, install, deep=deep)]
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
