# SPDX-License-Identifier: Apache-2.0
"""Quotes text for bash, so that every value arrives as it was given."""

import re
import shlex
from functools import lru_cache

from llmb.errors import UsageError

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@lru_cache(maxsize=1024)  # the jobs of a list have most of their words in common
def bash(text: str, *, always: bool = False) -> str:
    """``text`` as one word of bash, in quotes where it needs them or ``always``. Raises UsageError for a NUL."""
    if "\0" in text:
        raise UsageError(f"{text!r} holds a NUL character, which no variable can", hint="take it out")
    if not CONTROL.search(text):
        return "'" + text.replace("'", "'\"'\"'") + "'" if always else shlex.quote(text)
    # sbatch refuses a script with a carriage return in it.
    escaped = text.replace("\\", r"\\").replace("'", r"\'").replace("\n", r"\n")
    return "$'" + CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", escaped) + "'"
