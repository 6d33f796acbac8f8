# SPDX-License-Identifier: Apache-2.0
"""The state of a local run, from its folder and the queue. A run whose runner is gone gets its end here."""

import os
from collections.abc import Mapping
from pathlib import Path

from llmb.clusters.local import journal
from llmb.clusters.local.journal import End, Journal, end_now
from llmb.clusters.local.ranks import sweep
from llmb.errors import LlmbError
from llmb.runs import state as codes
from llmb.runs.record import RunRecord
from llmb.runs.state import CANCELLED, FAILED, LOST, PENDING, RUNNING, UNKNOWN, JobState

NEVER_QUEUED = JobState(state=LOST, reason="llmb-run was interrupted before it queued the run")


def state_of(run: RunRecord, ahead: Mapping[str, int]) -> JobState:
    """The state of ``run``. Read ``ahead`` from the queue just before: a run leaves the queue when it starts.

    NEVER_QUEUED is true only if the queue was read after the run's submitter had ended.
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
    if is_abandoned(seen):
        return journal.state_of_end(seen, settle(directory, seen))
    return JobState(state=RUNNING, started=seen.started)


def _not_started(run: RunRecord, ahead: Mapping[str, int]) -> JobState:
    if (before := ahead.get(run.stamp.id)) is not None:
        return _waiting(before)
    if not run.submitter.is_here:
        return JobState(state=UNKNOWN, reason=f"it was submitted on {run.submitter.host}; ask there")
    if run.directory.exists() and run.directory.stat().st_uid != os.getuid():
        return JobState(state=UNKNOWN, reason="it waits in another user's queue")
    if run.submitter.is_alive():
        return JobState(state=PENDING, reason="it is being submitted")
    return NEVER_QUEUED


def _waiting(before: int) -> JobState:
    if before == 0:
        return JobState(state=PENDING, reason=codes.NEXT, code=codes.NEXT_CODE)
    return JobState(state=PENDING, reason=f"queued behind {before} job{'s' if before > 1 else ''}")


def is_abandoned(seen: Journal) -> bool:
    """Whether the run has no end and no process is left to write one. Ask only on the host where it ran."""
    return seen.end is None and not (seen.runner is not None and seen.runner.is_alive())


def settle(directory: Path, seen: Journal) -> End:
    """Kill what an abandoned run left running; write and return its end.

    Where the end cannot be written (another user's run, a full disk), it is only returned.
    """
    again = journal.read(directory)  # the runner may have written the end just before it exited
    if again is not None and again.end is not None:
        return again.end
    end = _end_of_abandoned(directory, seen)
    try:
        return journal.conclude(directory, seen.id, end)
    except LlmbError:
        return end


def _end_of_abandoned(directory: Path, seen: Journal) -> End:
    if seen.runner is not None and not seen.runner.is_of_this_boot:
        return end_now(LOST, "this machine was restarted while it ran")
    sweep(seen.id)
    if cancelled := journal.cancelled_by(directory):
        return end_now(CANCELLED, cancelled)
    return end_now(FAILED, "its runner was killed")
