# SPDX-License-Identifier: Apache-2.0
"""The states of many runs in one go: accounting, else the queue, else what the runs themselves have written."""

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from llmb.clusters import rundir
from llmb.clusters.rundir import Told, tail
from llmb.clusters.slurm import rows
from llmb.clusters.slurm.commands import Client, SilentError
from llmb.clusters.slurm.request import job_name
from llmb.clusters.slurm.rows import NO_ACCOUNTING, Row
from llmb.config.slurm import seconds
from llmb.errors import LlmbError
from llmb.runs import store
from llmb.runs.record import RunRecord
from llmb.runs.state import CANCELLED, COMPLETED, FAILED, LOST, TIMEOUT, UNKNOWN, WAITING, JobState
from llmb.text.times import clock

_CANCELLED = re.compile(r"error: \*\*\* JOB (\d+) ON \S+ CANCELLED AT \S+(?: DUE TO ([A-Z ]+?))?(?:,[^*]*)? \*\*\*")
_LOST_NODE = re.compile(
    r"^srun: error: (Node failure on \S+|Aborting, io error and missing step on node \d+)", re.MULTILINE
)
_TIME = "#SBATCH --time="
_REQUEUED = "JOB REQUEUE"  # it started again, and how that ended comes later
_DUE_TO = {"TIME LIMIT": TIMEOUT, "NODE FAILURE": "NODE_FAIL", "PREEMPTION": "PREEMPTED", "DEADLINE": "DEADLINE"}


def read_files(run: RunRecord) -> Told:
    """What the script of the run's present attempt has written so far; a job's id is a number."""
    told = rundir.read(run)
    return told if told.job_id is None or told.job_id.isdecimal() else replace(told, job_id=None)


def _end_of(run: RunRecord, told: Told) -> JobState | None:
    """How the run ended, by its own files alone; None where they do not say."""
    said = _log_end(run)
    if said is not None:
        return JobState(state=said, started=told.started, ended=told.ended)
    if told.exit_code is None:
        return None
    state = COMPLETED if told.exit_code == 0 else FAILED
    return JobState(state=state, exit_code=told.exit_code, started=told.started, ended=told.ended)


def _lost_node(run: RunRecord) -> str | None:
    """What srun said of a node that it lost; such a job may end FAILED, as the script itself goes on for a moment."""
    found = [match for path in (run.log, run.batch_log) for match in _LOST_NODE.finditer(tail(path))]
    return found[-1][1] if found else None


def _limit(run: RunRecord) -> str:
    """The time limit that the run's script asks for, as HH:MM:SS."""
    asked = (line.removeprefix(_TIME) for line in rundir.lines(run.script) if line.startswith(_TIME))
    text = next(asked, "")
    return clock(seconds(text) or run.launch.time_limit)


def _log_end(run: RunRecord) -> str | None:
    """The state that slurmd's last words in the script's output mean."""
    found = [match[2] or "" for path in (run.batch_log, run.log) for match in _CANCELLED.finditer(tail(path))]
    ends = [cause for cause in found if cause != _REQUEUED]
    return _DUE_TO.get(ends[-1], CANCELLED) if ends else None


YOUNG = 300.0  # seconds before its submission from which accounting is asked for a job's name: clocks may differ
BRIEF = 6.0  # seconds for the answer to a question that nobody has asked before
OVERDUE = 600.0  # seconds over its limit after which a job that accounting calls running is looked for in the queue
_KILLED = "JobLaunchFailure"  # so the queue also calls a script that began, and that a signal has ended
_KILLED_REASON = "its script was killed: the node failed, or had no memory left"
_FIRST_REST, _LONGEST_REST = 15.0, 300.0  # seconds that an accounting that failed is left alone


@dataclass(slots=True, kw_only=True)
class Memory:
    """What one command remembers between polls: the accounting's health, and which cluster it asks.

    ``is_patient``: whether Slurm was asked before; a command that asks once waits only briefly for an answer.
    """

    is_patient: bool = False
    has_accounting: bool = True
    rest_until: float = 0.0
    rest: float = _FIRST_REST
    cluster: str | None = None


