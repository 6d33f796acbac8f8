# SPDX-License-Identifier: Apache-2.0
"""The journal of a local run, scheduler.json, the request to cancel it, cancel.json, and its state.

The process that creates scheduler.json decides: a runner starts the run, a cancel prevents it.
Afterwards only the runner writes it, or when the runner is gone, the process that notices that.
"""

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from llmb.builtin.local.ranks import sweep
from llmb.contract.record import RunRecord
from llmb.contract.state import (
    CANCELLED,
    FAILED,
    LOST,
    NEXT,
    NEXT_CODE,
    PENDING,
    RUNNING,
    UNKNOWN,
    JobState,
    Moment,
)
from llmb.core import console, files, process, typed
from llmb.core.values import dataclass
from llmb.errors import LlmbError

SCHEDULER = "scheduler.json"
CANCEL = "cancel.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """The end of a run: its exit codes, and the time in epoch seconds."""

    state: str
    reason: str = ""
    #: Of the first rank that failed, as a shell gives it.
    exit_code: int | None = None
    #: Of all ranks in order, negative for a signal, None for a rank without one.
    exit_codes: tuple[int | None, ...] = ()
    ended: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """scheduler.json: the runner (None for a run that never started), its ranks, start and end in
    epoch seconds.
    """

    schema_version: int = 1
    id: str
    runner: process.ProcessId | None = None
    ranks: tuple[process.ProcessId, ...] = ()
    started: Moment | None = None
    end: RunEnd | None = None


def end_now(state: str, reason: str = "", *, exit_code: int | None = None) -> RunEnd:
    """An end with the present time."""
    return RunEnd(state=state, reason=reason, exit_code=exit_code, ended=time.time())


def read(directory: Path) -> Journal | None:
    """The journal of the run in ``directory``, or None for a run that has not started. Raises
    LlmbError.
    """
    path = directory / SCHEDULER
    data = files.read_json(path)
    return None if data is None else typed.read_own(Journal, path, data)


def create(directory: Path, journal: Journal) -> bool:
    """Create the journal of a run. Return False if it has one. Raises LlmbError, also when the
    folder is gone.
    """
    _check_there(directory)
    return files.create_text(directory / SCHEDULER, files.to_json(typed.to_data(journal)))


def update(directory: Path, journal: Journal) -> None:
    """Overwrite a journal, but for keys of a newer release. Raises LlmbError, also when the folder
    is gone.
    """
    _check_there(directory)
    path = directory / SCHEDULER
    try:
        before = files.read_json(path)
    except LlmbError:  # damaged: it is replaced
        before = None
    files.write_json(path, typed.keeping(journal, before))


def conclude(directory: Path, run_id: str, end: RunEnd) -> RunEnd:
    """Write ``end`` unless the run has one already. Return the run's end. Raises LlmbError."""
    journal = _read_or_begin(directory, run_id)
    if journal is None:
        if create(directory, Journal(id=run_id, end=end)):
            return end
        journal = read(directory) or Journal(id=run_id)
    if journal.end is None:
        update(directory, replace(journal, end=end))
    return journal.end or end


def _read_or_begin(directory: Path, run_id: str) -> Journal | None:
    """Return what ``read`` gives, or a new journal for a damaged one: the caller knows how the run
    ended.
    """
    try:
        return read(directory)
    except LlmbError as error:
        console.warn_once(error.message)
        return Journal(id=run_id)


def ask_to_cancel(directory: Path, user: str) -> None:
    """Request the cancellation of a run. The first request stays. Raises LlmbError."""
    _check_there(directory)
    files.create_text(directory / CANCEL, files.to_json({"by": user, "at": time.time()}))


def cancelled_by(directory: Path) -> str | None:
    """``by NAME`` of the user who requested the cancellation, or None without a request."""
    try:
        data = files.read_json(directory / CANCEL)
    except LlmbError:  # damaged, but it is a request
        data = {}
    user = data.get("by") if isinstance(data, dict) else None
    return None if data is None else f"by {user if isinstance(user, str) else 'an unknown user'}"


