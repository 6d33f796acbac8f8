# SPDX-License-Identifier: Apache-2.0
"""The folders of an environment, the inventory of its packages, and what has changed since it was made.

``venvs/<name>`` is a link to a folder of one build, so a build that was killed is never used, a pip that outlives its
installer writes into an unused folder, and a build that fails leaves the environment in use unchanged.
"""

import base64
import csv
import hashlib
import os
import re
import shutil
import uuid
from dataclasses import dataclass
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

from llmb.errors import Fault, LlmbError
from llmb.text.names import listed
from llmb_installer.step import Facts
from llmb_installer.venv.lock import normalized

DAMAGED = "package-damaged"  # the code of a fault that reinstalling the package of its key repairs
_SHOWN = 3  # files that a message names


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """An installed package: its name and version, and its folder of metadata."""

    name: str
    version: str
    info: Path


def folder_of(name: str, install: Path) -> Path:
    """The link to the environment ``name``."""
    return install / "venvs" / name


def new_folder(link: Path) -> Path:
    return link.with_name(f".{link.name}.{uuid.uuid4().hex[:8]}")


def require_ours(link: Path) -> None:
    """Raise LlmbError where ``link`` is a file, a folder, or a link that llmb-install did not make."""
    if not os.path.lexists(link) or (link.is_symlink() and _is_build(link.name, str(link.readlink()))):
        return
    what = "a link to another place" if link.is_symlink() else "a folder" if link.is_dir() else "a file"
    message = f"{link} is {what} that llmb-install did not make"
    raise LlmbError(message, hint="move it to another place", code="path-taken", value=str(link))


def _is_build(name: str, folder: str) -> bool:
    return re.fullmatch(rf"\.{re.escape(name)}\.[0-9a-f]{{8}}", folder) is not None


def switch(link: Path, folder: Path) -> None:
    """Atomically make ``link`` lead to ``folder``. Raises LlmbError, also where ``link`` is not ours."""
    require_ours(link)
    new = link.with_name(f"{folder.name}.link")
    try:
        new.symlink_to(folder.name)
        new.replace(link)
    except OSError as error:
        new.unlink(missing_ok=True)
        message = f"{link} cannot be replaced: {error.strerror}"
        raise LlmbError(message, hint="move it to another place") from error


def sweep(venvs: Path, name: str) -> None:
    """Remove the builds of ``name`` that are not in use."""
    link = venvs / name
    used = link.readlink().name if link.is_symlink() else None
    for path in venvs.glob(f".{name}.*"):
        if path.name != used and _is_build(name, path.name.removesuffix(".link")):
            path.unlink() if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)


def site_packages(folder: Path) -> list[Path]:
    """The folders that hold the packages of the environment ``folder``."""
    return sorted(path for path in folder.glob("lib/python3*/site-packages") if path.is_dir())


def packages(folder: Path) -> dict[str, Package]:
    """The packages of the environment ``folder`` by normalized name, without those whose metadata is damaged."""
    return {name: one for base in site_packages(folder) for name, one in packages_in(base).items()}


def packages_in(base: Path) -> dict[str, Package]:
    found = {}
    for info in sorted([*base.glob("*.dist-info"), *base.glob("*.egg-info")]):
        if (info / "METADATA").is_file() or (info / "PKG-INFO").is_file():
            metadata = PathDistribution(info).metadata
            if metadata["Name"] and metadata["Version"]:
                found[normalized(metadata["Name"])] = Package(
                    name=metadata["Name"], version=metadata["Version"], info=info
                )
    return found


def inventory(folder: Path) -> dict[str, Any]:
    """The packages with their versions, pip's list of them, and a digest of the list of files of each."""
    found = packages(folder)
    named = sorted((one.name, one.version) for one in found.values())
    return {
        "packages": dict(named),
        "freeze": [f"{name}=={version}" for name, version in named],
        "records": {key: digest for key, one in sorted(found.items()) if (digest := _record_digest(one.info))},
    }


def is_there(name: str, facts: Facts, install: Path) -> bool:
    """Whether the environment in use is the recorded build, with a Python behind it."""
    path, folder = folder_of(name, install), facts.get("folder")
    if not path.is_symlink() or path.readlink() != Path(str(folder)):
        return False
    if facts.get("made_by") != "conda" and not (path / "pyvenv.cfg").is_file():
        return False
    python = path / "bin" / "python"  # built on a node, it may lead to a Python that only nodes have
    return python.exists() or (facts.get("where", "here") != "here" and python.is_symlink())


