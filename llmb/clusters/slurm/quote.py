# SPDX-License-Identifier: Apache-2.0
"""Quotes text for bash and for #SBATCH lines, so that every value arrives as it was given."""

from __future__ import annotations

import re
import shlex
from functools import lru_cache

from llmb.errors import UsageError

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_PLAIN = re.compile(r"[A-Za-z0-9_./,:;=+@%\[\]<>^*-]+")


@lru_cache(maxsize=1024)  # the jobs of a list have most of their words in common
def bash(text: str, *, always: bool = False) -> str:
    """``text`` as one word of bash, in quotes where it needs them or ``always``. Raises UsageError for a NUL."""
    if "\0" in text:
        raise UsageError(f"{text!r} holds a NUL character, which no variable can", hint="take it out")
    if not _CONTROL.search(text):
        return "'" + text.replace("'", "'\"'\"'") + "'" if always else shlex.quote(text)
    # sbatch refuses a script with a carriage return in it.
    escaped = text.replace("\\", r"\\").replace("'", r"\'").replace("\n", r"\n")
    return "$'" + _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", escaped) + "'"


@lru_cache(maxsize=256)
def directive(text: str) -> str:
    """``text`` as the value of an option on an #SBATCH line. Raises UsageError for a line break."""
    if _PLAIN.fullmatch(text):
        return text
    if _CONTROL.search(text) or "\n" in text:
        raise UsageError(f"{text!r} holds a line break or the like, and an option of Slurm cannot", hint="rename it")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def path_pattern(path: str) -> str:
    """``path`` for options that expand ``%j`` and its like."""
    return path.replace("%", "%%")
