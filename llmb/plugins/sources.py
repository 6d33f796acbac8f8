# SPDX-License-Identifier: Apache-2.0
"""Finds plugins: entry points of distributions, and files in folders: Python, or YAML alone."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from llmb.core import files
from llmb.core.values import dataclass
from llmb.plugins.entry_points import PluginEntry, entries_of
from llmb.plugins.owners import Problem

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "llmb"
FOLDERS_VARIABLE = "LLMB_PLUGINS"
FILE = "file"  # in place of a distribution's name
BENCHMARKS = "benchmarks"  # the folder of an install directory with benchmarks in YAML
_BENCHMARK = "benchmark.yaml"
_MODULE = "llmb_file_"  # begins the modules of files
# The distributions whose plugins belong to llmb: they keep a name that another plugin claims too.
OWN_DISTRIBUTIONS = frozenset(
    [
        "llmb",
        "llmb-accept",
        "llmb-deepseek",
        "llmb-exemplar",
        "llmb-export",
        "llmb-gpt-oss",
        "llmb-kimi",
        "llmb-llama31",
        "llmb-microbench",
        "llmb-nemotron3",
        "llmb-nemotron4",
        "llmb-nemotronh",
        "llmb-nodes",
        "llmb-qwen3",
        "llmb-runai",
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSource:
    """A plugin that can be loaded, by its ``name``, ``distribution:entry`` or ``file:NAME.py``."""

    name: str
    distribution: str
    #: Its top module.
    owner: str
    #: Returns the file of its module, without an import.
    find_file: Callable[[], Path | None] = field(compare=False)
    #: May do anything.
    load: Callable[[], object] = field(compare=False)

    @property
    def is_own(self) -> bool:
        return self.distribution in OWN_DISTRIBUTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlBenchmarks:
    """A plugin without code: each of its ``files`` is a workload with ``launch`` and ``parse``."""

    files: tuple[Path, ...]


# of published figures, which are beside the YAML of their workload
_IS_COMPANION = re.compile(r"^tables\s*:", re.MULTILINE)
_IS_WORKLOAD = re.compile(r"^key\s*:", re.MULTILINE)


def benchmark_files(folder: Path) -> list[Path]:
    """Return ``NAME.yaml`` and ``NAME/benchmark.yaml`` of a folder. Raises OSError.

    Names that begin with ``_`` or ``.`` are none, nor are published figures, nor the YAML beside a
    module of its name.
    """
    paths = sorted(path for path in folder.iterdir() if path.name[0] not in "_.")
    alone = [
        path
        for path in paths
        if path.suffix == ".yaml"
        and path.with_suffix(".py") not in paths
        and not _is_companion(path)
    ]
    return [*alone, *(path / _BENCHMARK for path in paths if (path / _BENCHMARK).is_file())]


def _is_companion(path: Path) -> bool:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # reading it says so
        return False
    return _IS_COMPANION.search(text) is not None and _IS_WORKLOAD.search(text) is None


def as_plugin(loaded: object) -> object:
    """Return the loaded plugin, or of a package without hooks the benchmarks in its YAML."""
    folders = getattr(loaded, "__path__", None)
    if folders is None or any(name.startswith("llmb_") for name in vars(loaded)):
        return loaded
    paths = [path for folder in folders for path in benchmark_files(Path(folder))]
    return YamlBenchmarks(files=tuple(paths)) if paths else loaded


def all_sources(
    entries: Iterable[EntryPoint] | None = None,
) -> tuple[list[PluginSource], list[Problem]]:
    """Return every plugin, llmb's own first, and the problems of LLMB_PLUGINS."""
    installed = (
        [_of_entry(entry, entry.distribution) for entry in entries_of(GROUP)]
        if entries is None
        else [
            _of_entry(entry, entry.dist.name if entry.dist is not None else "unknown")
            for entry in entries
        ]
    )
    folders = os.environ.get(FOLDERS_VARIABLE, "")
    files, unusable = _in_folders(folders) if folders and entries is None else ([], [])
    return sorted(
        [*installed, *files], key=lambda source: (not source.is_own, source.name)
    ), unusable


def _of_entry(entry: PluginEntry | EntryPoint, name: str) -> PluginSource:
    """Return the plugin of an entry point of the distribution ``name``."""
    module = entry.value.partition(":")[0].strip()

    def find_file() -> Path | None:
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError, AttributeError):
            return None
        return Path(spec.origin) if spec is not None and spec.origin is not None else None

    return PluginSource(
        name=f"{name}:{entry.name}",
        distribution=re.sub(r"[-_.]+", "-", name).lower(),
        owner=module.partition(".")[0],
        find_file=find_file,
        load=entry.load,
    )


def _in_folders(text: str) -> tuple[list[PluginSource], list[Problem]]:
    """Return the files ``NAME.py`` and the benchmarks of the folders, the first of each name.

    Files that begin with ``_`` or ``.`` are no plugins.
    """
    sources: dict[str, PluginSource] = {}
    paths: dict[str, Path] = {}
    unusable: list[Problem] = []
    for folder in dict.fromkeys(files.expand(word) for word in text.split(os.pathsep) if word):
        try:
            modules = sorted(
                path
                for path in folder.iterdir()
                if path.suffix == ".py" and path.name[0] not in "_."
            )
            modules += benchmark_files(folder)
        except OSError as error:
            reason = f"{folder}: {error.strerror or error}"
            unusable.append(Problem(source=FOLDERS_VARIABLE, code="folder-unusable", reason=reason))
            continue
        for path in modules:
            name = f"{FILE}:{path.relative_to(folder)}"
            if name in sources:
                reason = f"{paths[name]} has the same name; rename one of them"
                unusable.append(
                    Problem(source=f"{FILE}:{path}", code="name-duplicate", reason=reason)
                )
            else:
                sources[name], paths[name] = of_file(path.absolute(), name), path
    return list(sources.values()), unusable


def benchmarks_in(folder: Path) -> list[PluginSource]:
    """Return the benchmarks of a folder, which may not exist."""
    with suppress(OSError):
        return [
            of_file(path, f"{FILE}:{path.relative_to(folder)}") for path in benchmark_files(folder)
        ]
    return []


def of_file(path: Path, name: str) -> PluginSource:
    """Return the plugin of a file: a Python module, or a benchmark in YAML."""
    if path.suffix == ".yaml":
        only = YamlBenchmarks(files=(path,))
        return PluginSource(
            name=name, distribution=FILE, owner="", find_file=lambda: path, load=lambda: only
        )
    return _of_module(path, name)


def _of_module(path: Path, name: str) -> PluginSource:
    module = f"{_MODULE}{path.stem}".replace(".", "_")

    def load() -> object:
        spec = importlib.util.spec_from_file_location(module, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} is not a Python file")
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[module] = loaded
        try:
            spec.loader.exec_module(loaded)
        except BaseException:
            sys.modules.pop(module, None)
            raise
        return loaded

    return PluginSource(
        name=name, distribution=FILE, owner=module, find_file=lambda: path, load=load
    )
