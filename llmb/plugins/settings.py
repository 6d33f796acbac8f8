# SPDX-License-Identifier: Apache-2.0
"""Reads the settings of plugins: the sections of ``plugins`` in cluster_config.yaml."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from llmb.core.names import nearest
from llmb.core.yamlfile import Document
from llmb.errors import Fault, InputFaults, LlmbError
from llmb.plan.locate import CONFIG_FILE
from llmb.plugins.sources import FILE, FOLDERS_VARIABLE

SECTION = "plugins"  # of cluster_config.yaml: by distribution, or by distribution:entry

Sections = Mapping[str, Any]  # each a mapping or None where it is right
Kind = Callable[[str], type | None]  # the dataclass of a plugin's settings; None if it takes none


def key_of(sections: Iterable[str], source: str) -> str | None:
    """Return the key of the section of the plugin ``source``, or None."""
    return next((key for key in sections if _names(key, source)), None)


def _names(key: str, source: str) -> bool:
    return key == source or normalized(key) == normalized(source.partition(":")[0])


def normalized(distribution: str) -> str:
    """Return the name of a distribution as all its spellings have it in common."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def read_own(sections: Sections, source: str, kind: type) -> object:
    """Return the settings of the plugin ``source``, a ``kind``. Raises InputFaults."""
    from llmb.core import typed

    key = key_of(sections, source) or source
    section = sections.get(key)
    data = {SECTION: {**sections, key: {} if section is None else section}}
    return typed.read(kind, Document(name=CONFIG_FILE, data=data), (SECTION, key))


def faults_of(document: Document, sources: Sequence[str], kind: Kind) -> dict[str, list[Fault]]:
    """Return the faults of each plugin's section in ``document``.

    Sections of unknown plugins have none.
    """
    sections = document.data.get(SECTION) if isinstance(document.data, dict) else None
    by_plugin: dict[str, list[Fault]] = {}
    for key, section in sections.items() if isinstance(sections, dict) else ():
        for source in (
            source for source in sources if section is not None and _names(str(key), source)
        ):
            try:
                faults = _faults_of_section(document, str(key), section, source, kind(source))
            except LlmbError:  # its launches are refused
                continue
            if faults:
                by_plugin[source] = [*by_plugin.get(source, ()), *faults]
    return by_plugin


def _faults_of_section(
    document: Document, key: str, section: object, source: str, kind: type | None
) -> list[Fault]:
    from llmb.core import typed

    path = (SECTION, key)
    if kind is not None:
        return typed.read_in_part(kind, document, path)[1]
    if section == {}:
        return []
    return [
        Fault(
            place=document.place(path),
            message=f"{SECTION}.{key}: plugin {source} takes no settings",
            hint=f"write '{key}: {{}}', or remove it",
            code="key-unknown",
            key=f"{SECTION}.{key}",
            value=next(iter(section)) if isinstance(section, dict) else section,
        )
    ]


def require_named(
    document: Document, sections: Sections, sources: Sequence[str], reasons: Mapping[str, str]
) -> None:
    """Raise InputFaults for sections of plugins that are skipped or not installed here.

    ``reasons``: by source, why plugins are skipped. A launch without them could differ from what
    the cluster wants.
    """
    faults = []
    for key in sections:
        if any(_names(key, source) for source in sources if source not in reasons):
            continue
        skipped = next((source for source in reasons if _names(key, source)), None)
        if skipped is not None:
            reason, hint = (
                f"plugin {skipped} is skipped: {reasons[skipped]}",
                f"remove '{key}' to run without it",
            )
        else:
            reason, hint = f"no plugin '{key}' is installed here", _nearest_hint(key, sources)
        place, path = document.place((SECTION, key)), f"{SECTION}.{key}"
        code = "plugin-missing" if skipped is None else "plugin-skipped"
        faults.append(
            Fault(
                place=place, message=f"{path}: {reason}", hint=hint, code=code, key=path, value=key
            )
        )
    if faults:
        raise InputFaults(faults)


def _nearest_hint(key: str, sources: Sequence[str]) -> str:
    """The fix for a section of an unknown plugin: the nearest one, or which are known.

    No command that installs it: a name with a typing error may be a stranger's package.
    """
    is_file = key.startswith(f"{FILE}:")
    names = dict.fromkeys(
        source if source.startswith(f"{FILE}:") else source.partition(":")[0] for source in sources
    )
    close = nearest(key, names)
    if close is not None:
        return f"did you mean '{close}'?"
    fix = (
        f"set {FOLDERS_VARIABLE} to its folder" if is_file else f"installed are {', '.join(names)}"
    )
    return f"{fix}; remove '{key}' to run without it"
