# SPDX-License-Identifier: Apache-2.0
"""What a run's own folder says of it: its script writes the job's id first and the exit code last."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from llmb.clusters.slurm.script import ENDED, SCHEDULER_ID
from llmb.runs.record import RunRecord
from llmb.state import CANCELLED, COMPLETED, FAILED, TIMEOUT, JobState

_TAIL = 16384  # bytes of a log's end
_CANCELLED = re.compile(r"error: \*\*\* JOB (\d+) ON \S+ CANCELLED AT \S+(?: DUE TO ([A-Z ]+?))?(?:,[^*]*)? \*\*\*")
_LOST_NODE = re.compile(
    r"^srun: error: (Node failure on \S+|Aborting, io error and missing step on node \d+)", re.MULTILINE
)
_DUE_TO = {"TIME LIMIT": TIMEOUT, "NODE FAILURE": "NODE_FAIL", "PREEMPTION": "PREEMPTED", "DEADLINE": "DEADLINE"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A run's own word: the job that runs it, the cluster's name, when it started, its exit code and its end."""

    job_id: str | None = None
    cluster: str | None = None
    started: float | None = None
    exit_code: int | None = None
    ended: float | None = None


def read(run: RunRecord) -> Told:
    """What the script of the run's present attempt has written so far."""
    first = _lines(run.place / SCHEDULER_ID)
    last = _lines(run.place / ENDED)
    facts = dict(line.split(" ", 1) for line in [*first[1:], *last[1:]] if " " in line)
    return Told(
        job_id=first[0] if first and first[0].isdecimal() else None,
        cluster=facts.get("cluster") or None,
        started=_number(facts.get("started")),
        exit_code=int(last[0]) if last and last[0].isdecimal() else None,
        ended=_number(facts.get("ended")),
    )


def end_of(run: RunRecord, told: Told) -> JobState | None:
    """How the run ended, by its own files alone; None where they do not say."""
    said = _log_end(run)
    if said is not None:
        return JobState(state=said, started=told.started, ended=told.ended)
    if told.exit_code is None:
        return None
    state = COMPLETED if told.exit_code == 0 else FAILED
    return JobState(state=state, exit_code=told.exit_code, started=told.started, ended=told.ended)


def lost_node(run: RunRecord) -> str | None:
    """What srun said of a node that it lost; such a job may end FAILED, as the script itself goes on for a moment."""
    found = [match for path in (run.log, run.batch_log) for match in _LOST_NODE.finditer(_tail(path))]
    return found[-1][1] if found else None


def _log_end(run: RunRecord) -> str | None:
    """The state that slurmd's last words in the script's output mean."""
    found = [match for path in (run.batch_log, run.log) for match in _CANCELLED.finditer(_tail(path))]
    if not found:
        return None
    return _DUE_TO.get(found[-1][2] or "", CANCELLED)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not written yet
        return []


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - _TAIL))
            return stream.read().decode("utf-8", errors="replace")
    except OSError:  # it never started
        return ""


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() else None
