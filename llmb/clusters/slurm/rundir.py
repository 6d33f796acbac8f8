# SPDX-License-Identifier: Apache-2.0
"""What a run's own folder says of it on Slurm, whose daemons write into its logs as well."""

import re
from dataclasses import replace

from llmb.clusters import rundir
from llmb.clusters.rundir import Told, tail
from llmb.config.slurm import seconds
from llmb.runs.record import RunRecord
from llmb.runs.state import CANCELLED, COMPLETED, FAILED, TIMEOUT, JobState
from llmb.text.times import clock

_CANCELLED = re.compile(r"error: \*\*\* JOB (\d+) ON \S+ CANCELLED AT \S+(?: DUE TO ([A-Z ]+?))?(?:,[^*]*)? \*\*\*")
_LOST_NODE = re.compile(
    r"^srun: error: (Node failure on \S+|Aborting, io error and missing step on node \d+)", re.MULTILINE
)
_TIME = "#SBATCH --time="
_REQUEUED = "JOB REQUEUE"  # it started again, and how that ended comes later
_DUE_TO = {"TIME LIMIT": TIMEOUT, "NODE FAILURE": "NODE_FAIL", "PREEMPTION": "PREEMPTED", "DEADLINE": "DEADLINE"}


def read(run: RunRecord) -> Told:
    """What the script of the run's present attempt has written so far; a job's id is a number."""
    told = rundir.read(run)
    return told if told.job_id is None or told.job_id.isdecimal() else replace(told, job_id=None)


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
    found = [match for path in (run.log, run.batch_log) for match in _LOST_NODE.finditer(tail(path))]
    return found[-1][1] if found else None


def limit(run: RunRecord) -> str:
    """The time limit that the run's script asks for, as HH:MM:SS."""
    asked = (line.removeprefix(_TIME) for line in rundir.lines(run.script) if line.startswith(_TIME))
    text = next(asked, "")
    return clock(seconds(text) or run.launch.time_limit)


def _log_end(run: RunRecord) -> str | None:
    """The state that slurmd's last words in the script's output mean."""
    found = [match[2] or "" for path in (run.batch_log, run.log) for match in _CANCELLED.finditer(tail(path))]
    ends = [cause for cause in found if cause != _REQUEUED]
    return _DUE_TO.get(ends[-1], CANCELLED) if ends else None
