# SPDX-License-Identifier: Apache-2.0
"""Finds training logs below a folder, and which of them belong to a recorded run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from llmb.errors import UsageError
from llmb.runs.record import RECORD, RunRecord


def find_logs(directory: Path) -> list[Path]:
    """Every training log below ``directory``, sorted. Raises UsageError when there is no such folder."""
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a folder", hint="name the folder that holds the experiments")
    return sorted(path for path in directory.rglob("log-*.out") if path.is_file())


def last_attempts(logs: Iterable[Path]) -> list[Path]:
    """``logs`` without those that a later attempt of the same job replaced.

    A requeued job writes ``log-<name>_<job id>_0.out``, then ``_1.out``; llmb's own go to ``attempt-2/``.
    """
    newest: dict[Path, tuple[int, Path]] = {}
    for path in logs:
        key, attempt = _attempt(path)
        if key not in newest or attempt > newest[key][0]:
            newest[key] = attempt, path
    return [path for _, path in newest.values()]


def _attempt(path: Path) -> tuple[Path, int]:
    if run_directory(path) is not None:
        return path.parent.parent / path.name, _number_of(path.parent)
    match = re.fullmatch(r"(.*_\d+)_(\d+)", path.stem)
    return (path.with_name(match[1]), int(match[2])) if match else (path, 0)


def run_directory(log: Path) -> Path | None:
    """The directory of the recorded run that wrote ``log``, None for a log from elsewhere."""
    directory = log.parent.parent
    return directory if (directory / RECORD).is_file() else None


def log_of(record: RunRecord) -> Path:
    """The training log of a run's last attempt, whether or not it is there yet."""
    attempts = [path for path in record.directory.glob("attempt-*") if (path / record.log.name).is_file()]
    return max(attempts, key=_number_of) / record.log.name if attempts else record.log


def _number_of(folder: Path) -> int:
    match = re.fullmatch(r"attempt-(\d+)", folder.name)
    return int(match[1]) if match else 0
