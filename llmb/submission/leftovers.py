# SPDX-License-Identifier: Apache-2.0
"""Removes what killed submissions have left: directories of runs that never came to be, half-written files."""

import contextlib
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from llmb.errors import LlmbError
from llmb.runs.record import RECORD, RunRecord
from llmb.submission.dispatch import LOCK
from llmb.system import locks

_YOUNG = 3600.0  # seconds in which a directory without a lock may be one that is about to get one


def clean(experiments: Iterable[Path]) -> None:
    """Remove from these folders, one for each experiment, the directories in which no run was ever recorded.

    One whose submitter lives is left alone, and so is one that holds anything that a submission does not leave.
    """
    for folder in experiments:
        with contextlib.suppress(OSError, LlmbError):
            for directory in folder.iterdir():
                if directory.is_dir() and not (directory / RECORD).exists():
                    _remove(directory)


def clean_parts(run: RunRecord) -> None:
    """Remove half-written files of a run. For the holder of its lock alone."""
    for path in (run.directory / RECORD, run.script):
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
