# SPDX-License-Identifier: Apache-2.0
"""Recognizes a cluster_config.yaml of NVIDIA's exemplar-performance: it has llmb's file name and other keys."""

import re
import shlex
from pathlib import Path

from llmb.errors import UsageError

TOOL = "NVIDIA's exemplar-performance"
CODE = "install-of-exemplar"
_BEFORE_26 = re.compile(rb"^launcher[ \t]*:", re.MULTILINE)  # its keys of releases 25.05 to 25.12
_SINCE_26 = re.compile(rb"^llmb_repo[ \t]*:", re.MULTILINE)
_OURS = re.compile(rb"^cluster_type[ \t]*:", re.MULTILINE)
_MOST = 1 << 20  # bytes that are read of a file
_NEMOTRON = re.compile(r"(?i)(pretrain(?:ing)?_)?nemotron")  # what releases 25.05 to 25.05.05 call Nemotron-4


def is_exemplar(path: Path) -> bool:
    """Whether the configuration at ``path`` is one that the installer of exemplar-performance wrote."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST)
    except OSError:  # reading it properly names the reason
        return False
    return not _OURS.search(text) and bool(_BEFORE_26.search(text) or _SINCE_26.search(text))


def name_in_llmb(name: str) -> str:
    """A workload's name in llmb's words: ``pretraining_nemotron`` is Nemotron-4, which later releases call so too."""
    return f"{name}4" if _NEMOTRON.fullmatch(name.strip()) else name


def imported_folder(folder: Path) -> Path:
    """Where ``llmb-install import`` makes the install directory for ``folder``: beside it."""
    return folder.with_name(f"{folder.name}-llmb")


def refuse_exemplar(path: Path) -> None:
    """Raise UsageError, with the command that imports its folder, if the configuration at ``path`` is not llmb's."""
    if not is_exemplar(path):
        return
    folder = path.parent.resolve()
    ours = imported_folder(folder)
    if (ours / path.name).is_file():
        hint = f"it was imported into {ours}: use --install {shlex.quote(str(ours))}"
    else:
        hint = f"to use it here, run: llmb-install import {shlex.quote(str(folder))}"
    message = f"{path}: this file belongs to {TOOL}, not to llmb"
    raise UsageError(message, hint=hint, code=CODE, key="LLMB_INSTALL", value=str(folder))
