# SPDX-License-Identifier: Apache-2.0
"""Quotes text for #SBATCH lines, so that every value arrives as it was given."""

import re
from functools import lru_cache

from llmb.clusters.quote import CONTROL
from llmb.errors import UsageError

_PLAIN = re.compile(r"[A-Za-z0-9_./,:;=+@%\[\]<>^*-]+")


@lru_cache(maxsize=256)
def directive(text: str) -> str:
    """``text`` as the value of an option on an #SBATCH line. Raises UsageError for a line break."""
    if _PLAIN.fullmatch(text):
        return text
    if CONTROL.search(text) or "\n" in text:
        raise UsageError(f"{text!r} holds a line break or the like, and an option of Slurm cannot", hint="rename it")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def path_pattern(path: str) -> str:
    """``path`` for options that expand ``%j`` and its like."""
    return path.replace("%", "%%")
