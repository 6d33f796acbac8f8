# SPDX-License-Identifier: Apache-2.0
"""llmb-install add: installs more workloads, by the recorded answers of the install directory."""

import shlex
from dataclasses import replace
from pathlib import Path

from llmb.core import console
from llmb.core.names import as_keys, find_workload
from llmb.errors import InputFaults, UsageError
from llmb.plan.locate import CONFIG_FILE
from llmb_installer import fits, record
from llmb_installer.answers.schema import ARCHITECTURES
from llmb_installer.applying.install import carry_out
from llmb_installer.detect.auto import ARCHITECTURE_UNDETECTED, GPU_UNDETECTED
from llmb_installer.planning.plan import load_offered, read_recorded_answers, resolve_intent

_ELSEWHERE = {
    "install": "name the folder by --install",
    "workloads": "name the workloads after 'add'",
}


def run(
    workloads: tuple[str, ...],
    install: Path | None,
    settings: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    fmt: str,
) -> None:
    """Install WORKLOADS too, with the answers that ``settings`` override."""
    _check_settings(settings)
    folder = record.find_folder(install)
    offered = load_offered(folder)
    keys = [find_workload(name, offered.workloads) for name in workloads]
    try:
        answers = read_recorded_answers(folder, offered, settings)
        if answers.workloads is None:
            installed = record.load_layered_config(folder).workloads.installed or ()
            answers = replace(answers, workloads=tuple(as_keys(installed, offered.workloads)))
        answers = replace(
            answers, workloads=tuple(dict.fromkeys([*(answers.workloads or ()), *keys]))
        )
        intent, notes = resolve_intent(answers, offered, before=record.load(folder).config)
    except InputFaults as error:
        raise _with_command(error, folder, keys, settings) from error
    for note in [*notes, *fits.check(intent.answers)]:
        console.echo(f"note: {note}", err=True)
    carry_out(replace(intent, adopts=True), yes=yes, dry_run=dry_run, fmt=fmt)


def _check_settings(settings: tuple[str, ...]) -> None:
    """Raise UsageError for answers that the command line gives otherwise, such as the workloads."""
    for setting in settings:
        key = setting.partition("=")[0].strip()
        if key in _ELSEWHERE:
            message = f"--set {key} has no place in llmb-install add"
            raise UsageError(
                message, hint=_ELSEWHERE[key], code="setting-misplaced", key="--set", value=setting
            )


def _with_command(
    error: InputFaults, folder: Path, keys: list[str], settings_given: tuple[str, ...]
) -> InputFaults:
    """Add the commands that set undetected keys, which depend on the place of the answers."""
    examples = {ARCHITECTURE_UNDETECTED: ARCHITECTURES[0], GPU_UNDETECTED: "h100"}
    undetected = [
        (fault.key, fault.value or examples[fault.code])
        for fault in error.faults
        if fault.code in examples
    ]
    if not undetected:
        return error
    option = record.format_option(folder)
    if record.answers_path(folder).is_file():
        settings = " ".join(f"--set {key}={value}" for key, value in undetected)
        first = f"set it, such as by: llmb-install {settings}{option} --yes"
    else:
        keys_there = {
            "node_architecture": "install: {node_architecture: %s}",
            "gpu_type": "gpu_type: %s",
        }
        texts = " and ".join(f"'{keys_there[key] % value}'" for key, value in undetected)
        first = f"add it to {folder / CONFIG_FILE}, such as {texts}"
    again = " ".join([*keys, *(f"--set {shlex.quote(setting)}" for setting in settings_given)])
    faults = [
        replace(fault, hint=None) if fault.code in examples else fault for fault in error.faults
    ]
    return InputFaults(faults, hint=f"{first}; then run again: llmb-install add {again}{option}")
