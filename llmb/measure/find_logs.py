# SPDX-License-Identifier: Apache-2.0
"""Find training logs below a folder, the runs they belong to, and the files next to them."""

import os
import re
import stat
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from llmb.contract.log_settings import LogSettings
from llmb.contract.record import RECORD, RunRecord
from llmb.core import files
from llmb.core.values import dataclass
from llmb.errors import UsageError
from llmb.measure import suites

REQUEUED = r"(.*_\d{3,})_(\d{1,2})"  # the name of a log up to a job's id, and the attempt
_LOGS = (".out", ".err", ".log")


def logs_at(path: Path, unreadable: Callable[[OSError], None] | None = None) -> list[Path]:
    """Return the log at ``path``, or the training logs of a folder: the last attempt of each job.

    A file may have any name. ``unreadable`` is called for each folder that cannot be read. Raises
    UsageError if there is no log.
    """
    if files.is_file(path):
        return [path]
    if not files.is_folder(path):
        hint = "give a log, or the folder of the experiments"
        raise UsageError(
            f"{path} does not exist", hint=hint, code="path-missing", key="PATH", value=str(path)
        )
    logs = last_attempts(find_logs(path, unreadable))
    if not logs:
        hint = "give another folder, or a log of any name: llmb-run parse FILE"
        message = (
            f"{path} has no training log (log-*.out or log-*.out.gz), and none of CloudAI,"
            " superbench or ReFrame"
        )
        raise UsageError(message, hint=hint, code="logs-missing", key="PATH", value=str(path))
    return logs


def find_logs(directory: Path, unreadable: Callable[[OSError], None] | None = None) -> list[Path]:
    """Return every training log below ``directory``, compressed or not, sorted.

    Logs of CloudAI, superbench and ReFrame have their own names. A file with several names is
    returned once. Links to folders are not followed. ``unreadable`` is called for each folder that
    cannot be read.
    """
    paths = [
        Path(folder) / name
        for folder, _, names in os.walk(directory, onerror=unreadable)
        for name in names
        if is_log(name) or suites.is_log(folder, name, names)
    ]
    by_file: dict[Hashable, Path] = {}
    links_last = sorted(
        suites.without_copies(paths),
        key=lambda path: (os.path.islink(path), path),  # noqa: PTH114 - Path's may raise
    )
    for path in links_last:
        by_file.setdefault(_file_behind(path), path)
    return sorted(path for file, path in by_file.items() if file is not None)


def is_log(name: str) -> bool:
    """Return True if a file of this name is a training log, compressed or not."""
    return name.startswith("log-") and name.endswith((".out", ".out.gz"))


