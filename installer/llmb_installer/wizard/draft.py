# SPDX-License-Identifier: Apache-2.0
"""Keeps the answers of a conversation that was interrupted: they are the defaults of the next one."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmb.clusters.local.queue import state_folder
from llmb.errors import LlmbError
from llmb.system import files


def _path(environ: Mapping[str, str]) -> Path:
    return state_folder(environ) / "install-answers.json"


def load(environ: Mapping[str, str]) -> dict[str, Any]:
    """The answers of the last conversation, if it was interrupted, by the keys of their questions."""
    try:
        data = files.read_json(_path(environ))
    except LlmbError:  # only defaults: a damaged file does not matter
        return {}
    return data if isinstance(data, dict) else {}


def save(answers: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Keep ``answers``, without secrets; whether that was possible."""
    try:
        files.write_json(_path(environ), dict(answers), mode=0o600)
    except LlmbError:
        return False
    return True


def forget(environ: Mapping[str, str]) -> None:
    """Remove the answers of a conversation that came to its end."""
    with contextlib.suppress(OSError):
        _path(environ).unlink(missing_ok=True)