def verify(name: str, facts: Facts, install: Path, *, deep: bool) -> list[Fault]:
    """What differs from the recorded build: link, packages, files; ``deep`` reads the contents of the files."""
    path = folder_of(name, install)
    if not is_there(name, facts, install):
        message = f"{path} is not the environment that was built, or its Python is missing"
        return [Fault(message=message, code="environment-replaced", value=str(path))]
    return faults(path, facts, deep=deep)


def faults(folder: Path, facts: Facts, *, deep: bool) -> list[Fault]:
    """The differences of the environment ``folder`` from the inventory in ``facts``.

    A fault with the code DAMAGED has the package's normalized name as key and its files, relative to ``folder``, as
    value.
    """
    now, records = packages(folder), facts.get("records", {})
    before = {normalized(name): (name, version) for name, version in facts.get("packages", {}).items()}
    found, listed = [], dict[Path, set[str]]()
    for key in sorted(now.keys() | before.keys()):
        if key not in before:
            message = f"package {now[key].name} {now[key].version} was added"
            found.append(Fault(message=message, code="package-added", key=key))
            continue
        name, version = before[key]
        if key not in now:
            found.append(_damage(key, f"{name} {version}", "is not installed, or its metadata is damaged", ()))
        elif now[key].version != version:
            message = f"package {name} is version {now[key].version}, expected {version}"
            found.append(Fault(message=message, code="package-version", key=key, value=now[key].version))
        elif key in records and _record_digest(now[key].info) != records[key]:
            found.append(_damage(key, f"{name} {version}", "has another list of files", (now[key].info / "RECORD",)))
        else:
            missing, changed = _changes(now[key].info, listed, deep=deep)
            lists = {"is missing": missing, "was changed": changed}
            names = [text for word, paths in lists.items() if (text := _named(paths, word, folder))]
            if names:
                shown = tuple(str(path.relative_to(folder)) for path in (*missing, *changed))
                found.append(_damage(key, f"{name} {version}:", "; ".join(names), shown))
    if "files" in facts and "records" not in facts and _digest_of_all(folder) != facts["files"] and not found:
        found.append(Fault(message="a package's list of files was changed", code="records-changed"))
    return found


def _damage(key: str, package: str, text: str, paths: tuple[Any, ...]) -> Fault:
    return Fault(message=f"package {package} {text}", code=DAMAGED, key=key, value=tuple(map(str, paths)))


def _named(paths: list[Path], word: str, folder: Path) -> str:
    names = listed([str(path.relative_to(folder)) for path in paths], _SHOWN)
    if len(paths) < 2:
        return f"{names} {word}" if paths else ""
    return f"{len(paths)} files: {names} {word.replace('is ', 'are ').replace('was ', 'were ')}"


def _changes(info: Path, listed: dict[Path, set[str]], *, deep: bool) -> tuple[list[Path], list[Path]]:
    """The files of a package that are missing, and those with other contents where ``deep``."""
    missing, changed = [], []
    for row, stated in rows(info / "RECORD"):
        path = Path(os.path.normpath(info.parent / row))
        if path.parent not in listed:  # a network file system lists a folder quicker than it finds its files
            listed[path.parent] = _files_in(path.parent)
        if path.name not in listed[path.parent]:
            missing.append(path)
        elif deep and stated and _sha256(path) != stated:
            changed.append(path)
    return sorted(missing), sorted(changed)


def _files_in(folder: Path) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if entry.is_file()}
    except (FileNotFoundError, NotADirectoryError):
        return set()


def rows(record: Path) -> list[tuple[str, str]]:
    """The files that a RECORD lists, with the sha256 that it states (base64, may be empty).

    Bytecode is omitted: Python rewrites it.
    """
    if not record.is_file():
        return []
    try:
        with record.open(encoding="utf-8", errors="replace", newline="") as stream:
            found = [row for row in csv.reader(stream) if row and not row[0].endswith(".pyc")]
    except csv.Error:  # damaged
        return []
    return [(row[0], row[1].removeprefix("sha256=") if len(row) > 1 else "") for row in found]


def _record_digest(info: Path) -> str:
    record = info / "RECORD"
    return hashlib.sha256(record.read_bytes()).hexdigest() if record.is_file() else ""


def _digest_of_all(folder: Path) -> str:
    """The digest of all lists of files that earlier releases recorded."""
    total = hashlib.sha256()
    for path in sorted(path for base in site_packages(folder) for path in base.glob("*.dist-info/RECORD")):
        total.update(path.parent.name.encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
