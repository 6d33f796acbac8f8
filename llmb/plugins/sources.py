# SPDX-License-Identifier: Apache-2.0
"""Finds plugins: entry points of distributions, and what folders have: modules, packages, YAML."""

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

from llmb import hookspecs
from llmb.core import files
from llmb.core.values import dataclass
from llmb.errors import LlmbError
from llmb.plugins.entry_points import PluginEntry, entries_of, text_of
from llmb.plugins.owners import Problem

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from types import ModuleType

GROUP = "llmb"
FOLDERS_VARIABLE = "LLMB_PLUGINS"
FILE = "file"  # in place of a distribution's name
BENCHMARKS = "benchmarks"  # the folder of an install directory with benchmarks in YAML
_BENCHMARK = "benchmark.yaml"
_MODULE = "llmb_file_"  # begins the modules of files
PACKAGE = "__init__.py"  # the file of a package
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
    """A plugin that can be loaded, by its ``name``: ``distribution:entry``, ``file:NAME.py`` or, of
    a package, ``file:NAME``.
    """

    name: str
    distribution: str
    #: Its top module.
    owner: str
    #: Of its distribution, empty if unknown and for a file.
    version: str = ""
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
_IMPORTED = re.compile(r"^from\s+\S+\s+import\s+(\([^)]*\)|[^\n]*)", re.MULTILINE)
_HOOKS = frozenset(name for name in vars(hookspecs) if name.startswith("llmb_"))
_QUOTED = re.compile(r"""["']([^"'\s/]+\.(?:py|yaml))["']""")


def benchmark_files(folder: Path) -> list[Path]:
    """Return ``NAME.yaml`` and ``NAME/benchmark.yaml`` of a folder. Raises OSError.

    Names that begin with ``_`` or ``.`` are none, nor are published figures.
    """
    paths = sorted(path for path in folder.iterdir() if path.name[0] not in "_.")
    alone = [path for path in paths if path.suffix == ".yaml" and not _is_companion(path)]
    return [*alone, *(path / _BENCHMARK for path in paths if (path / _BENCHMARK).is_file())]


def _is_companion(path: Path) -> bool:
    text = text_of(path)
    return _IS_COMPANION.search(text) is not None and _IS_WORKLOAD.search(text) is None


def files_to_check(path: Path) -> list[Path]:
    """Return the plugins of ``path``: a file itself, or the files of a folder. Raises OSError."""
    if not path.is_dir():
        return [path]
    alone = [path / name for name in (_BENCHMARK, PACKAGE) if (path / name).is_file()]
    return alone[:1] or plugin_files(path)


def plugin_files(folder: Path) -> list[Path]:
    """Return the modules, packages (``NAME/__init__.py``) and benchmarks of a folder, or of a
    package the package alone. Raises OSError.

    Names that begin with ``_`` or ``.`` are none. A file beside a module is a part of it if the
    module has its name as a text, as in ``with_name("workload.yaml")``, and so is the YAML of the
    module's own name. A package without hooks in its ``__init__.py`` is not a plugin.
    """
    if _has_hooks(text_of(folder / PACKAGE)):
        return [folder / PACKAGE]
    paths = sorted(path for path in folder.iterdir() if path.name[0] not in "_.")
    texts = {path: text_of(path) for path in paths if path.suffix == ".py"}
    modules = {path: text for path, text in texts.items() if _has_hooks(text)}
    parts = {name for text in modules.values() for name in _QUOTED.findall(text)}
    parts |= {path.with_suffix(".yaml").name for path in modules}
    packages = [path / PACKAGE for path in paths if _has_hooks(text_of(path / PACKAGE))]
    files_alone = [*(path for path in texts if path.name not in parts or path in modules)]
    return [
        *files_alone,
        *packages,
        *(path for path in benchmark_files(folder) if path.name not in parts),
    ]


def _has_hooks(text: str) -> bool:
    """Return True if a module's text defines hooks, or imports them from another module."""
    return "hookimpl" in text or "def llmb_" in text or _imports_hooks(text)


