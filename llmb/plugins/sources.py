# SPDX-License-Identifier: Apache-2.0
"""Where plugins come from: entry points of installed distributions, and files in the folders of LLMB_PLUGINS."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from llmb.plugins.owners import Problem
from llmb.system import files

GROUP = "llmb"
FOLDERS_VARIABLE = "LLMB_PLUGINS"
FILE = "file"  # in place of a distribution's name
_MODULE = "llmb_file_"  # begins the modules of files
# The distributions whose plugins belong to llmb: they keep a name that another plugin claims too.
OWN_DISTRIBUTIONS = frozenset({"llmb", "llmb-llama31", "llmb-microbench", "llmb-nemotron4", "llmb-nemotronh"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A plugin that can be loaded, by its ``name``, ``distribution:entry`` or ``file:NAME.py``.

    ``owner``: its top module; ``find_file``: the file of its module, without importing that. ``load`` may do anything.
    """

    name: str
    distribution: str
    owner: str
    find_file: Callable[[], Path | None] = field(compare=False)
    load: Callable[[], object] = field(compare=False)

    @property
    def is_own(self) -> bool:
        return self.distribution in OWN_DISTRIBUTIONS


def all_sources(entries: Iterable[EntryPoint] | None = None) -> tuple[list[Source], list[Problem]]:
    """Every plugin, llmb's own first, then in alphabetical order; and what LLMB_PLUGINS names in vain."""
    found = [_of_entry(entry) for entry in (entry_points(group=GROUP) if entries is None else entries)]
    folders = os.environ.get(FOLDERS_VARIABLE, "")
    files, unusable = _in_folders(folders) if folders and entries is None else ([], [])
    return sorted([*found, *files], key=lambda source: (not source.is_own, source.name)), unusable


def _of_entry(entry: EntryPoint) -> Source:
    name = entry.dist.name if entry.dist is not None else "unknown"
    module = entry.value.partition(":")[0].strip()

    def find_file() -> Path | None:
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError, AttributeError):
            return None
        return Path(spec.origin) if spec is not None and spec.origin is not None else None

    return Source(
        name=f"{name}:{entry.name}",
        distribution=re.sub(r"[-_.]+", "-", name).lower(),
        owner=module.partition(".")[0],
        find_file=find_file,
        load=entry.load,
    )


def _in_folders(text: str) -> tuple[list[Source], list[Problem]]:
    """The files ``NAME.py`` of the folders, unless they begin with ``_`` or ``.``; the first of each name is used."""
    found: dict[str, Source] = {}
    paths: dict[str, Path] = {}
    unusable: list[Problem] = []
    for folder in dict.fromkeys(files.expand(word) for word in text.split(os.pathsep) if word):
        try:
            modules = sorted(path for path in folder.iterdir() if path.suffix == ".py" and path.name[0] not in "_.")
        except OSError as error:
            reason = f"{folder}: {error.strerror or error}"
            unusable.append(Problem(source=FOLDERS_VARIABLE, code="folder-unusable", reason=reason))
            continue
        for path in modules:
            name = f"{FILE}:{path.name}"
            if name in found:
                reason = f"{paths[name]} has the same name; rename one of them"
                unusable.append(Problem(source=f"{FILE}:{path}", code="name-duplicate", reason=reason))
            else:
                found[name], paths[name] = _of_file(path.absolute(), name), path
    return list(found.values()), unusable


def _of_file(path: Path, name: str) -> Source:
    module = f"{_MODULE}{path.stem}".replace(".", "_")

    def load() -> object:
        spec = importlib.util.spec_from_file_location(module, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} is not a Python file")
        made = importlib.util.module_from_spec(spec)
        sys.modules[module] = made
        try:
            spec.loader.exec_module(made)
        except BaseException:
            sys.modules.pop(module, None)
            raise
        return made

    return Source(name=name, distribution=FILE, owner=module, find_file=lambda: path, load=load)
