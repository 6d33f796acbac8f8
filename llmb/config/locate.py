# SPDX-License-Identifier: Apache-2.0
"""Finds the install directory: the option, the variable LLMB_INSTALL, or the nearest one above this folder."""

import shlex
from collections.abc import Mapping
from pathlib import Path

from llmb.errors import UsageError
from llmb.system import files

CONFIG_FILE = "cluster_config.yaml"
_HOW = "give --install DIR, set LLMB_INSTALL, or go into the install directory; llmb-install makes one"


def find_install(option: Path | None, environ: Mapping[str, str], cwd: Path) -> Path:
    """The install directory, absolute. Raises UsageError when none is named or found, or it has no configuration.

    The older STAGE_PATH is refused whatever else is said: which directory counts must never be a guess.
    """
    if "STAGE_PATH" in environ:
        hint = "set LLMB_INSTALL to the install directory (or give --install DIR), and: unset STAGE_PATH"
        raise UsageError("STAGE_PATH is no longer read", hint=hint)
    if option is not None:
        return _checked(cwd / option, "--install")
    if value := environ.get("LLMB_INSTALL"):
        return _checked(cwd / files.expand(value), "LLMB_INSTALL")
    for folder in (cwd, *cwd.parents):
        if (folder / CONFIG_FILE).is_file():
            return folder
    raise UsageError(f"no {CONFIG_FILE} in this folder or above it", hint=_HOW)


def _checked(folder: Path, source: str) -> Path:
    if not folder.is_dir():
        state = "is not a folder" if folder.exists() else "does not exist"
        hint = f"check the path; to install there, run: llmb-install --install {shlex.quote(str(folder))}"
        value = str(folder)
        raise UsageError(f"{source}: {folder} {state}", hint=hint, code="install-missing", key=source, value=value)
    if not (folder / CONFIG_FILE).is_file():
        raise UsageError(f"{source}: {folder} has no {CONFIG_FILE}", hint=_HOW)
    return folder.resolve()