def _imports_hooks(text: str) -> bool:
    words = (word for names in _IMPORTED.findall(text) for word in re.findall(r"\w+", names))
    return any(word in _HOOKS for word in words)


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
        [_of_entry(entry, entry.distribution, entry.version) for entry in entries_of(GROUP)]
        if entries is None
        else [
            _of_entry(entry, "unknown")
            if entry.dist is None
            else _of_entry(entry, entry.dist.name, entry.dist.version)
            for entry in entries
        ]
    )
    folders = os.environ.get(FOLDERS_VARIABLE, "")
    files, unusable = _in_folders(folders) if folders and entries is None else ([], [])
    # files last: an installed plugin keeps its name if its folder is in LLMB_PLUGINS too
    return sorted(
        [*installed, *files],
        key=lambda source: (not source.is_own, source.distribution == FILE, source.name),
    ), unusable


def _of_entry(entry: PluginEntry | EntryPoint, name: str, version: str = "") -> PluginSource:
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
        version=version,
        find_file=find_file,
        load=entry.load,
    )


def _in_folders(text: str) -> tuple[list[PluginSource], list[Problem]]:
    """Return the plugins of the folders, the first of each name."""
    sources: dict[str, PluginSource] = {}
    paths: dict[str, Path] = {}
    unusable: list[Problem] = []
    for folder in dict.fromkeys(files.expand(word) for word in text.split(os.pathsep) if word):
        try:
            paths_here = plugin_files(folder)
        except OSError as error:
            reason = f"{folder}: {error.strerror or error}"
            unusable.append(Problem(source=FOLDERS_VARIABLE, code="folder-unusable", reason=reason))
            continue
        for path in paths_here:
            name = name_of_file(path, folder)
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
        return [of_file(path, name_of_file(path, folder)) for path in benchmark_files(folder)]
    return []


def name_of_file(path: Path, folder: Path | None = None) -> str:
    """Return the name of the plugin of a file, which is in ``folder`` or, by default, alone."""
    if path.name == PACKAGE:
        return f"{FILE}:{path.parent.name}"
    return f"{FILE}:{path.name if folder is None else path.relative_to(folder)}"


def of_file(path: Path, name: str) -> PluginSource:
    """Return the plugin of a file: a Python module, a package, or a benchmark in YAML."""
    if path.suffix == ".yaml":
        only = YamlBenchmarks(files=(path,))
        return PluginSource(
            name=name, distribution=FILE, owner="", find_file=lambda: path, load=lambda: only
        )
    return _of_module(path, name)


def _of_module(path: Path, name: str) -> PluginSource:
    is_package = path.name == PACKAGE
    module = path.parent.name if is_package else f"{_MODULE}{path.stem}".replace(".", "_")

    def load() -> object:
        if is_package and (loaded := _loaded_package(module, path)) is not None:
            return loaded
        if not is_package and not _has_hooks(text_of(path)):  # not run: it may be any program
            raise LlmbError(
                f"{path} has no hook, a function that begins with llmb_ and has @hookimpl",
                hint=f"rename a file that is no plugin: _{path.name}",
                code="hook-missing",
                value=str(path),
            )
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


def _loaded_package(module: str, path: Path) -> ModuleType | None:
    """Return the package if it is loaded. Raises LlmbError if its name is that of another module.

    It is imported by its own name, so that its modules may import each other by it.
    """
    loaded = sys.modules.get(module)
    place = getattr(loaded, "__file__", None)
    if loaded is not None and place is not None and Path(place).resolve() == path.resolve():
        return loaded
    if loaded is None and module.isidentifier() and module not in sys.stdlib_module_names:
        return None
    message = f"{path} has the name of another module, {place or module}"
    hint = "rename the folder, or uninstall the other one"
    if place is not None and Path(place).parent.name == path.parent.name:
        hint += (
            f". If it is the same plugin, pip install -e makes both one, and llmb-run plugins check"
            f" -w {module} checks the installed one"
        )
    if not module.isidentifier():
        message = f"{path}: '{module}' is not a name of a Python package"
        hint = "rename the folder: letters, digits and _"
    raise LlmbError(message, hint=hint, code="name-duplicate", value=module)
