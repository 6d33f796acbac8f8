# SPDX-License-Identifier: Apache-2.0
"""The state of a local run, from its folder and the queue; no process is started to find it."""

import os
from collections.abc import Mapping
from pathlib import Path

from llmb.clusters.local import journal, settle
from llmb.clusters.local.journal import Journal
from llmb.errors import LlmbError
from llmb.runs.record import RunRecord
from llmb.runs.state import LOST, NEXT, PENDING, RUNNING, UNKNOWN, JobState

NEVER_CAME = JobState(state=LOST, reason="it was never handed over: llmb-run was interrupted")


def state_of(run: RunRecord, ahead: Mapping[str, int]) -> JobState:
    """The state of ``run``. ``ahead`` must be read from the queue just before: a run leaves it when it has started.

    NEVER_CAME is true only if the queue was read after the run's submitter had gone.
    """
    try:
        seen = journal.read(run.place)
        return _not_started(run, ahead) if seen is None else _started(run.place, seen)
    except LlmbError as error:
        return JobState(state=UNKNOWN, reason=error.message)


def _started(directory: Path, seen: Journal) -> JobState:
    if seen.end is not None:
        return journal.state_of_end(seen, seen.end)
    if seen.runner is not None and not seen.runner.is_here:
        return JobState(state=UNKNOWN, reason=f"it runs on {seen.runner.host}; ask there", started=seen.started)
    if settle.is_abandoned(seen):
        return journal.state_of_end(seen, settle.settle(directory, seen))
    return JobState(state=RUNNING, started=seen.started)


def _not_started(run: RunRecord, ahead: Mapping[str, int]) -> JobState:
    if run.stamp.id in ahead:
        return JobState(state=PENDING, reason=_turn(ahead[run.stamp.id]))
    if not run.submitter.is_here:
        return JobState(state=UNKNOWN, reason=f"it was submitted on {run.submitter.host}; ask there")
    if run.directory.exists() and run.directory.stat().st_uid != os.getuid():
        return JobState(state=UNKNOWN, reason="it waits in another user's queue")
    if run.submitter.is_alive():
        return JobState(state=PENDING, reason="it is being handed over")
    return NEVER_CAME


def _turn(before: int) -> str:
    if before == 0:
        return NEXT
    return "1 job before it" if before == 1 else f"{before} jobs before it"
