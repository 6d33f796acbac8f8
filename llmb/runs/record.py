# SPDX-License-Identifier: Apache-2.0
"""A run on disk: the record made before a submission, the source of truth for all that comes after."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llmb.errors import LlmbError
from llmb.runs.job import Job
from llmb.runs.launch import Launch, Stamp
from llmb.runs.state import JobState, Moment
from llmb.system import files
from llmb.system.process import ProcessId
from llmb.text import typed

RECORD = "llmb-run.json"
SCHEMA_VERSION = 1
_VERSION = "schema_version"
_HEAD = f'{{\n  "{_VERSION}": {SCHEMA_VERSION},\n'
_ID_LINE = 72  # characters; among the first 512 bytes of the file


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt that is over: when it was submitted in epoch seconds, the scheduler's id of it, and its end."""

    submitted: Moment
    scheduler_id: str | None
    state: JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One submitted job.

    ``directory``: ``experiments/<name>/<name>_<timestamp>``; ``created`` in seconds since the epoch; ``script`` is the
    name of the script's file within ``place``; ``scheduler_id`` is None until the scheduler has answered; ``submitter``
    is the process that submits it; ``cluster`` names the cluster that it was given to, None where that is not known.
    All of these but the first two are of the present ``attempt``, as is ``retried``, when it was made (None for the
    first); those before it are in ``history``.
    """

    id: str
    created: Moment
    llmb_version: str
    cluster_type: str
    directory: Path
    job: Job
    launch: Launch
    script_name: str
    submitter: ProcessId
    cluster: str | None = None
    scheduler_id: str | None = None
    attempt: int = 1
    retried: Moment | None = None
    history: tuple[Attempt, ...] = ()

    @property
    def stamp(self) -> Stamp:
        """What the present attempt's script was rendered with."""
        own = self.id if self.attempt == 1 else f"{self.id}-{self.attempt}"
        timestamp = self.directory.name.rpartition("_")[2]
        return Stamp(id=own, timestamp=timestamp, directory=str(self.directory), attempt=self.attempt)

    @property
    def place(self) -> Path:
        """Where the files of the present attempt alone are: the run's directory, ``attempt-2`` in it, ..."""
        return Path(self.stamp.place)

    @property
    def work(self) -> Path:
        """Where the ranks start and the logs are."""
        return Path(self.stamp.work(self.launch.name))

    @property
    def log(self) -> Path:
        """The training log."""
        return self.work / f"log-{self.launch.name}.out"

    @property
    def batch_log(self) -> Path:
        """What the script itself printed."""
        return self.work / f"sbatch_{self.launch.name}.out"

    @property
    def script(self) -> Path:
        """The script as it was sent."""
        return self.place / self.script_name

    @property
    def name(self) -> str:
        """The run's name for people: its directory's last part."""
        return self.directory.name

    @property
    def submitted_at(self) -> float:
        """When the present attempt was made, in seconds since the epoch."""
        return self.created if self.retried is None else self.retried

    def submitted(self, scheduler_id: str) -> RunRecord:
        """The record with the scheduler's answer."""
        return replace(self, scheduler_id=scheduler_id)

    def again(self, end: JobState, submitter: ProcessId, now: float) -> RunRecord:
        """The record of the next attempt, made at ``now`` after this one came to ``end``; not submitted yet."""
        over = Attempt(submitted=self.submitted_at, scheduler_id=self.scheduler_id, state=end)
        return replace(
            self,
            attempt=self.attempt + 1,
            retried=now,
            history=(*self.history, over),
            scheduler_id=None,
            submitter=submitter,
        )


def save(record: RunRecord) -> None:
    """Write the record into its directory, atomically."""
    path = record.directory / RECORD
    data = typed.keeping(record, _before(path))
    del data["directory"]  # where it lies says it, also after the folder has been moved
    del data["scheduler_id"]
    # A line for each field: indenting all takes Python's slow encoder, and others wait while each run is written.
    lines = (f'  "{name}": {json.dumps(value, ensure_ascii=False)}' for name, value in data.items())
    text = f"{_HEAD}{_id_line(record.scheduler_id)}" + ",\n".join(lines) + "\n}\n"
    files.write_text(path, text)


def _before(path: Path) -> Any:
    """What the record holds that is about to be replaced; keys of a newer release among it are kept."""
    try:
        data = files.read_json(path)
    except LlmbError:
        return None
    return {key: data[key] for key in data if key != _VERSION} if isinstance(data, dict) else None


def save_scheduler_id(record: RunRecord) -> None:
    """Write the id that the scheduler has given to a run whose record without it is on disk.

    It is written into its place in the file, which a disk takes in one go: a new file for each of hundreds of runs
    would slow the submission down, most of all where many files are removed.
    """
    line = _id_line(record.scheduler_id)
    if not files.overwrite(record.directory / RECORD, line, at=len(_HEAD), over=_id_line(None)):
        save(record)


def _id_line(scheduler_id: str | None) -> str:
    """The line of the scheduler's id, as long without it as with any usual one."""
    return f'  "scheduler_id": {json.dumps(scheduler_id)},'.ljust(_ID_LINE) + "\n"


def load(directory: Path) -> RunRecord:
    """The record in ``directory``. Raises LlmbError when there is none or it cannot be understood."""
    found = find(directory)
    if found is None:
        raise LlmbError(f"{directory} holds no run", hint="llmb-run jobs list shows the runs")
    return found


def find(directory: Path) -> RunRecord | None:
    """As ``load``, None when there is no record."""
    path = directory / RECORD
    try:
        data: Any = files.read_json(path)
    except LlmbError:  # half an id, where it was being written at this moment
        data = files.read_json(path)
    if data is None and not path.exists():
        return None
    if data is None:  # `null`: the run is there, and its record holds nothing
        raise LlmbError(f"{path} is damaged: it is empty of data", hint="move it away")
    if not isinstance(data, dict) or data.pop(_VERSION, None) != SCHEMA_VERSION:
        raise LlmbError(f"{path} was written by another version of llmb", hint="use the llmb that made it")
    return typed.read_own(RunRecord, path, {**data, "directory": str(directory)})
