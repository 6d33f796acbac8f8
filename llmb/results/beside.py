# SPDX-License-Identifier: Apache-2.0
"""Whether a run was profiled, by the files beside its log: Nsight's reports, and what its launcher wrote down."""

import re
from collections.abc import Iterator
from pathlib import Path

from llmb.results.find import is_log

_REPORTS = (".nsys-rep", ".qdrep")
_CONFIG = re.compile(r"llmb-config_(.+)\.ya?ml")
_JOB = re.compile(r"_(\d{3,})(?:_\d{1,2})?$")
_ENABLED = re.compile(r"^[ \t]{0,40}profile_enabled[ \t]{0,9}:[ \t]{0,9}['\"]?(true|yes|on|1)\b", re.MULTILINE | re.I)
_MOST = 1 << 20  # bytes of a launcher's file that are read


def profiled_beside(log: Path) -> str:
    """What says that the run of ``log`` was profiled, as a phrase; empty where nothing does.

    Several logs in one folder each have the files that name their job. What cannot be read says nothing.
    """
    job = _job_of(log.name)
    for folder in _folders(log):
        names = _names(folder)
        alone = len({_job_of(name) or name for name in names if is_log(name)}) < 2
        report = next((name for name in names if _reports(folder, name, job, alone=alone)), None)
        if report is not None:
            return f"profiled: {report} lies beside its log"
        configs = {name: found[1] for name in names if (found := _CONFIG.fullmatch(name))}
        own = [name for name, id_ in configs.items() if id_ == job] or (list(configs) if alone else [])
        enabled = next((name for name in own if _is_enabled(folder / name)), None)
        if enabled is not None:
            return f"profiled: {enabled} has profile_enabled: true"
    return ""


def _folders(log: Path) -> Iterator[Path]:
    """That of the log, and that of its run above it: ``<name>_<timestamp>/<name>/log-<name>.out``."""
    yield log.parent
    run = log.absolute().parent.parent
    if run.name.startswith(f"{log.absolute().parent.name}_"):
        yield run


def _reports(folder: Path, name: str, job: str, *, alone: bool) -> bool:
    """Whether the file or folder ``name`` is a report of the job, or holds one."""
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


def _job_of(name: str) -> str:
    """The job's id in a log's name, empty where it has none."""
    found = _JOB.search(re.sub(r"(?:\.(?:out|log|txt|err))?(?:\.gz)?$", "", name))
    return found[1] if found else ""