def _file_behind(path: Path) -> Hashable:
    """Return a key that all names of one file share, or None if there is no file.

    It is the path if the user may not look at the file.
    """
    try:
        status = path.stat()
    except PermissionError:
        return path
    except OSError:  # a link to nowhere, or to itself
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def last_attempts(logs: Iterable[Path]) -> list[Path]:
    """Return ``logs`` without earlier attempts of the same job.

    A requeued job writes ``log-<name>_<job id>_0.out``, then ``_1.out``. Attempts of llmb write to
    ``attempt-2/``. A number of three digits or more is a job's id: ``log-..._bf16_64_389757.out``.
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
    match = re.fullmatch(REQUEUED, name)
    return (path.with_name(match[1]), int(match[2])) if match else (path.with_name(name), 0)


def run_directory(log: Path) -> Path | None:
    """Return the directory of the recorded run that wrote ``log``, or None without a record."""
    directory = log.parent.parent
    return directory if files.is_file(directory / RECORD) else None


def log_of(record: RunRecord) -> Path:
    """Return the training log of a run's last attempt, which may not exist yet.

    It is the compressed one if only that exists. A scheduler that requeued the job starts attempts
    after the one of the record.
    """
    if record.attempt > 1:
        return as_kept(record.log)
    log = record.log
    folders = [name for name in _names(record.directory) if name.startswith("attempt-")]
    logs = [as_kept(record.directory / name / log.name) for name in folders]
    attempts = [log for log in logs if files.is_file(log)]
    return max(attempts, key=lambda log: _number_of(log.parent)) if attempts else as_kept(log)


def as_kept(log: Path) -> Path:
    """Return the log, or the file that ``gzip`` made of it in place."""
    if files.is_file(log):
        return log
    packed = log.with_name(f"{log.name}.gz")
    return packed if files.is_file(packed) else log


def logs_of(record: RunRecord, log: Path) -> list[Path]:
    """Return the logs that may say why a run failed: training, script, others beside them.

    ``log`` is ``log_of(record)``.
    """
    # without the folder, or the right to read it, there are none: reading the log says so
    folder = log.parent
    paths = (folder / name for name in _names(folder) if name.endswith(_LOGS))
    beside = [path for path in paths if files.is_file(path)]
    return list(dict.fromkeys((log, record.batch_log, *sorted(beside))))


def logs_beside(log: Path) -> list[Path]:
    """Return a training log without a record, its script's log, ``sbatch_<the same name>``, and
    the files in which its suite of benchmarks writes errors.
    """
    name = log.name.removeprefix("log-")
    without_attempt = re.sub(r"_\d+(?=\.out)", "", name)
    names = dict.fromkeys(f"sbatch_{text}" for text in (name, without_attempt))
    script_logs = (path for path in map(log.with_name, names) if files.is_file(path))
    return [log, *script_logs, *suites.errors_beside(log)]


def _number_of(folder: Path) -> int:
    match = re.fullmatch(r"attempt-(\d+)", folder.name)
    return int(match[1]) if match else 0


_REPORTS = (".nsys-rep", ".qdrep")
_PROFILES = "nsys_profile"
_JOB = re.compile(r"_(\d{3,})(?:_\d{1,2})?$")
_SETTLED = 2.0  # seconds: what is created within the resolution of a folder's time changes no time


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The files of a folder that tell something of the logs in it."""

    #: Names of reports of Nsight Systems, and of the folder that may have some.
    reports: tuple[str, ...] = ()
    #: Jobs that the logs are of. A log without an id is a job of its own.
    jobs: int = 0


def listing_of(folder: Path) -> Listing:
    """Return the listing of ``folder``, empty if it cannot be read.

    It is read once for all logs of a folder, which may be thousands.
    """
    try:
        changed = folder.stat().st_mtime
    except OSError:
        return Listing()
    is_settled = 0 <= changed < time.time() - _SETTLED
    return _listing_at(folder, changed) if is_settled else _listing(folder)


def _listing(folder: Path) -> Listing:
    names = _names(folder)
    logs = [name for name in names if is_log(name)]
    return Listing(
        reports=tuple(name for name in names if name == _PROFILES or name.endswith(_REPORTS)),
        jobs=len({job_of(name) or name for name in logs}) if len(logs) > 1 else len(logs),
    )


@lru_cache(maxsize=64)
def _listing_at(folder: Path, _changed: float) -> Listing:
    return _listing(folder)


def profiled_beside(log: Path, beside: LogSettings | None = None) -> str:
    """Return why the run of ``log`` is known to be profiled, by the files next to it, or ``""``.

    ``beside`` is what a plugin found in one. If a folder has several logs, the files that name a
    job belong to its log.
    """
    job = job_of(log.name)
    for folder in _folders(log):
        listing = listing_of(folder)
        alone = listing.jobs < 2
        report = next(
            (name for name in listing.reports if _reports(folder, name, job, alone=alone)), None
        )
        if report is not None:
            return f"profiled: {report} is next to its log"
    return f"profiled: {beside.profiled}" if beside is not None and beside.profiled else ""


def _folders(log: Path) -> Iterator[Path]:
    """Yield the folder of the log, and the folder ``<name>_<timestamp>`` of its run above."""
    yield log.parent
    run = log.absolute().parent.parent
    if run.name.startswith(f"{log.absolute().parent.name}_"):
        yield run


def _reports(folder: Path, name: str, job: str, *, alone: bool) -> bool:
    """Return True if the file or folder ``name`` is a report of the job, or contains one."""
    if name == _PROFILES and files.is_folder(folder / name):
        return any(
            _reports(folder / name, inner, job, alone=alone) for inner in _names(folder / name)
        )
    return name.endswith(_REPORTS) and (
        alone or bool(job and re.search(rf"(?<!\d){job}(?!\d)", name))
    )


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - for each of thousands
    except OSError:
        return []


def job_of(name: str) -> str:
    """Return the job's id in a log's name, empty if it has none."""
    match = _JOB.search(re.sub(r"(?:\.(?:out|log|txt|err))?(?:\.gz)?$", "", name))
    return match[1] if match else ""
