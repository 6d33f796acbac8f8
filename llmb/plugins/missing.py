# SPDX-License-Identifier: Apache-2.0
"""Finds the skipped plugin that would offer a cluster type: its install directory must not look like a mistake."""

import re
from collections.abc import Iterable

from llmb.config.cluster_type import SkippedType
from llmb.plugins.calls import Calls
from llmb.plugins.owners import Problem

_ALL_TYPES = "cluster types"  # the part of a problem of llmb_clusters


def skipped_types(name: str, problems: Iterable[Problem], calls: Calls) -> list[SkippedType]:
    """The plugins that are skipped, or whose types are, and that offer or may offer the cluster type ``name``."""
    found = []
    for one in problems:
        is_type = one.part == f"cluster type '{name}'"
        if is_type or one.part == _ALL_TYPES or (not one.part and not calls.manager.has_plugin(one.source)):
            found.append(
                SkippedType(source=one.source, reason=one.reason, offers=is_type or _mentions(one.source, name, calls))
            )
    return found


def _mentions(source: str, name: str, calls: Calls) -> bool:
    """Whether the module of a plugin, which need not be importable, has ``name`` as a text."""
    own = calls.found.get(source)
    file = own.find_file() if own is not None else None
    try:
        text = file.read_text(encoding="utf-8", errors="replace") if file is not None else ""
    except OSError:
        return False
    return re.search(rf"""["']{re.escape(name)}["']""", text) is not None
