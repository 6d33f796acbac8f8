# SPDX-License-Identifier: Apache-2.0
"""Recognizes a cluster_config.yaml of NVIDIA's exemplar-performance, which has other keys."""

import re
import shlex
from pathlib import Path

from llmb.core import files
from llmb.errors import UsageError

TOOL = "NVIDIA's exemplar-performance"
CODE = "install-of-exemplar"
_BEFORE_26 = re.compile(rb"^launcher[ \t]*:", re.MULTILINE)  # its keys of releases 25.05 to 25.12
_SINCE_26 = re.compile(rb"^llmb_repo[ \t]*:", re.MULTILINE)
_OURS = re.compile(rb"^cluster_type[ \t]*:", re.MULTILINE)
_MOST = 1 << 20  # bytes that are read of a file
# what releases 25.05 to 25.05.05 call Nemotron-4
_NEMOTRON = re.compile(r"(?i)(pretrain(?:ing)?_)?nemotron")


def is_exemplar(path: Path) -> bool:
    """Return True if the installer of exemplar-performance wrote the configuration."""
    try:
        text = files.read_start(path, _MOST)
    except OSError:  # reading it properly names the reason
        return False
    return not _OURS.search(text) and bool(_BEFORE_26.search(text) or _SINCE_26.search(text))


def name_in_llmb(name: str) -> str:
    """Return a workload's name in llmb: ``pretraining_nemotron`` is Nemotron-4."""
    return f"{name}4" if _NEMOTRON.fullmatch(name.strip()) else name


def imported_folder(folder: Path) -> Path:
    """Return the install directory that ``llmb-install import`` makes beside ``folder``."""
    return folder.with_name(f"{folder.name}-llmb")


def refuse_exemplar(path: Path) -> None:
    """Raise UsageError with the command that imports it for an exemplar's configuration."""
    if not is_exemplar(path):
        return
    folder = path.parent.resolve()
    imported = imported_folder(folder)
    if (imported / path.name).is_file():
        hint = f"it was imported into {imported}: use --install {shlex.quote(str(imported))}"
    else:
        hint = f"to use it here, run: llmb-install import {shlex.quote(str(folder))}"
    message = f"{path}: this file belongs to {TOOL}, not to llmb"
    raise UsageError(message, hint=hint, code=CODE, key="LLMB_INSTALL", value=str(folder))
