# SPDX-License-Identifier: Apache-2.0
"""The state of a local run, from its folder and the queue; no process is started to find it."""

import os
from collections.abc import Mapping
from pathlib import Path

from llmb.clusters.local import journal
from llmb.clusters.local.journal import End, Journal, end_now
from llmb.clusters.local.ranks import sweep
from llmb.errors import LlmbError
from llmb.runs.record import RunRecord
from llmb.runs.state import CANCELLED, FAILED, LOST, NEXT, PENDING, RUNNING, UNKNOWN, JobState

RESTARTED = "this machine was restarted while it ran"
KILLED = "its runner was killed"


def is_abandoned(seen: Journal) -> bool:
    """Whether the run has no end and nobody left who would write one. Only to be asked on the host it ran on."""
    return seen.end is None and not (seen.runner is not None and seen.runner.is_alive())


def settle(directory: Path, seen: Journal) -> End:
    """The end of an abandoned run, which stands from now on.

    Where it cannot be written (another user's run, a full disk), it is told all the same.
    """
    again = journal.read(directory)  # its runner may have written the end just before it went
    if again is not None and again.end is not None:
        return again.end
    end = _end_of(directory, seen)
    try:
        return journal.conclude(directory, seen.id, end)
    except LlmbError:
        return end


def _end_of(directory: Path, seen: Journal) -> End:
    if seen.runner is not None and not seen.runner.is_of_this_boot:
        return end_now(LOST, RESTARTED)
    sweep(seen.id)
    if cancelled := journal.cancelled_by(directory):
        return end_now(CANCELLED, cancelled)
    return end_now(FAILED, KILLED)


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
    if is_abandoned(seen):
        return journal.state_of_end(seen, settle(directory, seen))
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
