# SPDX-License-Identifier: Apache-2.0
"""llmb-install add: installs more workloads, by the recorded answers of the install directory."""

import shlex
from dataclasses import replace
from pathlib import Path

from llmb.config import CONFIG_FILE
from llmb.errors import InputFaults, UsageError
from llmb.system import console
from llmb.text.names import as_keys, find_workload
from llmb_installer import fits, record
from llmb_installer.answers.schema import ARCHITECTURES
from llmb_installer.applying.install import carry_out
from llmb_installer.detect.settle import ARCHITECTURE_UNDETECTED, GPU_UNDETECTED
from llmb_installer.planning.plan import intent_of, load_offered, recorded_answers

_ELSEWHERE = {"install": "name the folder by --install", "workloads": "name the workloads after 'add'"}


def run(
    workloads: tuple[str, ...], install: Path | None, settings: tuple[str, ...], yes: bool, dry_run: bool, fmt: str
) -> None:
    """Install WORKLOADS too, with the answers that ``settings`` override."""
    _check_settings(settings)
    folder = record.find_folder(install)
    offered = load_offered()
    keys = [find_workload(name, offered.workloads) for name in workloads]
    try:
        asked = recorded_answers(folder, offered, settings)
        if asked.workloads is None:
            there = record.config_of(folder).workloads.installed or ()
            asked = replace(asked, workloads=tuple(as_keys(there, offered.workloads)))
        asked = replace(asked, workloads=tuple(dict.fromkeys([*(asked.workloads or ()), *keys])))
        intent, notes = intent_of(asked, offered, before=record.load(folder).config)
    except InputFaults as error:
        raise _with_command(error, folder, keys, settings) from error
    for note in [*notes, *fits.check(intent.answers)]:
        console.echo(f"note: {note}", err=True)
    carry_out(replace(intent, adopts=True), yes=yes, dry_run=dry_run, fmt=fmt)


def _check_settings(settings: tuple[str, ...]) -> None:
    """Raise UsageError for the answers that the command line gives otherwise: what to add, and where."""
    for setting in settings:
        key = setting.partition("=")[0].strip()
        if key in _ELSEWHERE:
            message = f"--set {key} has no place in llmb-install add"
            raise UsageError(message, hint=_ELSEWHERE[key], code="setting-misplaced", key="--set", value=setting)


def _with_command(error: InputFaults, folder: Path, keys: list[str], given: tuple[str, ...]) -> InputFaults:
    """``error`` with the commands that set what cannot be detected here, which depend on where the answers are."""
    examples = {ARCHITECTURE_UNDETECTED: ARCHITECTURES[0], GPU_UNDETECTED: "h100"}
    undetected = [(fault.key, fault.value or examples[fault.code]) for fault in error.faults if fault.code in examples]
    if not undetected:
        return error
    option = record.option_of(folder)
    if record.answers_path(folder).is_file():
        settings = " ".join(f"--set {key}={value}" for key, value in undetected)
        first = f"set it, such as by: llmb-install {settings}{option} --yes"
    else:
        keys_there = {"node_architecture": "install: {node_architecture: %s}", "gpu_type": "gpu_type: %s"}
        texts = " and ".join(f"'{keys_there[key] % value}'" for key, value in undetected)
        first = f"add it to {folder / CONFIG_FILE}, such as {texts}"
    again = " ".join([*keys, *(f"--set {shlex.quote(setting)}" for setting in given)])
    faults = [replace(fault, hint=None) if fault.code in examples else fault for fault in error.faults]
    return InputFaults(faults, hint=f"{first}; then run again: llmb-install add {again}{option}")
