# SPDX-License-Identifier: Apache-2.0
"""Finds training logs below a folder, the runs they belong to, and the files next to them."""

import os
import re
import stat
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path

from llmb.errors import UsageError
from llmb.runs.record import RECORD, RunRecord

REQUEUED = r"(.*_\d{3,})_(\d{1,2})"  # the name of a log up to a job's id, and the attempt
_LOGS = (".out", ".err", ".log")


def logs_at(path: Path, unreadable: Callable[[OSError], None] | None = None) -> list[Path]:
    """The log at ``path``, whatever its name, or the training logs of a folder: the last attempt of each job.

    ``unreadable`` is called for each folder that cannot be read. Raises UsageError when there is no log.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        hint = "give a log, or the folder of the experiments"
        raise UsageError(f"{path} does not exist", hint=hint, code="path-missing", key="PATH", value=str(path))
    logs = last_attempts(find_logs(path, unreadable))
    if not logs:
        hint = "give another folder, or a log of any name: llmb-run parse FILE"
        message = f"{path} has no training log (log-*.out or log-*.out.gz)"
        raise UsageError(message, hint=hint, code="logs-missing", key="PATH", value=str(path))
    return logs


def find_logs(directory: Path, unreadable: Callable[[OSError], None] | None = None) -> list[Path]:
    """Every training log below ``directory``, compressed or not, sorted; a file with several names once.

    Links to folders are not followed. ``unreadable`` is called for each folder that cannot be read.
    """
    found = [
        Path(folder) / name
        for folder, _, names in os.walk(directory, onerror=unreadable)
        for name in names
        if is_log(name)
    ]
    own: dict[Hashable, Path] = {}
    for path in sorted(found, key=lambda path: (os.path.islink(path), path)):  # noqa: PTH114 - Path's may raise
        own.setdefault(_file_behind(path), path)
    return sorted(path for file, path in own.items() if file is not None)


def is_log(name: str) -> bool:
    """Whether a file of this name is a training log, compressed or not."""
    return name.startswith("log-") and name.endswith((".out", ".out.gz"))


def _file_behind(path: Path) -> Hashable:
    """Equal for all names of one file; None where there is no file; the path where it may not be looked at."""
    try:
        found = path.stat()
    except PermissionError:
        return path
    except OSError:  # a link to nowhere, or to itself
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def last_attempts(logs: Iterable[Path]) -> list[Path]:
    """``logs`` without those of earlier attempts of the same job.

    A requeued job writes ``log-<name>_<job id>_0.out``, then ``_1.out``; attempts of llmb write to ``attempt-2/``. A
    number of three digits or more is a job's id: ``log-..._bf16_64_389757.out``.
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
    """The directory of the recorded run that wrote ``log``; None for a log without a record."""
    directory = log.parent.parent
    return directory if (directory / RECORD).is_file() else None


def log_of(record: RunRecord) -> Path:
    """The training log of a run's last attempt, whether or not it exists yet; compressed if only that exists.

    An attempt after that of the record is of a scheduler that requeued the job.
    """
    if record.attempt > 1:
        return _as_kept(record.log)
    logs = [_as_kept(path / record.log.name) for path in record.directory.glob("attempt-*")]
    attempts = [log for log in logs if _is_file(log)]
    return max(attempts, key=lambda log: _number_of(log.parent)) if attempts else _as_kept(record.log)


def _as_kept(log: Path) -> Path:
    """The log, or what ``gzip`` made of it in place."""
    packed = log.with_name(f"{log.name}.gz")
    return packed if not _is_file(log) and _is_file(packed) else log


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder that this user may not read
        return False


def logs_of(record: RunRecord) -> list[Path]:
    """The logs that may say why a run failed: of training, of the script, and others in the same folder."""
    log = log_of(record)
    try:
        others = [path for path in log.parent.iterdir() if path.suffix in _LOGS and path.is_file()]
    except OSError:  # there is no folder, or this user may not read it: reading the log says so
        others = []
    return list(dict.fromkeys((log, record.batch_log, *sorted(others))))


def logs_beside(log: Path) -> list[Path]:
    """A training log without a record, and its script's log, which launchers call ``sbatch_<the same name>``."""
    name = log.name.removeprefix("log-")
    without_attempt = re.sub(r"_\d+(?=\.out)", "", name)
    names = dict.fromkeys(f"sbatch_{text}" for text in (name, without_attempt))
    return [log, *(path for path in map(log.with_name, names) if path.is_file())]


def _number_of(folder: Path) -> int:
    match = re.fullmatch(r"attempt-(\d+)", folder.name)
    return int(match[1]) if match else 0


_REPORTS = (".nsys-rep", ".qdrep")
_CONFIG = re.compile(r"llmb-config_(.+)\.ya?ml")
_JOB = re.compile(r"_(\d{3,})(?:_\d{1,2})?$")
_ENABLED = re.compile(r"^[ \t]{0,40}profile_enabled[ \t]{0,9}:[ \t]{0,9}['\"]?(true|yes|on|1)\b", re.MULTILINE | re.I)
_MOST = 1 << 20  # bytes of a launcher's file that are read


def profiled_beside(log: Path) -> str:
    """Why the run of ``log`` is known to be profiled, by the files next to it; empty where nothing shows it.

    Where a folder has several logs, the files that name a job belong to its log.
    """
    job = job_of(log.name)
    for folder in _folders(log):
        names = _names(folder)
        alone = len({job_of(name) or name for name in names if is_log(name)}) < 2
        report = next((name for name in names if _reports(folder, name, job, alone=alone)), None)
        if report is not None:
            return f"profiled: {report} is next to its log"
        configs = {name: found[1] for name in names if (found := _CONFIG.fullmatch(name))}
        own = [name for name, id_ in configs.items() if id_ == job] or (list(configs) if alone else [])
        enabled = next((name for name in own if _is_enabled(folder / name)), None)
        if enabled is not None:
            return f"profiled: {enabled} has profile_enabled: true"
    return ""


def _folders(log: Path) -> Iterator[Path]:
    """The folder of the log, and that of its run above it: ``<name>_<timestamp>/<name>/log-<name>.out``."""
    yield log.parent
    run = log.absolute().parent.parent
    if run.name.startswith(f"{log.absolute().parent.name}_"):
        yield run


def _reports(folder: Path, name: str, job: str, *, alone: bool) -> bool:
    """Whether the file or folder ``name`` is a report of the job, or contains one."""
    if name == "nsys_profile" and (folder / name).is_dir():
        return any(_reports(folder / name, inner, job, alone=alone) for inner in _names(folder / name))
    return name.endswith(_REPORTS) and (alone or bool(job and re.search(rf"(?<!\d){job}(?!\d)", name)))


def _is_enabled(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return _ENABLED.search(stream.read(_MOST).decode("utf-8", "replace")) is not None
    except OSError:
        return False


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except OSError:
        return []


def job_of(name: str) -> str:
    """The job's id in a log's name, empty where it has none."""
    found = _JOB.search(re.sub(r"(?:\.(?:out|log|txt|err))?(?:\.gz)?$", "", name))
    return found[1] if found else ""
