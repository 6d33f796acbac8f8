# SPDX-License-Identifier: Apache-2.0
"""Finds what an install directory lacks or what was changed in it, against its record."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from llmb import typed, yamlfile
from llmb.config import CONFIG_FILE, ClusterConfig
from llmb.errors import Fault, InputFaults, UsageError
from llmb_installer.record import InstallRecord
from llmb_installer.steps.kinds import kind_of


def find_faults(install: Path, found: InstallRecord, wanted: Iterable[str] = (), *, deep: bool) -> list[Fault]:
    """What is wrong, the step's key as its place; ``deep`` reads the contents of every file.

    ``wanted`` are the keys of the steps that the answers ask for.
    """
    faults = []
    for key, done in found.steps.items():
        kind, name = kind_of(key)
        told = kind.verify(name, done.facts, install, deep=deep)
        if done.damaged and not told:
            told = ["it was found damaged, and its repair did not come to an end"]
        faults += [Fault(place=key, message=text) for text in told]
    lacking = [key for key in wanted if key not in found.steps]
    faults += [Fault(place=key, message="the answers ask for it, and it was never finished") for key in lacking]
    return [*faults, *_config_faults(install, found)]


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
    for key in config.workloads.installed or ():
        own = config.workloads.of(key)
        for venv in dict.fromkeys([*([own.venv_path] if own.venv_path is not None else []), *own.venvs.values()]):
            if not venv.is_dir():
                text = f"{CONFIG_FILE}: {key} has its environment at {venv}: missing"
                faults.append(Fault(place="config", message=text))
        if found.steps and not any(key in done.workloads for done in found.steps.values()):
            text = f"{CONFIG_FILE}: {key} is named as installed, and nothing was installed for it"
            faults.append(Fault(place="config", message=text))
    return faults
