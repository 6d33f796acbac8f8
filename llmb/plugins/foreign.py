# SPDX-License-Identifier: Apache-2.0
"""Refuses an install directory of another tool, which a plugin recognizes."""

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from llmb import api
from llmb.core import files
from llmb.errors import UsageError
from llmb.plan.locate import CONFIG_FILE, find_install
from llmb.plugins.loaded import Plugins

CODE = "install-of-other"
_OURS = re.compile(rb"^cluster_type[ \t]*:", re.MULTILINE)
_MOST = 1 << 20  # bytes that are read of a file


def is_own(folder: Path) -> bool:
    """Return True if the folder has a configuration of llmb, or one that cannot be read."""
    try:
        text = files.read_start(folder / CONFIG_FILE, _MOST)
    except OSError:  # reading it properly names the reason
        return True
    return _OURS.search(text) is not None


def find_foreign(folder: Path, load: Callable[[], Plugins]) -> api.ForeignInstall | None:
    """Return the installation of another tool if the folder has the configuration of one.

    The plugins are loaded by ``load`` only for a configuration that is not llmb's.
    """
    has_other = (folder / CONFIG_FILE).is_file() and not is_own(folder)
    return load().foreign_install(folder.resolve()) if has_other else None


def find_own_install(
    load: Callable[[], Plugins],
    option: Path | None,
    environ: Mapping[str, str],
    cwd: Path | None = None,
) -> Path:
    """Return the directory of ``find_install``. Raises UsageError also for one of another tool."""
    folder = find_install(option, environ, cwd)
    refuse_foreign(folder, load)
    return folder


def imported_folder(folder: Path) -> Path:
    """Return the install directory that ``llmb-install import`` makes beside ``folder``."""
    return folder.with_name(f"{folder.name}-llmb")


def refuse_foreign(folder: Path, load: Callable[[], Plugins]) -> None:
    """Raise UsageError for an installation of another tool, with the command that imports it."""
    install = find_foreign(folder, load)
    if install is None:
        return
    imported = imported_folder(install.folder)
    if (imported / CONFIG_FILE).is_file():
        hint = f"it was imported into {imported}: use --install {shlex.quote(str(imported))}"
    else:
        hint = f"to use it here, run: llmb-install import {shlex.quote(str(install.folder))}"
    message = f"{folder / CONFIG_FILE}: this file belongs to {install.tool}, not to llmb"
    raise UsageError(message, hint=hint, code=CODE, key="LLMB_INSTALL", value=str(install.folder))
