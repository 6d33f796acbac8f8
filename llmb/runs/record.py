# SPDX-License-Identifier: Apache-2.0
"""A run on disk: the record made before a submission, the source of truth for all that comes after."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llmb import files, typed, yamlfile
from llmb.errors import LlmbError
from llmb.job import Job
from llmb.launch import Launch
from llmb.process import ProcessId

RECORD = "llmb-run.json"
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One submitted job.

    ``directory``: ``experiments/<name>/<name>_<timestamp>``; ``created`` in seconds since the epoch; ``script`` is the
    name of the script's file within it; ``scheduler_id`` is None until the scheduler has answered; ``submitter`` is the
    process that made the record.
    """

    id: str
    created: int
    llmb_version: str
    cluster_type: str
    directory: Path
    job: Job
    launch: Launch
    script_name: str
    submitter: ProcessId
    scheduler_id: str | None = None

    @property
    def work(self) -> Path:
        """Where the ranks start and the logs are."""
        return self.directory / self.launch.name

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
        return self.directory / self.script_name

    @property
    def name(self) -> str:
        """The run's name for people: its directory's last part."""
        return self.directory.name

    def submitted(self, scheduler_id: str) -> RunRecord:
        """The record with the scheduler's answer."""
        return replace(self, scheduler_id=scheduler_id)


def save(record: RunRecord) -> None:
    """Write the record into its directory, atomically."""
    data = typed.to_data(record)
    del data["directory"]  # where it lies says it, also after the folder has been moved
    files.write_json(record.directory / RECORD, {"schema_version": SCHEMA_VERSION, **data})


def load(directory: Path) -> RunRecord:
    """The record in ``directory``. Raises LlmbError when there is none or it cannot be understood."""
    path = directory / RECORD
    data: Any = files.read_json(path)
    if data is None:
        raise LlmbError(f"{directory} holds no run", hint="llmb-run jobs list shows the runs")
    if not isinstance(data, dict) or data.pop("schema_version", None) != SCHEMA_VERSION:
        raise LlmbError(f"{path} was written by another version of llmb", hint="use the llmb that made it")
    document = yamlfile.Document(name=str(path), data={**data, "directory": str(directory)})
    return typed.read(RunRecord, document)
