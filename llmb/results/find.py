# SPDX-License-Identifier: Apache-2.0
"""Finds training logs below a folder, and which of them belong to a recorded run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from llmb.errors import UsageError
from llmb.runs.record import RECORD, RunRecord

_LOGS = (".out", ".err", ".log")


def find_logs(directory: Path) -> list[Path]:
    """Every training log below ``directory``, in gzip or not, sorted. Raises UsageError without such a folder."""
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a folder", hint="name the folder that holds the experiments")
    found = (path for pattern in ("log-*.out", "log-*.out.gz") for path in directory.rglob(pattern))
    return sorted(path for path in found if path.is_file())


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
    name = path.name.removesuffix(".gz").removesuffix(".out")
    match = re.fullmatch(r"(.*_\d+)_(\d+)", name)
    return (path.with_name(match[1]), int(match[2])) if match else (path.with_name(name), 0)


def run_directory(log: Path) -> Path | None:
    """The directory of the recorded run that wrote ``log``, None for a log from elsewhere."""
    directory = log.parent.parent
    return directory if (directory / RECORD).is_file() else None


def log_of(record: RunRecord) -> Path:
    """The training log of a run's last attempt, whether or not it is there yet.

    A later attempt than the record's own is that of a scheduler that has requeued the job.
    """
    if record.attempt > 1:
        return record.log
    attempts = [path for path in record.directory.glob("attempt-*") if (path / record.log.name).is_file()]
    return max(attempts, key=_number_of) / record.log.name if attempts else record.log


def logs_of(record: RunRecord) -> list[Path]:
    """All that may say why a run failed: its training log, its script's, and what else its ranks wrote beside them."""
    log = log_of(record)
    folder = log.parent
    others = [path for path in folder.iterdir() if path.suffix in _LOGS and path.is_file()] if folder.is_dir() else []
    return list(dict.fromkeys((log, record.batch_log, *sorted(others))))


def logs_beside(log: Path) -> list[Path]:
    """A training log without a record, and its script's log where launchers put it, ``sbatch_<the same name>``."""
    name = log.name.removeprefix("log-")
    without_attempt = re.sub(r"_\d+(?=\.out)", "", name)
    names = dict.fromkeys(f"sbatch_{text}" for text in (name, without_attempt))
    return [log, *(path for path in map(log.with_name, names) if path.is_file())]


def _number_of(folder: Path) -> int:
    match = re.fullmatch(r"attempt-(\d+)", folder.name)
    return int(match[1]) if match else 0
