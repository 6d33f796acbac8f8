# SPDX-License-Identifier: Apache-2.0
"""The answers of a conversation that was cut off, kept in the user's state folder as the defaults of the next."""

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
    """The values by question; none where nothing was cut off."""
    try:
        data = files.read_json(_path(environ))
    except LlmbError:  # only defaults: a damaged file is no reason to stop
        return {}
    return data if isinstance(data, dict) else {}


def save(chosen: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Keep the values; False where that was not possible."""
    try:
        files.write_json(_path(environ), dict(chosen), mode=0o600)
    except LlmbError:
        return False
    return True


def drop(environ: Mapping[str, str]) -> None:
    """Forget them: the conversation came to its end."""
    with contextlib.suppress(OSError):
        _path(environ).unlink(missing_ok=True)
