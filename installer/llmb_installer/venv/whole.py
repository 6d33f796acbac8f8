# SPDX-License-Identifier: Apache-2.0
"""What an environment holds, by the records of its packages, and what has changed since."""

import base64
import csv
import hashlib
import importlib.metadata
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmb_installer.step import Facts
from llmb_installer.venv import location

_SHOWN = 3  # files that a sentence names


def folder_of(name: str, install: Path) -> Path:
    """Where the link to the environment ``name`` is."""
    return install / "venvs" / name


def is_there(name: str, facts: Facts, install: Path) -> bool:
    """Whether the environment in use is the one built then, with a Python behind it."""
    path, folder = folder_of(name, install), facts.get("folder")
    if not path.is_symlink() or path.readlink() != Path(str(folder)):
        return False
    if facts.get("made_by") != "conda" and not (path / "pyvenv.cfg").is_file():
        return False
    python = path / "bin" / "python"  # built on a node, it may lead to a Python that is only there
    return python.exists() or (facts.get("where", "here") != "here" and python.is_symlink())


def verify(name: str, facts: Facts, install: Path, *, deep: bool) -> list[str]:
    """What differs from what was installed: the link, the packages, their files; ``deep`` with their contents."""
    if not is_there(name, facts, install):
        return [f"{folder_of(name, install)} is not the environment that was built, or its Python is gone"]
    return faults(folder_of(name, install), facts, deep=deep)


def inventory(folder: Path) -> dict[str, Any]:
    """The packages with their versions, pip's list of them, and a digest of their own lists of files."""
    found = sorted((_name(dist), dist.version) for dist in _packages(folder))
    return {
        "packages": dict(found),
        "freeze": [f"{name}=={version}" for name, version in found],
        "files": _digest(folder),
    }


def faults(folder: Path, facts: Facts, *, deep: bool) -> list[str]:
    """What is wrong with an environment of which ``facts`` hold the inventory; ``deep`` reads every file."""
    now, before = {_name(dist): dist.version for dist in _packages(folder)}, facts.get("packages", {})
    found = [f"package {name} {before[name]} is missing" for name in before.keys() - now.keys()]
    found += [f"package {name} {now[name]} was added" for name in now.keys() - before.keys()]
    found += [
        f"package {name} is {now[name]} instead of {before[name]}"
        for name in before.keys() & now.keys()
        if now[name] != before[name]
    ]
    if found:
        return sorted(found)
    if _digest(folder) != facts.get("files", _digest(folder)):
        return ["a package's list of its files was changed"]
    return _file_faults(folder, deep=deep)


def _file_faults(folder: Path, *, deep: bool) -> list[str]:
    missing, changed = [], []
    for path, stated in _files(folder):
        if not path.is_file():
            missing.append(path)
        elif deep and stated and _sha256(path) != stated:
            changed.append(path)
    return [*_said("missing", missing, folder), *_said("changed", changed, folder)]


def _said(word: str, paths: list[Path], folder: Path) -> list[str]:
    if not paths:
        return []
    names = ", ".join(str(path.relative_to(folder)) for path in sorted(paths)[:_SHOWN])
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return [f"{len(paths)} file{'s' * (len(paths) != 1)} {word}: {names}{more}"]


def _packages(folder: Path) -> Iterator[importlib.metadata.Distribution]:
    return iter(importlib.metadata.distributions(path=[str(base) for base in location.site_packages(folder)]))


def _name(dist: importlib.metadata.Distribution) -> str:
    return str(dist.metadata["Name"])


def _records(folder: Path) -> list[Path]:
    return sorted(path for base in location.site_packages(folder) for path in base.glob("*.dist-info/RECORD"))


def _digest(folder: Path) -> str:
    total = hashlib.sha256()
    for path in _records(folder):
        total.update(path.parent.name.encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Every file that a package's RECORD names, and the sha256 that it states (base64, may be empty).

    Bytecode is left out: Python writes it anew as it likes.
    """
    for record in _records(folder):
        with record.open(encoding="utf-8", newline="") as stream:
            for row in csv.reader(stream):
                if row and not row[0].endswith(".pyc"):
                    stated = re.fullmatch(r"sha256=(.+)", row[1] if len(row) > 1 else "")
                    yield record.parent.parent / row[0], stated[1] if stated else ""


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
