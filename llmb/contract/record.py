# SPDX-License-Identifier: Apache-2.0
"""A run's record on disk, written before its submission: the source of truth for the rest."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmb.contract.job import Job
from llmb.contract.launch import Launch, Stamp
from llmb.contract.settings import Settings
from llmb.contract.software import Software
from llmb.contract.state import JobState, Moment
from llmb.core import files, typed
from llmb.core.process import ProcessId
from llmb.core.values import dataclass
from llmb.errors import LlmbError

RECORD = "llmb-run.json"
SCHEMA_VERSION = 1
_VERSION = "schema_version"
_HEAD = f'{{\n  "{_VERSION}": {SCHEMA_VERSION},\n'
_ID_LINE = 72  # characters; among the first 512 bytes of the file


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt that has ended, and its end."""

    submitted: Moment
    scheduler_id: str | None
    state: JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The source of an imported run."""

    #: The program that ran it.
    tool: str
    #: The run's own, with its files.
    folder: Path
    #: The tool's release, None if unknown.
    release: str | None = None
    #: The iterations that the release measures, None for llmb's.
    window: tuple[int, ...] | None = None

    def __str__(self) -> str:
        """As in ``Acme's acme-bench 7.2, /shared/.../<name>``."""
        return f"{self.tool}{f' {self.release}' if self.release else ''}, {self.folder}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The runs of one submitting command, with its retries and resumed submissions."""

    #: A day and letters: ``2026-11-23a``. Without letters for runs that have none recorded.
    id: str
    #: The user's name for it.
    name: str | None = None
    #: In seconds since the epoch.
    created: Moment
    #: The SHA-256 of the job list, None without one.
    list_sha256: str | None = None
    #: The absolute path of the job list.
    list_path: str | None = None
    #: The command line.
    command: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairMember:
    """One of two runs that differ in one setting, and ran one after the other on the same nodes."""

    #: From 1 in each configuration.
    number: int
    #: A or B.
    side: str
    #: The setting in which the two differ.
    setting: str
    #: The value of this run.
    value: str

    def __str__(self) -> str:
        """As in ``A, NCCL_ALGO=Ring``."""
        return f"{self.side}, {self.setting}={self.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One submitted job.

    ``script_name``, ``scheduler_id``, ``submitter`` and ``cluster`` are of the current ``attempt``.
    """

    id: str
    #: In seconds since the epoch.
    created: Moment
    llmb_version: str
    cluster_type: str
    #: ``experiments/<name>/<name>_<timestamp>``.
    directory: Path
    job: Job
    launch: Launch
    #: The script's file within ``place``.
    script_name: str
    #: The process that submits it.
    submitter: ProcessId
    #: The cluster that has it, None if unknown.
    cluster: str | None = None
    #: None until the scheduler has answered.
    scheduler_id: str | None = None
    attempt: int = 1
    #: When the current attempt was created, None for the first.
    retried: Moment | None = None
    #: Earlier attempts.
    history: tuple[Attempt, ...] = ()
    #: Of an imported run, which llmb did not submit and never submits again. Its logs are links to
    #: the original files.
    origin: Origin | None = None
    #: None in records of earlier releases and of imported runs.
    session: Session | None = None
    #: As it was at the submission, None if unknown.
    software: Software | None = None
    #: None unless it was submitted with ``--ab``.
    pair: PairMember | None = None

    @property
    def settings(self) -> Settings:
        """The settings of its job, with its software."""
        return self.job.settings_with(self.software)

    @property
    def stamp(self) -> Stamp:
        """The stamp of the current attempt's script."""
        attempt_id = self.id if self.attempt == 1 else f"{self.id}-{self.attempt}"
        timestamp = self.directory.name.rpartition("_")[2]
        return Stamp(
            id=attempt_id, timestamp=timestamp, directory=str(self.directory), attempt=self.attempt
        )

    @property
    def place(self) -> Path:
        """The folder of the current attempt's files: the run's directory, or a folder in it."""
        return self.directory if self.attempt == 1 else Path(self.stamp.place)

    @property
    def work(self) -> Path:
        """The working folder of the ranks, which has the logs."""
        return Path(self.stamp.work(self.launch.name))

    @property
    def log(self) -> Path:
        """The file of the training log."""
        return Path(f"{self.stamp.work(self.launch.name)}/log-{self.launch.name}.out")

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
        """The time at which the current attempt was created, in seconds since the epoch."""
        return self.created if self.retried is None else self.retried

    def submitted(self, scheduler_id: str) -> RunRecord:
        """The record with the scheduler's id."""
        return replace(self, scheduler_id=scheduler_id)

    def next_attempt(self, end: JobState, submitter: ProcessId, now: float) -> RunRecord:
        """Return the record of the next attempt, created at ``now`` and not submitted yet.

        ``end``: the end of the current attempt.
        """
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
    # One line per field: indentation would need Python's slow encoder, while other submissions
    # wait.
    lines = (f'  "{name}": {json.dumps(value, ensure_ascii=False)}' for name, value in data.items())
    files.write_text(path, f"{_HEAD}{_id_line(record.scheduler_id)}" + ",\n".join(lines) + "\n}\n")


def _before(path: Path) -> Any:
    """Return the data that is being replaced, whose keys of a newer release are kept."""
    data = files.read_json_if_sound(path)
    return {key: data[key] for key in data if key != _VERSION} if isinstance(data, dict) else None


def save_scheduler_id(record: RunRecord) -> None:
    """Write the scheduler's id into the record on disk, which was saved without it.

    The id overwrites its line in place, in one write: a new file for each of hundreds of runs would
    slow submissions.
    """
    line = _id_line(record.scheduler_id)
    if not files.overwrite(record.directory / RECORD, line, at=len(_HEAD), over=_id_line(None)):
        save(record)


def _id_line(scheduler_id: str | None) -> str:
    """Return the line of the scheduler's id, padded so that an id fits in place of null."""
    return f'  "scheduler_id": {json.dumps(scheduler_id)},'.ljust(_ID_LINE) + "\n"


def load(directory: Path) -> RunRecord:
    """Return the record in ``directory``. Raises LlmbError if it is missing or damaged."""
    record = find(directory)
    if record is None:
        hint = "llmb-run jobs shows the runs"
        raise LlmbError(f"{directory} does not contain a run", hint=hint, code="run-missing")
    return record


def find(directory: Path) -> RunRecord | None:
    """Return the record in ``directory``, or None. Raises LlmbError if it is damaged."""
    path = f"{directory}/{RECORD}"
    try:
        data: Any = files.read_json(path)
    except LlmbError:  # half an id, which is being written at this moment
        data = files.read_json(path)
    if data is None and not files.exists(path):
        return None
    if data is None:  # `null`: the record exists and is empty
        raise LlmbError(
            f"{path} is damaged: it contains no data", hint="move it away", code="file-damaged"
        )
    if not isinstance(data, dict) or data.pop(_VERSION, None) != SCHEMA_VERSION:
        message = f"{path} was written by another version of llmb"
        raise LlmbError(message, hint="use the version that wrote it", code="record-version")
    return typed.read_own(RunRecord, path, {**data, "directory": directory})
