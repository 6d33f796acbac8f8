# SPDX-License-Identifier: Apache-2.0
"""What to show of the output of a program that failed, and the fix for it (fixes.yaml)."""

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from llmb.text import yamlfile
from llmb.text.units import bytes_in_words

TAIL, WIDTH = 8, 300  # lines of the log that an error shows, and characters of each
FULL = 20_000_000  # free bytes below which a disk is taken for full
# How uv and pip name the package that they cannot build; and omitted lines: pip's progress, and a warning of Python's
# with the call that it quotes below.
_BUILT = re.compile(
    r"(?:Failed to build |Failed building wheel for |Building wheel for )[`']?([\w.\-]+(?:==[\w.+!]+)?)"
)
_WARNING = re.compile(r"^Progress \d+ of \d+$|:\d+: \w*Warning: |^\s+(?:(?:dist|self)\._finalize_\w+|warnings\.warn)\(")


def full_disk(folder: Path, environ: Mapping[str, str]) -> str | None:
    """The fix where a disk is full: not every program reports that as its reason to fail."""
    for place in (folder, Path(environ.get("TMPDIR") or "/tmp")):
        free = shutil.disk_usage(place).free if place.is_dir() else FULL
        if free < FULL:
            return f"free space on the disk of {place}, which has {bytes_in_words(free)} left"
    return None


def fix_for(output: str) -> str:
    """The fix for the output of a failed program."""
    rows = yamlfile.load(Path(__file__).with_name("fixes.yaml")).data["fixes"]
    return next((row["fix"] for row in rows if any(text in output for text in row["printed"])), "fix what it reports")


def end_of(output: str) -> str:
    """The last relevant lines of ``output``, below the name of the package that failed to build.

    Of pip's attempts to connect only the last is shown, and no warning of setuptools.
    """
    lines = [line for line in _without_notices(output) if line.strip()]
    trials = [line for line in lines if line.startswith("WARNING: Retrying")]
    shown = [line for line in lines if line not in trials[:-1]][-TAIL:]
    named = [match[1] for match in _BUILT.finditer(output)]
    if named and not any(named[-1] in line for line in shown):
        shown = [f"building {named[-1]}:", *shown]
    return "\n".join(f"  {line[:WIDTH]}" for line in shown)


def _without_notices(output: str) -> Iterator[str]:
    """The lines without Python's warnings; setuptools frames the text of its own with ``!!``."""
    is_framed = False
    for line in output.splitlines():
        if line.strip() == "!!":
            is_framed = not is_framed
        elif not is_framed and _WARNING.search(line) is None:
            yield line