def state_of_end(journal: Journal, end: RunEnd) -> JobState:
    """``end`` as a state of any cluster."""
    return JobState(
        state=end.state,
        reason=end.reason,
        exit_code=end.exit_code,
        started=journal.started,
        ended=end.ended,
        certain=end.state == LOST,  # the machine was restarted
        nodes=_node(journal),
    )


def _node(journal: Journal) -> str:
    """Return the machine that started the run, empty if none did."""
    runner = journal.runner
    return runner.host if runner is not None and journal.started is not None else ""


def _check_there(directory: Path) -> None:
    if not directory.is_dir():  # writing would create it again
        raise LlmbError(
            f"the run folder {directory} no longer exists",
            code="run-folder-missing",
            value=str(directory),
        )


def say(text: str) -> None:
    """Print a line of the log of a runner or the supervisor."""
    with contextlib.suppress(OSError):  # the disk of the log is full
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}", flush=True)


NEVER_QUEUED = JobState(state=LOST, reason="llmb-run was interrupted before it queued the run")


def state_of(run: RunRecord, ahead: Mapping[str, int]) -> JobState:
    """The state of ``run``. Read ``ahead`` from the queue just before: a run leaves the queue when
    it starts.

    NEVER_QUEUED is true only if the queue was read after the run's submitter had ended.
    """
    try:
        journal = read(run.place)
        return (
            _state_before_start(run, ahead)
            if journal is None
            else _state_of_started(run.place, journal)
        )
    except LlmbError as error:
        return JobState(state=UNKNOWN, reason=error.message)


def _state_of_started(directory: Path, journal: Journal) -> JobState:
    if journal.end is not None:
        return state_of_end(journal, journal.end)
    if journal.runner is not None and not journal.runner.is_here:
        return JobState(
            state=UNKNOWN,
            reason=f"it runs on {journal.runner.host}; ask there",
            started=journal.started,
        )
    if is_abandoned(journal):
        return state_of_end(journal, settle(directory, journal))
    return JobState(state=RUNNING, started=journal.started, nodes=_node(journal))


def _state_before_start(run: RunRecord, ahead: Mapping[str, int]) -> JobState:
    if (before := ahead.get(run.stamp.id)) is not None:
        if before == 0:
            return JobState(state=PENDING, reason=NEXT, code=NEXT_CODE)
        return JobState(
            state=PENDING, reason=f"queued behind {before} job{'s' if before > 1 else ''}"
        )
    if not run.submitter.is_here:
        return JobState(
            state=UNKNOWN, reason=f"it was submitted on {run.submitter.host}; ask there"
        )
    if files.owner(run.directory) not in (None, os.getuid()):
        return JobState(state=UNKNOWN, reason="it waits in another user's queue")
    if run.submitter.is_alive():
        return JobState(state=PENDING, reason="it is being submitted")
    return NEVER_QUEUED


def is_abandoned(journal: Journal) -> bool:
    """Return True if the run has no end and no process can write one. Ask only on its host."""
    return journal.end is None and not (journal.runner is not None and journal.runner.is_alive())


def settle(directory: Path, journal: Journal) -> RunEnd:
    """Kill what an abandoned run left running. Write and return its end.

    Where the end cannot be written (another user's run, a full disk), it is only returned.
    """
    again = read(directory)  # the runner may have written the end just before it exited
    if again is not None and again.end is not None:
        return again.end
    end = _end_of_abandoned(directory, journal)
    try:
        return conclude(directory, journal.id, end)
    except LlmbError:
        return end


def _end_of_abandoned(directory: Path, journal: Journal) -> RunEnd:
    if journal.runner is not None and not journal.runner.is_of_this_boot:
        return end_now(LOST, "this machine was restarted while it ran")
    sweep(journal.id)
    if cancelled := cancelled_by(directory):
        return end_now(CANCELLED, cancelled)
    return end_now(FAILED, "its runner was killed")
