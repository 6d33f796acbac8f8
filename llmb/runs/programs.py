# SPDX-License-Identifier: Apache-2.0
"""The programs that compute nodes run: found by name, never imported, and copied once into the install directory."""

import hashlib
import importlib.util
from pathlib import Path

from llmb.errors import LlmbError
from llmb.system import files

PACKAGE = "llmb_workloads"


def path(install: Path, digest: str) -> Path:
    """The folder, for PYTHONPATH, that holds the programs whose content is ``digest``."""
    return install / ".llmb" / "programs" / digest


def digest() -> str:
    """The sha256, in hex, of the installed programs: every name and every content. Raises LlmbError without them."""
    return _digest(_sources())


def stage(install: Path) -> Path:
    """Copy the installed programs to ``path(install, digest())``, unless they are there; that folder.

    Others may do so at the same time. Raises LlmbError when the folder is not writable.
    """
    sources = _sources()
    target = path(install, _digest(sources))
    files.write_folder(target, sources)
    return target


def _sources() -> dict[str, str]:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise LlmbError(f"the package {PACKAGE} is not installed here", hint="install llmb again, with its workloads")
    root = Path(spec.submodule_search_locations[0])
    found = sorted((source.relative_to(root).as_posix(), source) for source in root.rglob("*.py"))
    return {f"{PACKAGE}/{name}": source.read_text(encoding="utf-8") for name, source in found}


def _digest(sources: dict[str, str]) -> str:
    total = hashlib.sha256()
    for name, text in sources.items():
        total.update(f"{name}\0{len(text)}\0{text}\0".encode())
    return total.hexdigest()
