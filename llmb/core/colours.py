# SPDX-License-Identifier: Apache-2.0
"""Colours of messages, verdicts and states in a terminal, and links to files.

Text is coloured last, when it has its final width, so that nothing else has to know about escape
sequences. The words stay: no colour is needed to understand a text.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import click

_GOOD, _DOUBTFUL, _BAD, _GOING = "green", "yellow", "red", "cyan"
_COLOURS = {
    **dict.fromkeys(("PASS", "COMPLETED", "Success"), _GOOD),
    **dict.fromkeys(("WARN", "SUSPICIOUS", "INCONCLUSIVE"), _DOUBTFUL),
    **dict.fromkeys(("CANCELLED", "Cancelled", "LOST", "NOT_SUBMITTED"), _DOUBTFUL),
    **dict.fromkeys(("PREEMPTED", "REVOKED"), _DOUBTFUL),
    **dict.fromkeys(("FAIL", "INVALID", "FAILED", "Failed", "TIMEOUT", "BOOT_FAIL"), _BAD),
    **dict.fromkeys(("DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY"), _BAD),
    **dict.fromkeys(("RUNNING", "Running"), _GOING),
    **{"ok": _GOOD, "warning": _DOUBTFUL, "wrong": _BAD, "missing": _BAD},  # of llmb-install doctor
}
_LABELS = {"error": _BAD, "warning": _DOUBTFUL, "hint": _GOING, "note": _GOING}
_LABEL = re.compile(rf"^({'|'.join(_LABELS)}):(?= )", re.MULTILINE)
# A word in capitals is a verdict or state wherever it is. "Failed" and the like are words of
# sentences too, and coloured only if they fill a cell of a table.
_CAPITALS = "|".join(word for word in _COLOURS if word.isupper())
_OTHERS = "|".join(word for word in _COLOURS if not word.isupper())
_WORD = re.compile(rf"(?<![\w./=-])(?:{_CAPITALS})(?![\w/=-])|(?<=  )(?:{_OTHERS})(?=  |\n|$)")


def paint(text: str) -> str:
    """Colour the verdicts and states in ``text``, and the word that begins a message."""
    text = _LABEL.sub(lambda match: _styled(f"{match[1]}:", _LABELS[match[1]]), text)
    return _WORD.sub(lambda match: _styled(match[0], _COLOURS[match[0]]), text)


def _styled(text: str, colour: str) -> str:
    return click.style(text, fg=colour, bold=colour == _BAD or None)


def link(text: str, paths: Iterable[Path]) -> str:
    """Make the first mention of each of ``paths`` in ``text`` a link to its file (OSC 8)."""
    for path in paths:
        target = path.absolute().as_uri()
        text = text.replace(str(path), f"\x1b]8;;{target}\x1b\\{path}\x1b]8;;\x1b\\", 1)
    return text
