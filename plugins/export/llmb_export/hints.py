# SPDX-License-Identifier: Apache-2.0
"""Hints for formats that people ask other commands for, as `llmb-run results --format ctrf`."""

import shlex
from collections.abc import Sequence

# Words that people try, and the command of `llmb-run export` that does it.
_COMMANDS = {
    "openmetrics": "openmetrics",
    "prometheus": "openmetrics",
    "ctrf": "ctrf",
    "github": "github",
    "webhook": "webhook",
    "grafana": "dashboard",
    "dashboard": "dashboard",
}


def hint_for(program: str, word: str, words: Sequence[str]) -> str | None:
    """Return the whole command that writes the format ``word``, or None for another word.

    ``words`` is the command line behind the program. RUNS and options of `llmb-run results` are
    kept.
    """
    command = _COMMANDS.get(word)
    if program != "llmb-run" or command is None:
        return None
    kept = [] if command == "dashboard" else _after_results(words, word)
    return f"write: {shlex.join([program, 'export', command, *kept])}"


def _after_results(words: Sequence[str], word: str) -> list[str]:
    """Return the words behind ``results`` without ``--format``, or none for another command."""
    if words[:1] != ("results",):
        return []
    kept = list(words[1:])
    if f"--format={word}" in kept:
        kept.remove(f"--format={word}")
    elif "--format" in kept:
        place = kept.index("--format")
        del kept[place : place + 2]
    return [] if _UNKNOWN.intersection(part.partition("=")[0] for part in kept) else kept


# Options of `llmb-run results` that `llmb-run export` does not have.
_UNKNOWN = frozenset({"--exclude-cancelled", "--full-names", "--price"})
