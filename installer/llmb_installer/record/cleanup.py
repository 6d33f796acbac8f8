# SPDX-License-Identifier: Apache-2.0
"""Removes what installers that were killed have left: half-written files, under the lock of the install directory."""

import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from llmb.system import process

_MARK = "LLMB_INSTALLING_INTO"
_OTHERS = 60.0  # seconds after which what another program may be writing is left over


def mark(install: Path) -> dict[str, str]:
    """The variable that programs which install into ``install`` carry, so that they are known without their parent."""
    return {_MARK: str(install.resolve())}


def end_programs(install: Path) -> None:
    """End what a killed installer has left running, such as pip: it would write into what is made anew."""
    for name, value in mark(install).items():
        process.kill_marked(name, value)


def tidy(install: Path) -> None:
    """Remove half-written files; those that llmb-run may be writing right now only when they are old."""
    own = install / ".llmb"
    ours = [*install.glob(".cluster_config.yaml*.part"), *own.glob(".install.json.*.part")]
    ours += [*own.glob(".answers.yaml.*.part"), *own.glob("locks/.*.part"), *own.glob("logs/.*.part")]
    _remove(ours)
    shared = [*own.glob(".install.lock.*.part"), *own.glob("programs/.*.part")]
    _remove(path for path in shared if _age(path) > _OTHERS)


def tidy_parts(install: Path) -> None:
    """Remove what steps that nobody wants any more had begun to fetch."""
    _remove([*install.glob("repos/.*.part"), *install.glob("datasets/hub/*/.*.part")])


def _age(path: Path) -> float:
    try:
        return time.time() - path.lstat().st_mtime
    except FileNotFoundError:
        return 0.0


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