@dataclass(slots=True, kw_only=True)
class View:
    """What is known of one run in a poll: by its own files, by accounting, by the queue where that was asked."""

    run: RunRecord
    told: Told
    accounted: JobState | None = None
    queued: JobState | None = None
    silence: str | None = None

    @property
    def job_id(self) -> str | None:
        """Its job: the one that runs it, where a submission arrived twice."""
        return self.told.job_id or self.run.scheduler_id

    @property
    def is_open(self) -> bool:
        """Whether the queue is to be asked: for what accounting lacks, for reasons, for an end it has yet to hear."""
        state = self.accounted
        if state is None or state.state in WAITING:
            return True
        if state.is_end:
            return False
        overdue = state.started is not None and time.time() - state.started > self.run.launch.time_limit + OVERDUE
        return self.told.exit_code is not None or overdue

    @property
    def known(self) -> JobState | None:
        """The state, None for a job that the queue was asked for and does not have."""
        if self.accounted is not None and not self.is_open:
            return self.accounted
        return self.queued


@dataclass(frozen=True, slots=True, kw_only=True)
class Poller:
    """Asks Slurm for ``runs`` that were submitted; ``memory`` lasts as long as the command."""

    client: Client
    memory: Memory

    @property
    def asker(self) -> Client:
        """The client as patient as it shall be now."""
        brief = min(BRIEF, self.client.ask_seconds)
        return self.client if self.memory.is_patient else replace(self.client, ask_seconds=brief)

    def states(self, runs: Sequence[RunRecord]) -> dict[str, JobState]:
        """The state of each run by its id. Raises SilentError where neither accounting nor queue answers."""
        try:
            return self._states(runs)
        finally:
            self.memory.is_patient = True

    def _states(self, runs: Sequence[RunRecord]) -> dict[str, JobState]:
        views = {run.id: View(run=run, told=read_files(run)) for run in runs}
        by_job = {view.job_id: view for view in views.values() if view.job_id is not None}
        for row in self._accounted(by_job):
            by_job[row.job_id].accounted = row.state
        asked = {job_id: view for job_id, view in by_job.items() if view.is_open}
        try:
            for row in self._queued(asked):
                asked[row.job_id].queued = row.state
        except SilentError as error:
            if not any(view.accounted for view in views.values()):
                raise
            for view in asked.values():
                view.silence = error.message
        return {run_id: self._state(view) for run_id, view in views.items()}

    def identity(self) -> str:
        """Which cluster Slurm's commands ask, by the name of its configuration. Raises LlmbError."""
        if self.memory.cluster is None:
            self.memory.cluster = f"Slurm cluster {rows.cluster_name(self.asker)}"
        return self.memory.cluster

    def find(self, runs: Sequence[RunRecord]) -> dict[str, str]:
        """The ids of those of these runs that Slurm knows by their names. Raises LlmbError where it does not answer."""
        found = {run.id: told.job_id for run in runs if (told := read_files(run)).job_id is not None}
        by_name = {name_of(run): run for run in runs if run.id not in found}
        if not by_name:
            return found
        for row in rows.queued(self.asker, names=list(by_name)):
            _keep_first(found, by_name, row)
        left = {name: run for name, run in by_name.items() if run.id not in found}
        if left and self.memory.has_accounting:
            age = time.time() - min(run.submitted_at for run in left.values())
            try:
                listed = rows.accounted(self.asker, names=list(left), within=age + YOUNG)
            except LlmbError as error:
                self._note_accounting(error)
                if self.memory.has_accounting:
                    raise
                listed = []
            for row in listed:
                _keep_first(found, left, row)
        return found

    def _accounted(self, by_job: Mapping[str, View]) -> Iterable[Row]:
        memory = self.memory
        if not by_job or not memory.has_accounting or time.monotonic() < memory.rest_until:
            return []
        try:
            found = rows.accounted(self.asker, ids=list(by_job))
        except LlmbError as error:
            self._note_accounting(error)
            return []
        memory.rest, memory.rest_until = _FIRST_REST, 0.0
        # A row without its name has come before its job's true end; one of another name is another cluster's.
        return [row for row in found if row.job_id in by_job and row.name == name_of(by_job[row.job_id].run)]

    def _note_accounting(self, error: LlmbError) -> None:
        memory = self.memory
        if NO_ACCOUNTING.search(error.message):
            memory.has_accounting = False
            return
        memory.rest_until = time.monotonic() + memory.rest
        memory.rest = min(2 * memory.rest, _LONGEST_REST)

    def _queued(self, by_job: Mapping[str, View]) -> Iterable[Row]:
        if not by_job:
            return []
        try:
            found = rows.queued(self.asker, ids=list(by_job))
        except SilentError:
            raise
        except LlmbError as error:  # nobody here to ask, or a question it refuses: nothing is known either way
            raise SilentError(error.message, hint=error.hint) from error
        return [row for row in found if row.job_id in by_job and row.name == name_of(by_job[row.job_id].run)]

    def _state(self, view: View) -> JobState:
        if view.queued is None and view.silence is not None:
            return (view.accounted or last_seen(view.run)).unanswered(view.silence)
        known = view.known
        if known is None:
            return self._gone(view)
        return self._complete(view, known)

    def _complete(self, view: View, state: JobState) -> JobState:
        """The state with what the rows left out."""
        if state.state == TIMEOUT:
            return replace(state, reason=f"ran longer than its limit of {_limit(view.run)}")
        if state.state != FAILED:
            return state
        if (said := _lost_node(view.run)) is not None:
            return replace(state, state="NODE_FAIL", reason=said)
        told = read_files(view.run)  # it may have ended since it was read
        if told.job_id is not None and told.exit_code is None and _was_killed(state):
            return replace(state, exit_code=None, reason=_KILLED_REASON)
        # Accounting keeps seven bits of it: 137 comes back as 9.
        codes = (told.exit_code, state.exit_code)
        known = next((code for code in codes if code is not None), None)
        return replace(state, exit_code=known if known is not None else self._exit_code(view.job_id))

    def _exit_code(self, job_id: str | None) -> int | None:
        try:
            return rows.exit_code(self.asker, job_id) if job_id is not None else None
        except LlmbError:  # the state stands without it
            return None

    def _gone(self, view: View) -> JobState:
        """The state of a run that Slurm was asked for and did not know."""
        run = view.run
        what = f"Slurm no longer knows job {view.job_id}" if view.job_id else "Slurm does not know it"
        if (end := _end_of(run, view.told)) is not None:
            return replace(end, reason=f"by its own files; {what}")
        before = view.accounted or last_seen(run)
        if not _is_ours(run):
            return replace(before, reason=f"{what}, or hides it: it is another user's")
        if time.monotonic() < self.memory.rest_until:
            return replace(before, reason=f"{what}, and its accounting does not answer")
        return JobState(state=LOST, reason=f"{what}, and it left no end; last seen {before.state}")


def _was_killed(state: JobState) -> bool:
    """Whether a signal ended a job's script: accounting keeps seven bits of an exit code, so 128 more is a signal."""
    return state.reason.startswith(_KILLED) or (state.exit_code or 0) > 128


def name_of(run: RunRecord) -> str:
    """The run's name in Slurm's queue."""
    return job_name(run.launch, run.stamp)


def last_seen(run: RunRecord) -> JobState:
    """What was seen of the run before."""
    return store.seen_state(run) or JobState(state=UNKNOWN)


def _keep_first(found: dict[str, str], by_name: Mapping[str, RunRecord], row: Row) -> None:
    """Keep the id of the first job of a name: of one submitted twice, the second ends itself."""
    run = by_name.get(row.name)
    if run is not None and (run.id not in found or int(row.job_id) < int(found[run.id])):
        found[run.id] = row.job_id


def _is_ours(run: RunRecord) -> bool:
    return not run.directory.exists() or run.directory.stat().st_uid == os.getuid()
