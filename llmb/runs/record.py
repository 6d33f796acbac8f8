# SPDX-License-Identifier: Apache-2.0
"""A run's record on disk, written before its submission: the source of truth for everything later."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from llmb.errors import LlmbError
from llmb.runs.job import Job, Training
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
    """An attempt that has ended: when it was submitted in epoch seconds, its scheduler's id, and its end."""

    submitted: Moment
    scheduler_id: str | None
    state: JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where an imported run comes from: the ``tool`` that ran it and its ``release`` (None: unknown).

    ``folder``: the run's own, with its files; ``window``: the iterations that the release measures, None for llmb's.
    """

    tool: str
    folder: Path
    release: str | None = None
    window: tuple[int, ...] | None = None

    def __str__(self) -> str:
        """As in ``NVIDIA's exemplar-performance 25.08, /shared/.../<name>``."""
        return f"{self.tool}{f' {self.release}' if self.release else ''}, {self.folder}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One submitted job.

    ``directory``: ``experiments/<name>/<name>_<timestamp>``; ``created`` in seconds since the epoch; ``script_name``:
    the script's file within ``place``; ``scheduler_id``: None until the scheduler has answered; ``submitter``: the
    process that submits it; ``cluster``: the cluster that has it, None where that is not known. All of these but the
    first two are of the current ``attempt``, as is ``retried``, when it was created (None for the first); earlier
    attempts are in ``history``. ``origin``: of an imported run, which llmb did not submit and never submits again; its
    logs are links to the original files.
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
    origin: Origin | None = None

    @property
    def stamp(self) -> Stamp:
        """The stamp of the current attempt's script."""
        own = self.id if self.attempt == 1 else f"{self.id}-{self.attempt}"
        timestamp = self.directory.name.rpartition("_")[2]
        return Stamp(id=own, timestamp=timestamp, directory=str(self.directory), attempt=self.attempt)

    @property
    def place(self) -> Path:
        """The folder of the current attempt's files: the run's directory, ``attempt-2`` in it, ..."""
        return self.directory if self.attempt == 1 else Path(self.stamp.place)

    @property
    def work(self) -> Path:
        """The working folder of the ranks, where the logs are."""
        return Path(self.stamp.work(self.launch.name))

    @property
    def log(self) -> Path:
        """The file of the training log."""
        return self.work / f"log-{self.launch.name}.out"

    @property
    def batch_log(self) -> Path:
        """The file of the script's own output."""
        return self.work / f"sbatch_{self.launch.name}.out"

    @property
    def script(self) -> Path:
        """The file of the script as sent."""
        return self.place / self.script_name

    @property
    def name(self) -> str:
        """The run's name: the last part of its directory."""
        return self.directory.name

    @property
    def submitted_at(self) -> float:
        """When the current attempt was created, in seconds since the epoch."""
        return self.created if self.retried is None else self.retried

    def submitted(self, scheduler_id: str) -> RunRecord:
        """The record with the scheduler's id."""
        return replace(self, scheduler_id=scheduler_id)

    def next_attempt(self, end: JobState, submitter: ProcessId, now: float) -> RunRecord:
        """The record of the next attempt, created at ``now`` after this one ended with ``end``; not submitted yet."""
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
    """Write the record into its directory atomically."""
    path = record.directory / RECORD
    data = typed.keeping(record, _before(path))
    del data["directory"]  # given by its location, also after the folder has been moved
    del data["scheduler_id"]
    # One line per field: indentation would need Python's slow encoder, while other submissions wait.
    lines = (f'  "{name}": {json.dumps(value, ensure_ascii=False)}' for name, value in data.items())
    text = f"{_HEAD}{_id_line(record.scheduler_id)}" + ",\n".join(lines) + "\n}\n"
    files.write_text(path, text)


def _before(path: Path) -> Any:
    """The data of the record that is being replaced; keys of a newer release in it are kept."""
    data = files.read_json_if_sound(path)
    return {key: data[key] for key in data if key != _VERSION} if isinstance(data, dict) else None


def save_scheduler_id(record: RunRecord) -> None:
    """Write the scheduler's id into the record on disk, which was saved without it.

    The id overwrites its line in place, in one write: a new file for each of hundreds of runs would slow submissions.
    """
    line = _id_line(record.scheduler_id)
    if not files.overwrite(record.directory / RECORD, line, at=len(_HEAD), over=_id_line(None)):
        save(record)


def _id_line(scheduler_id: str | None) -> str:
    """The line of the scheduler's id, padded so that an id fits where there was none."""
    return f'  "scheduler_id": {json.dumps(scheduler_id)},'.ljust(_ID_LINE) + "\n"


def load(directory: Path) -> RunRecord:
    """The record in ``directory``. Raises LlmbError where it is missing or cannot be read."""
    found = find(directory)
    if found is None:
        hint = "llmb-run jobs list shows the runs"
        raise LlmbError(f"{directory} does not contain a run", hint=hint, code="run-missing")
    return found


def find(directory: Path) -> RunRecord | None:
    """As ``load``; None where there is no record."""
    path = directory / RECORD
    try:
        data: Any = files.read_json(path)
    except LlmbError:  # half an id, which is being written at this moment
        data = files.read_json(path)
    if data is None and not path.exists():
        return None
    if data is None:  # `null`: the record exists and is empty
        raise LlmbError(f"{path} is damaged: it contains no data", hint="move it away", code="file-damaged")
    if not isinstance(data, dict) or data.pop(_VERSION, None) != SCHEMA_VERSION:
        message = f"{path} was written by another version of llmb"
        raise LlmbError(message, hint="use the version that wrote it", code="record-version")
    return typed.read_own(
        RunRecord, path, {**data, "job": _with_training(data.get("job")), "directory": str(directory)}
    )


def _with_training(job: Any) -> Any:
    """The data of a job; releases before 0.2 wrote the numbers of its training beside the others."""
    if not isinstance(job, dict) or "training" in job or "tp" not in job:
        return job
    own = {field.name for field in fields(Training)}
    return {name: value for name, value in job.items() if name not in own} | {
        "training": {name: value for name, value in job.items() if name in own}
    }
