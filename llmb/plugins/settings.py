# SPDX-License-Identifier: Apache-2.0
"""The settings of plugins: their sections of ``plugins`` in cluster_config.yaml, read into each plugin's dataclass."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from llmb.config.locate import CONFIG_FILE
from llmb.errors import Fault, InputFaults, LlmbError
from llmb.plugins.sources import FILE, FOLDERS_VARIABLE
from llmb.text.names import nearest
from llmb.text.yamlfile import Document

SECTION = "plugins"  # of cluster_config.yaml: by distribution, or by distribution:entry

Sections = Mapping[str, Any]  # each a mapping or None where it is right
Kind = Callable[[str], type | None]  # the dataclass of a plugin's settings; None if it takes none


def key_of(sections: Iterable[str], source: str) -> str | None:
    """The key of the section of the plugin ``source``; None if it has none."""
    return next((key for key in sections if _names(key, source)), None)


def _names(key: str, source: str) -> bool:
    return key == source or _plain(key) == _plain(source.partition(":")[0])


def _plain(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def read_own(sections: Sections, source: str, kind: type) -> object:
    """The settings of the plugin ``source``, of its dataclass ``kind``. Raises InputFaults for its section."""
    from llmb.text import typed

    key = key_of(sections, source) or source
    own = sections.get(key)
    data = {SECTION: {**sections, key: {} if own is None else own}}
    return typed.read(kind, Document(name=CONFIG_FILE, data=data), (SECTION, key))


def faults_of(document: Document, sources: Sequence[str], kind: Kind) -> dict[str, list[Fault]]:
    """By plugin, every fault of its section of ``plugins`` in ``document``; sections of unknown plugins have none."""
    sections = document.data.get(SECTION) if isinstance(document.data, dict) else None
    found: dict[str, list[Fault]] = {}
    for key, own in sections.items() if isinstance(sections, dict) else ():
        for source in (source for source in sources if own is not None and _names(str(key), source)):
            try:
                faults = _faults_of_section(document, str(key), own, source, kind(source))
            except LlmbError:  # its launches are refused
                continue
            if faults:
                found[source] = [*found.get(source, ()), *faults]
    return found


def _faults_of_section(document: Document, key: str, own: object, source: str, kind: type | None) -> list[Fault]:
    from llmb.text import typed

    path = (SECTION, key)
    if kind is not None:
        return typed.read_in_part(kind, document, path)[1]
    if own == {}:
        return []
    return [
        Fault(
            place=document.place(path),
            message=f"{SECTION}.{key}: plugin {source} takes no settings",
            hint=f"write '{key}: {{}}', or remove it",
            code="key-unknown",
            key=f"{SECTION}.{key}",
            value=next(iter(own)) if isinstance(own, dict) else own,
        )
    ]


def require_named(document: Document, sections: Sections, sources: Sequence[str], reasons: Mapping[str, str]) -> None:
    """Raise InputFaults for each section of a plugin that is not installed here, or that is skipped.

    ``reasons``: by source, why plugins are skipped. A launch without them could differ from what the cluster wants.
    """
    faults = []
    for key in sections:
        if any(_names(key, source) for source in sources if source not in reasons):
            continue
        skipped = next((source for source in reasons if _names(key, source)), None)
        if skipped is not None:
            why, hint = f"plugin {skipped} is skipped: {reasons[skipped]}", f"remove '{key}' to run without it"
        else:
            why, hint = f"no plugin '{key}' is installed here", _nearest_hint(key, sources)
        place, path = document.place((SECTION, key)), f"{SECTION}.{key}"
        code = "plugin-missing" if skipped is None else "plugin-skipped"
        faults.append(Fault(place=place, message=f"{path}: {why}", hint=hint, code=code, key=path, value=key))
    if faults:
        raise InputFaults(faults)


def _nearest_hint(key: str, sources: Sequence[str]) -> str:
    """The fix for a section of an unknown plugin: the nearest one, or which are known.

    No command that installs it: a name with a typing error may be a stranger's package.
    """
    is_file = key.startswith(f"{FILE}:")
    names = dict.fromkeys(source if source.startswith(f"{FILE}:") else source.partition(":")[0] for source in sources)
    close = nearest(key, names)
    if close is not None:
        return f"did you mean '{close}'?"
    known = f"set {FOLDERS_VARIABLE} to its folder" if is_file else f"installed are {', '.join(names)}"
    return f"{known}; remove '{key}' to run without it"
