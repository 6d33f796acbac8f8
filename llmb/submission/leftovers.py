# SPDX-License-Identifier: Apache-2.0
"""Removes what an interrupted submission leaves: directories without a recorded run, half-written files."""

import contextlib
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from llmb.errors import LlmbError
from llmb.runs import record
from llmb.system import locks

LOCK = "submission"
_YOUNG = 3600.0  # seconds in which a new directory may not have its lock yet


def remove_leftovers(experiments: Iterable[Path]) -> None:
    """Remove from these folders, one for each experiment, directories in which no run was recorded.

    A directory whose submitter is alive stays, and so does one with files that a submission does not create.
    """
    for folder in experiments:
        with contextlib.suppress(OSError, LlmbError):
            for directory in folder.iterdir():
                if directory.is_dir() and not (directory / record.RECORD).exists():
                    _remove(directory)


def remove_parts(run: record.RunRecord) -> None:
    """Remove half-written files of a run. The caller holds the run's lock."""
    for path in (run.directory / record.RECORD, run.script):
        for part in path.parent.glob(f".{path.name}.*.part"):
            with contextlib.suppress(OSError):
                part.unlink()


def _remove(directory: Path) -> None:
    if not any(directory.glob(f"{LOCK}.lock.*")) and time.time() - directory.stat().st_mtime < _YOUNG:
        return
    with contextlib.suppress(LlmbError), locks.hold(directory, LOCK):
        if all(map(_is_left_over, directory.iterdir())):
            shutil.rmtree(directory, ignore_errors=True)


def _is_left_over(path: Path) -> bool:
    if path.is_dir():
        return not any(path.iterdir())
    return path.name.startswith(f"{LOCK}.lock.") or (path.name.startswith(".") and path.name.endswith(".part"))
