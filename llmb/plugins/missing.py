# SPDX-License-Identifier: Apache-2.0
"""Finds the skipped plugin that would offer an unknown cluster type or command."""

import re
from collections.abc import Iterable, Sequence

from llmb.config.cluster_type import SkippedType
from llmb.plugins.calls import Calls
from llmb.plugins.owners import Problem

_ALL_TYPES, _ALL_COMMANDS = "cluster types", "commands"  # the parts of problems of llmb_clusters, llmb_commands


def skipped_types(name: str, problems: Iterable[Problem], calls: Calls) -> list[SkippedType]:
    """The plugins that are skipped, or whose types are, and that offer or may offer the cluster type ``name``."""
    found = []
    for one in problems:
        is_type = one.part == f"cluster type '{name}'"
        if is_type or _may_offer(one, _ALL_TYPES, calls):
            found.append(
                SkippedType(source=one.source, reason=one.reason, offers=is_type or _mentions(one.source, name, calls))
            )
    return found


def skipped_commands(name: str, problems: Sequence[Problem], calls: Calls) -> tuple[list[str], list[str]]:
    """Why nobody has the command ``name``, which plugins offer; and the skipped plugins that may offer it."""
    own = [one for one in problems if one.part == f"command '{name}'"]
    others = [str(one) for one in problems if _may_offer(one, _ALL_COMMANDS, calls)]
    if len(own) > 1 and all(one.code == "name-duplicate" for one in own):
        sources = " and ".join(one.source for one in own)
        return [f"plugins {sources} offer it, so none of them is used: uninstall one"], others
    return [str(one) for one in own], others


def _may_offer(problem: Problem, part: str, calls: Calls) -> bool:
    """Whether all of a plugin is skipped, or ``part`` of it."""
    return problem.part == part or (not problem.part and not calls.manager.has_plugin(problem.source))


def _mentions(source: str, name: str, calls: Calls) -> bool:
    """Whether the module of a plugin, which need not be importable, has ``name`` as a text."""
    own = calls.found.get(source)
    file = own.find_file() if own is not None else None
    try:
        text = file.read_text(encoding="utf-8", errors="replace") if file is not None else ""
    except OSError:
        return False
    return re.search(rf"""["']{re.escape(name)}["']""", text) is not None
