# SPDX-License-Identifier: Apache-2.0
"""The programs that compute nodes run: found by name, never imported, copied once into the install directory."""

import hashlib
import importlib.util
from pathlib import Path

from llmb.errors import LlmbError
from llmb.system import files

PACKAGE = "llmb_workloads"


def path(install: Path, digest: str) -> Path:
    """The folder, for PYTHONPATH, of the programs whose content is ``digest``."""
    return install / ".llmb" / "programs" / digest


def digest() -> str:
    """The sha256, in hex, of the installed programs: names and contents. Raises LlmbError where they are missing."""
    return _digest(_sources())


def stage(install: Path) -> Path:
    """Copy the installed programs to ``path(install, digest())``, unless they exist; returns that folder.

    Several processes may do so at once. Raises LlmbError where the folder is not writable.
    """
    sources = _sources()
    target = path(install, _digest(sources))
    files.write_folder(target, sources)
    return target


def _sources() -> dict[str, str]:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        message = f"the package {PACKAGE} is not installed"
        raise LlmbError(message, hint="install llmb again, with its workloads", code="programs-missing")
    root = Path(spec.submodule_search_locations[0])
    found = sorted((source.relative_to(root).as_posix(), source) for source in root.rglob("*.py"))
    return {f"{PACKAGE}/{name}": source.read_text(encoding="utf-8") for name, source in found}


def _digest(sources: dict[str, str]) -> str:
    total = hashlib.sha256()
    for name, text in sources.items():
        total.update(f"{name}\0{len(text)}\0{text}\0".encode())
    return total.hexdigest()
