# SPDX-License-Identifier: Apache-2.0
"""The folders of an environment, the inventory of its packages, and its changes since it was made.

``venvs/<name>`` is a link to a folder of one build, so a build that was killed is never used, a pip
that outlives its installer writes into an unused folder, and a build that fails leaves the
environment in use unchanged.
"""

import base64
import csv
import hashlib
import os
import re
import shutil
import uuid
from pathlib import Path
from typing import Any

from llmb.core.names import listed
from llmb.core.values import dataclass
from llmb.errors import Fault, LlmbError
from llmb.plugins.entry_points import stated_in
from llmb_installer.step import Facts
from llmb_installer.venv.lock import normalized

DAMAGED = "package-damaged"  # the code of a fault that reinstalling the package of its key repairs
_SHOWN = 3  # files that a message names


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPackage:
    """An installed package: its name and version, and its folder of metadata."""

    name: str
    version: str
    info: Path


def folder_of(name: str, install: Path) -> Path:
    """Return the link to the environment ``name``."""
    return install / "venvs" / name


def new_folder(link: Path) -> Path:
    return link.with_name(f".{link.name}.{uuid.uuid4().hex[:8]}")


def require_ours(link: Path) -> None:
    """Raise LlmbError if ``link`` is a file, a folder, or a link that llmb-install did not make."""
    if not os.path.lexists(link) or (
        link.is_symlink() and _is_build(link.name, str(link.readlink()))
    ):
        return
    kind = (
        "a link to another place"
        if link.is_symlink()
        else "a folder"
        if link.is_dir()
        else "a file"
    )
    message = f"{link} is {kind} that llmb-install did not make"
    raise LlmbError(message, hint="move it to another place", code="path-taken", value=str(link))


def _is_build(name: str, folder: str) -> bool:
    return re.fullmatch(rf"\.{re.escape(name)}\.[0-9a-f]{{8}}", folder) is not None


def switch(link: Path, folder: Path) -> None:
    """Atomically make ``link`` lead to ``folder``. Raises LlmbError, also if it is not ours."""
    require_ours(link)
    new_link = link.with_name(f"{folder.name}.link")
    try:
        new_link.symlink_to(folder.name)
        new_link.replace(link)
    except OSError as error:
        new_link.unlink(missing_ok=True)
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
    """Return the folders that hold the packages of the environment ``folder``."""
    return sorted(path for path in folder.glob("lib/python3*/site-packages") if path.is_dir())


def packages(folder: Path) -> dict[str, InstalledPackage]:
    """Return the packages of the environment by normalized name; damaged metadata are omitted."""
    return {
        name: package
        for base in site_packages(folder)
        for name, package in packages_in(base).items()
    }


def packages_in(base: Path) -> dict[str, InstalledPackage]:
    packages = {}
    for info in sorted([*base.glob("*.dist-info"), *base.glob("*.egg-info")]):
        stated = stated_in(info)
        if stated.keys() >= {"name", "version"}:
            packages[normalized(stated["name"])] = InstalledPackage(**stated, info=info)
    return packages


def inventory(folder: Path) -> dict[str, Any]:
    """Return the packages with versions, pip's list, and a digest of each one's list of files."""
    installed = packages(folder)
    versions = sorted((package.name, package.version) for package in installed.values())
    return {
        "packages": dict(versions),
        "freeze": [f"{name}=={version}" for name, version in versions],
        "records": {
            key: digest
            for key, package in sorted(installed.items())
            if (digest := _record_digest(package.info))
        },
    }


def is_there(name: str, facts: Facts, install: Path) -> bool:
    """Return True if ``venvs/<name>`` leads to the recorded build and its Python exists."""
    path, folder = folder_of(name, install), facts.get("folder")
    if not path.is_symlink() or path.readlink() != Path(str(folder)):
        return False
    if facts.get("made_by") != "conda" and not (path / "pyvenv.cfg").is_file():
        return False
    # built on a node, it may lead to a Python that only nodes have
    python = path / "bin" / "python"
    return python.exists() or (facts.get("where", "here") != "here" and python.is_symlink())


