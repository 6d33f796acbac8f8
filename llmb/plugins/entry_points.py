# SPDX-License-Identifier: Apache-2.0
"""Reads the entry points of installed distributions.

importlib.metadata does it too, but its import takes nearly as long as that of click, since it needs
modules for e-mail and archives. It is asked if distributions can be in anything but folders.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path

from llmb.core.values import dataclass

_SUFFIXES = (".dist-info", ".egg-info")  # of folders about distributions
_STATED = re.compile(r"^(Name|Version):[ \t]*(\S+)", re.MULTILINE | re.IGNORECASE)
_OBJECT = re.compile(r"([\w.]+)(?:\s*:\s*([\w.]+))?(?:\s*\[.*\])?")
_ARCHIVES = (".egg", ".zip", ".whl")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginEntry:
    """The entry point ``name`` of a distribution."""

    name: str
    #: ``module`` or ``module:object``
    value: str
    distribution: str
    #: Of the distribution, empty if unknown.
    version: str

    def load(self) -> object:
        """Import the module and return it, or its object. Raises whatever the import raises."""
        match = _OBJECT.fullmatch(self.value)
        if match is None:
            raise ImportError(f"entry point {self.name} = {self.value}: this names no module")
        loaded: object = import_module(match[1])
        for attribute in filter(None, (match[2] or "").split(".")):
            loaded = getattr(loaded, attribute)
        return loaded


def entries_of(group: str) -> list[PluginEntry]:
    """Return the entry points of ``group``.

    If a distribution is in several folders of ``sys.path``, the first one counts.
    """
    finders = [finder for finder in sys.meta_path if finder is not PathFinder]
    archives = [path for path in sys.path if path.endswith(_ARCHIVES) and Path(path).exists()]
    if archives or any(hasattr(finder, "find_distributions") for finder in finders):
        return _entries_of_importlib(group)
    return list(_entries_in_folders(group))


def _entries_of_importlib(group: str) -> list[PluginEntry]:
    from importlib.metadata import entry_points

    return [
        PluginEntry(
            name=entry.name,
            value=entry.value,
            distribution=entry.dist.name if entry.dist is not None else "unknown",
            version=entry.dist.version if entry.dist is not None else "",
        )
        for entry in entry_points(group=group)
    ]


def _entries_in_folders(group: str) -> Iterator[PluginEntry]:
    names_seen = set()
    for folder in sys.path:
        for path in _information(Path(folder)):
            distribution = re.sub(r"[-_.]+", "-", path.stem.partition("-")[0]).lower()
            if distribution in names_seen:
                continue
            names_seen.add(distribution)
            if pairs := _pairs(text_of(path / "entry_points.txt"), group):
                stated = stated_in(path)
                name, version = stated.get("name", distribution), stated.get("version", "")
                for key, value in pairs:
                    yield PluginEntry(name=key, value=value, distribution=name, version=version)


def _information(folder: Path) -> list[Path]:
    """Return the folders about distributions in a folder, which need not exist."""
    try:
        return [path for path in folder.iterdir() if path.suffix in _SUFFIXES]
    except OSError:
        return []


def text_of(path: Path) -> str:
    """Return the text of a file, empty for one that does not exist or cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def stated_in(folder: Path) -> dict[str, str]:
    """Return the ``name`` and ``version`` of a distribution that a folder about it states, if it
    does.
    """
    text = text_of(folder / "METADATA") or text_of(folder / "PKG-INFO")
    headers = text.partition("\n\n")[0]
    return {key.lower(): value for key, value in reversed(_STATED.findall(headers))}


def _pairs(text: str, group: str) -> list[tuple[str, str]]:
    """Return the names and values in a group's section of an ``entry_points.txt``."""
    pairs, section = [], ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[]").strip()
        elif section == group and line and line[0] not in "#;" and "=" in line:
            name, _, value = line.partition("=")
            pairs.append((name.strip(), value.strip()))
    return pairs
