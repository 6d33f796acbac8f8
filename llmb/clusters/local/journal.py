# SPDX-License-Identifier: Apache-2.0
"""What becomes of a local run, in its own folder: scheduler.json, and the mark cancel.json that asks for its end.

Whoever creates scheduler.json decides: a runner, which thereby starts the run, or a cancel, which thereby prevents it.
After that the runner alone writes it, and when the runner is gone, whoever finds that out.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path

from llmb.errors import LlmbError
from llmb.runs.state import LOST, JobState, Moment
from llmb.system import console, files
from llmb.system.process import ProcessId
from llmb.text import typed

SCHEDULER = "scheduler.json"
CANCEL = "cancel.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a run ended, and when in epoch seconds.

    ``exit_code`` is that of the first rank that failed, as a shell gives it; ``exit_codes`` are those of all ranks in
    order, negative for a signal, None for a rank without one.
    """

    state: str
    reason: str = ""
    exit_code: int | None = None
    exit_codes: tuple[int | None, ...] = ()
    ended: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """scheduler.json: the runner (None for a run that never started), its ranks, start and end in epoch seconds."""

    schema_version: int = 1
    id: str
    runner: ProcessId | None = None
    ranks: tuple[ProcessId, ...] = ()
    started: Moment | None = None
    end: End | None = None


def end_now(state: str, reason: str = "", *, exit_code: int | None = None) -> End:
    """An end at this moment."""
    return End(state=state, reason=reason, exit_code=exit_code, ended=time.time())


def read(directory: Path) -> Journal | None:
    """The journal of the run in ``directory``, None for one that has not started. Raises LlmbError."""
    path = directory / SCHEDULER
    data = files.read_json(path)
    return None if data is None else typed.read_own(Journal, path, data)


def create(directory: Path, journal: Journal) -> bool:
    """Write the first journal of a run; False when it has one. Raises LlmbError, also when the folder is gone."""
    _check_there(directory)
    return files.create_text(directory / SCHEDULER, files.to_json(typed.to_data(journal)))


def update(directory: Path, journal: Journal) -> None:
    """Write a journal over the one before, whose keys of a newer release are kept. Raises LlmbError, also when the
    folder is gone."""
    _check_there(directory)
    path = directory / SCHEDULER
    try:
        before = files.read_json(path)
    except LlmbError:  # damaged, and written anew
        before = None
    files.write_json(path, typed.keeping(journal, before))


def conclude(directory: Path, run_id: str, end: End) -> End:
    """Write ``end`` unless the run has one already; the end that stands. Raises LlmbError."""
    journal = _read_or_begin(directory, run_id)
    if journal is None:
        if create(directory, Journal(id=run_id, end=end)):
            return end
        journal = read(directory) or Journal(id=run_id)
    if journal.end is None:
        update(directory, replace(journal, end=end))
    return journal.end or end


def _read_or_begin(directory: Path, run_id: str) -> Journal | None:
    """As ``read``; a damaged journal is begun anew, for whoever knows how the run has ended."""
    try:
        return read(directory)
    except LlmbError as error:
        console.warn_once(error.message)
        return Journal(id=run_id)


def ask_to_cancel(directory: Path, who: str) -> None:
    """Leave the mark that ends a run. Who asked first stays. Raises LlmbError."""
    _check_there(directory)
    files.create_text(directory / CANCEL, files.to_json({"by": who, "at": time.time()}))


def cancelled_by(directory: Path) -> str | None:
    """Who has asked for the end of this run, None when nobody has."""
    try:
        data = files.read_json(directory / CANCEL)
    except LlmbError:  # the mark is there, and that is what counts
        data = {}
    who = data.get("by") if isinstance(data, dict) else None
    return None if data is None else f"by {who if isinstance(who, str) else 'an unknown user'}"


def state_of_end(journal: Journal, end: End) -> JobState:
    """``end`` in the words of every cluster."""
    return JobState(
        state=end.state,
        reason=end.reason,
        exit_code=end.exit_code,
        started=journal.started,
        ended=end.ended,
        certain=end.state == LOST,  # by the machine's restart
    )


def _check_there(directory: Path) -> None:
    if not directory.is_dir():  # to write there would make it again
        raise LlmbError(f"the run folder {directory} is gone")