def verify(name: str, facts: Facts, install: Path, *, deep: bool) -> list[Fault]:
    """Return the differences from the recorded build: link, packages, files.

    ``deep`` reads the contents of the files.
    """
    path = folder_of(name, install)
    if not is_there(name, facts, install):
        message = f"{path} is not the environment that was built, or its Python is missing"
        return [Fault(message=message, code="environment-replaced", value=str(path))]
    return faults(path, facts, deep=deep)


def faults(folder: Path, facts: Facts, *, deep: bool) -> list[Fault]:
    """Return the differences of the environment ``folder`` from the inventory in ``facts``.

    A fault with the code DAMAGED has the package's normalized name as key and its files, relative
    to ``folder``, as value.
    """
    installed, records = packages(folder), facts.get("records", {})
    recorded = {
        normalized(name): (name, version) for name, version in facts.get("packages", {}).items()
    }
    differences, listed = [], dict[str, set[str]]()
    for key in sorted(installed.keys() | recorded.keys()):
        if key not in recorded:
            message = f"package {installed[key].name} {installed[key].version} was added"
            differences.append(Fault(message=message, code="package-added", key=key))
            continue
        name, version = recorded[key]
        if key not in installed:
            differences.append(
                _damage(
                    key, f"{name} {version}", "is not installed, or its metadata is damaged", ()
                )
            )
        elif installed[key].version != version:
            message = f"package {name} is version {installed[key].version}, expected {version}"
            differences.append(
                Fault(
                    message=message, code="package-version", key=key, value=installed[key].version
                )
            )
        elif key in records and _record_digest(installed[key].info) != records[key]:
            differences.append(
                _damage(
                    key,
                    f"{name} {version}",
                    "has another list of files",
                    (installed[key].info / "RECORD",),
                )
            )
        else:
            missing, changed = _changes(installed[key].info, listed, deep=deep)
            lists = {"is missing": missing, "was changed": changed}
            names = [text for word, paths in lists.items() if (text := _named(paths, word, folder))]
            if names:
                damaged_files = tuple(
                    str(path.relative_to(folder)) for path in (*missing, *changed)
                )
                differences.append(
                    _damage(key, f"{name} {version}:", "; ".join(names), damaged_files)
                )
    return differences


def _damage(key: str, package: str, text: str, paths: tuple[Any, ...]) -> Fault:
    return Fault(
        message=f"package {package} {text}", code=DAMAGED, key=key, value=tuple(map(str, paths))
    )


def _named(paths: list[Path], word: str, folder: Path) -> str:
    names = listed([str(path.relative_to(folder)) for path in paths], _SHOWN)
    if len(paths) < 2:
        return f"{names} {word}" if paths else ""
    return f"{len(paths)} files: {names} {word.replace('is ', 'are ').replace('was ', 'were ')}"


def _changes(
    info: Path, listed: dict[str, set[str]], *, deep: bool
) -> tuple[list[Path], list[Path]]:
    """Return a package's missing files, and with ``deep`` the files that were changed."""
    missing, changed = [], []
    for row, stated_digest in rows(info / "RECORD"):
        # Text and not Path: an environment has some ten thousand files.
        path = os.path.normpath(f"{info.parent}/{row}")
        folder, _, name = path.rpartition("/")
        # a network file system lists a folder quicker than it finds its files
        if folder not in listed:
            listed[folder] = _files_in(folder)
        if name not in listed[folder]:
            missing.append(Path(path))
        elif deep and stated_digest and _sha256(Path(path)) != stated_digest:
            changed.append(Path(path))
    return sorted(missing), sorted(changed)


def _files_in(folder: str) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if entry.is_file()}
    except (FileNotFoundError, NotADirectoryError):
        return set()


def rows(record: Path) -> list[tuple[str, str]]:
    """Return the files that a RECORD lists, with the sha256 that it states (base64, may be empty).

    Bytecode is omitted: Python rewrites it.
    """
    if not record.is_file():
        return []
    try:
        with record.open(encoding="utf-8", errors="replace", newline="") as stream:
            listed_rows = [row for row in csv.reader(stream) if row and not row[0].endswith(".pyc")]
    except csv.Error:  # damaged
        return []
    return [(row[0], row[1].removeprefix("sha256=") if len(row) > 1 else "") for row in listed_rows]


def _record_digest(info: Path) -> str:
    record = info / "RECORD"
    return hashlib.sha256(record.read_bytes()).hexdigest() if record.is_file() else ""


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
