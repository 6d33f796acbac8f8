# SPDX-License-Identifier: Apache-2.0
"""Finds what an install directory lacks or what was changed in it, against its record."""

from __future__ import annotations

from pathlib import Path

from llmb import typed, yamlfile
from llmb.config import CONFIG_FILE, ClusterConfig
from llmb.errors import Fault, InputFaults, UsageError
from llmb_installer.record import InstallRecord
from llmb_installer.steps.kinds import kind_of


def find_faults(install: Path, found: InstallRecord, *, deep: bool) -> list[Fault]:
    """What is wrong, the step's key as its place; ``deep`` reads the contents of every file."""
    faults = []
    for key, done in found.steps.items():
        kind, name = kind_of(key)
        faults += [Fault(place=key, message=text) for text in kind.verify(name, done.facts, install, deep=deep)]
    return [*faults, *_config_faults(install, found)]


def _config_faults(install: Path, found: InstallRecord) -> list[Fault]:
    """Whether the configuration can be read, and leads to environments that are there."""
    try:
        config = typed.read(ClusterConfig, yamlfile.load(install / CONFIG_FILE))
    except InputFaults as error:
        return [Fault(place="config", message=str(fault), hint=fault.hint) for fault in error.faults]
    except UsageError as error:
        return [Fault(place="config", message=error.message, hint=error.hint)]
    faults = []
    for key in config.workloads.installed or ():
        venv = config.workloads.of(key).venv_path
        if venv is not None and not venv.is_dir():
            faults.append(Fault(place="config", message=f"{CONFIG_FILE}: {key} has its environment at {venv}: missing"))
        if found.steps and not any(key in done.workloads for done in found.steps.values()):
            text = f"{CONFIG_FILE}: {key} is named as installed, and nothing was installed for it"
            faults.append(Fault(place="config", message=text))
    return faults
