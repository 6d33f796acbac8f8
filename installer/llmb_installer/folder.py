# SPDX-License-Identifier: Apache-2.0
"""Finds the install directory that a command is about, one with a lost or faulty configuration too."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from llmb.config import CONFIG_FILE, ClusterConfig, find_install, load_config
from llmb.errors import Fault, InputFaults, UsageError
from llmb_installer import record


def find_folder(option: Path | None, environ: Mapping[str, str], cwd: Path) -> Path:
    """As ``find_install``, and a folder where only what llmb-install notes for itself is left. Raises UsageError."""
    try:
        return find_install(option, environ, cwd)
    except UsageError:
        named = option or (Path(environ["LLMB_INSTALL"]).expanduser() if environ.get("LLMB_INSTALL") else None)
        for folder in (cwd / named,) if named is not None else (cwd, *cwd.parents):
            if record.record_path(folder).is_file() or record.answers_path(folder).is_file():
                return folder.resolve()
        raise


def config_of(folder: Path, environ: Mapping[str, str]) -> ClusterConfig:
    """The configuration of ``folder``. Raises InputFaults, whose hint is its repair."""
    if not (folder / CONFIG_FILE).is_file():
        message = f"{folder} has no {CONFIG_FILE}: the installation is not finished, or the file was removed"
        raise UsageError(message, hint=f"while an installation runs, wait for it; else {repair_hint(folder)}")
    try:
        return load_config(folder, environ)[0]
    except InputFaults as error:
        raise InputFaults(error.faults, hint=error.hint or f"mend it, or {repair_hint(folder)}") from error
    except UsageError as error:
        fault = Fault(message=error.message, hint=error.hint)
        raise InputFaults([fault], hint=f"mend it, or {repair_hint(folder)}") from error


def repair_hint(folder: Path) -> str:
    """The cure of a configuration that is lost or faulty."""
    return f"llmb-install verify --repair --install {shlex.quote(str(folder))} sets it aside and writes it anew"
