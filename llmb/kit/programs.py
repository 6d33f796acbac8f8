# SPDX-License-Identifier: Apache-2.0
"""The programs that compute nodes run: found by name, never imported, copied once."""

import hashlib
import importlib.util
import shlex
from functools import lru_cache
from pathlib import Path

from llmb.core import files
from llmb.errors import LlmbError

PACKAGE = "llmb_workloads"


@lru_cache(maxsize=16)  # each script of a list names it
def path(install: Path, digest: str) -> Path:
    """The folder, for PYTHONPATH, of the programs whose content is ``digest``."""
    return install.joinpath(".llmb", "programs", digest)


def digest() -> str:
    """Return the sha256, in hex, of the programs' names and contents. Raises LlmbError."""
    return _digest(_sources())


def stage(install: Path) -> Path:
    """Copy the installed programs to ``path(install, digest())``, if missing. Return that folder.

    Several processes may do so at once. Raises LlmbError if the folder is not writable.
    """
    sources = _sources()
    target = path(install, _digest(sources))
    files.write_folder(target, sources)
    check(target)
    return target


_checked: set[Path] = set()  # by this process: reading all programs takes longer than a submission


def stage_once(install: Path, digest: str) -> None:
    """``stage``, unless this process has staged or checked the programs of ``digest`` before."""
    target = path(install, digest)
    if target in _checked and target.is_dir():
        return
    if not target.is_dir():
        stage(install)
    else:
        check(target)
    _checked.add(target)


def check(folder: Path) -> None:
    """Raise LlmbError unless the content of a folder of programs has the digest in its name.

    Jobs import from it, so a file that another user has changed or added there would run as theirs.
    """
    try:
        content = {
            file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8")
            for file in folder.rglob("*")
            if not file.is_dir() and "__pycache__" not in file.relative_to(folder).parts
        }
    except (OSError, UnicodeDecodeError):
        content = {}
    if _digest(dict(sorted(content.items()))) != folder.name:
        message = f"{folder} has other programs than its name says: somebody has changed them"
        hint = f"look who did, and remove it: rm -r {shlex.quote(str(folder))}"
        raise LlmbError(message, hint=hint, code="programs-changed", value=str(folder))


def _sources() -> dict[str, str]:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        message = f"the package {PACKAGE} is not installed"
        raise LlmbError(
            message, hint="install llmb again, with its workloads", code="programs-missing"
        )
    root = Path(spec.submodule_search_locations[0])
    sources = sorted((source.relative_to(root).as_posix(), source) for source in root.rglob("*.py"))
    return {f"{PACKAGE}/{name}": source.read_text(encoding="utf-8") for name, source in sources}


def _digest(sources: dict[str, str]) -> str:
    total = hashlib.sha256()
    for name, text in sources.items():
        total.update(f"{name}\0{len(text)}\0{text}\0".encode())
    return total.hexdigest()
