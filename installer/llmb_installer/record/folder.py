# SPDX-License-Identifier: Apache-2.0
"""Finds the install directory that a command is about, one with a lost or faulty configuration too."""

import shlex
from collections.abc import Mapping
from pathlib import Path

from llmb.config import CONFIG_FILE, ClusterConfig, find_install, load_config
from llmb.errors import Fault, InputFaults, UsageError
from llmb.system import locks
from llmb.text import typed, yamlfile
from llmb_installer.record import record


def find_folder(option: Path | None, environ: Mapping[str, str], cwd: Path) -> Path:
    """As ``find_install``, and a folder where only what llmb-install notes for itself is left. Raises UsageError."""
    try:
        return find_install(option, environ, cwd)
    except UsageError:
        if "STAGE_PATH" in environ:  # refused whatever else is said
            raise
        named = option or (Path(environ["LLMB_INSTALL"]).expanduser() if environ.get("LLMB_INSTALL") else None)
        for folder in (cwd / named,) if named is not None else (cwd, *cwd.parents):
            if record.record_path(folder).is_file() or record.answers_path(folder).is_file():
                return folder.resolve()
        raise


def config_of(folder: Path, environ: Mapping[str, str]) -> ClusterConfig:
    """The configuration of ``folder`` with every layer. Raises InputFaults, whose hint is its repair."""
    if not (folder / CONFIG_FILE).is_file():
        message = f"{folder} has no {CONFIG_FILE}: the installation is not finished, or the file was removed"
        raise UsageError(message, hint=unfinished_hint(folder))
    own_config(folder)
    return load_config(folder, environ)[0]


def own_config(folder: Path) -> ClusterConfig:
    """What cluster_config.yaml itself says, without the layers above it. Raises InputFaults with its repair."""
    try:
        return typed.read(ClusterConfig, yamlfile.load(folder / CONFIG_FILE))
    except InputFaults as error:
        raise InputFaults(error.faults, hint=error.hint or f"mend it, or {repair_hint(folder)}") from error
    except UsageError as error:
        fix = f"mend it, or {repair_hint(folder)}"
        if isinstance(error.__cause__, PermissionError):
            fix = f"its owner lets others read it: chmod -R go+rX {shlex.quote(str(folder))}"
        raise InputFaults([Fault(message=error.message, hint=error.hint)], hint=fix) from error


def repair_hint(folder: Path) -> str:
    """The fix of a configuration that is lost or faulty."""
    return f"llmb-install verify --repair --install {shlex.quote(str(folder))} --yes sets it aside and writes it anew"


def unfinished_hint(folder: Path) -> str:
    """The fix of a configuration that is not there: the installation is at work, or has not come to its end."""
    wait = at_work(folder)
    again = f"llmb-install verify --repair --install {shlex.quote(str(folder))} --yes"
    return f"{wait}: wait until it has finished" if wait is not None else f"{again} makes what is missing, and the file"


def at_work(folder: Path) -> str | None:
    """Who is changing the installation in ``folder`` at this moment, in words; None where nobody is."""
    owner = locks.holder(folder / record.FOLDER, record.LOCK)
    if owner is None:
        return None
    return "llmb-install is at work there" + (f", process {owner.pid} on {owner.host}" if owner.pid else "")
