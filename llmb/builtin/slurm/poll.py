# SPDX-License-Identifier: Apache-2.0
"""The states of many runs in one poll: from accounting, else the queue, else the files that the
runs have written.
"""

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from llmb.builtin.slurm import commands, sbatch_options
from llmb.contract.record import RunRecord
from llmb.contract.sbatch import seconds
from llmb.contract.state import (
    CANCELLED,
    COMPLETED,
    FAILED,
    LOST,
    TIMEOUT,
    WAITING,
    JobState,
)
from llmb.core import files
from llmb.core.node_lists import fold
from llmb.core.times import clock
from llmb.errors import LlmbError
from llmb.kit import bashscript
from llmb.kit.seen_state import last_seen

# seconds before the submission from which accounting is asked for a job's name: clocks may differ
YOUNG = 300.0
BRIEF = 6.0  # seconds for the first answer that a command waits for
# seconds over its limit after which a job that accounting calls running is looked up in the queue
OVERDUE = 600.0
_FIRST_REST, _LONGEST_REST = 15.0, 300.0  # seconds before an accounting that failed is asked again
# the queue's reason also for a script that started and was killed by a signal
_LAUNCH_FAILURE = "JobLaunchFailure"
_CANCELLED = re.compile(
    r"error: \*\*\* JOB (\d+) ON \S+ CANCELLED AT \S+(?: DUE TO ([A-Z ]+?))?(?:,[^*]*)? \*\*\*"
)
_LOST_NODE = re.compile(
    r"^srun: error: (Node failure on \S+|Aborting, io error and missing step on node \d+)",
    re.MULTILINE,
)
_NO_NAME = "allocation"  # of a row that accounting writes before it knows the job
_MOST_FAILED = 8  # nodes: where more are down, which of them ended the job is not known
_TIME = "#SBATCH --time="
# seconds from the first start of a job's script to a start that makes it another: clocks may differ
_REQUEUED_AFTER = 60.0
_SECOND = "Slurm requeued it: a second attempt in the same log"
_PREEMPTED = "PREEMPTED"
_REQUEUED = "JOB REQUEUE"  # no end: the job started again
_DUE_TO = {
    "TIME LIMIT": TIMEOUT,
    "NODE FAILURE": "NODE_FAIL",
    "PREEMPTION": _PREEMPTED,
    "DEADLINE": "DEADLINE",
}


@dataclass(slots=True, kw_only=True)
class Memory:
    """The memory of one command between polls: the accounting's health, and the cluster that
    answers.
    """

    #: Whether Slurm was asked before. A command that asks once waits only briefly for an answer.
    is_patient: bool = False
    has_accounting: bool = True
    rest_until: float = 0.0
    rest: float = _FIRST_REST
    cluster: str | None = None
    renamed: dict[str, bool] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class View:
    """The facts of one poll about a run: from its files, from accounting, and from the queue."""

    run: RunRecord
    files: bashscript.RunFiles
    accounted: JobState | None = None
    queued: JobState | None = None
    silence: str | None = None

    @property
    def job_id(self) -> str | None:
        """The job that runs it, also where it was submitted twice."""
        return self.files.job_id or self.run.scheduler_id

    @property
    def is_open(self) -> bool:
        """Return True if accounting has no row, no reason, or no end of the job: ask the queue."""
        state = self.accounted
        if state is None or state.state in WAITING:
            return True
        if state.is_end:
            return False
        overdue = (
            state.started is not None
            and time.time() - state.started > self.run.launch.time_limit + OVERDUE
        )
        return self.files.exit_code is not None or overdue

    @property
    def is_of_another(self) -> bool:
        """Return True if another user submitted it: Slurm may hide its job."""
        return files.owner(self.run.directory) not in (None, os.getuid())

    @property
    def known(self) -> JobState | None:
        """The state, or None for a job that the queue was asked for and does not have."""
        return self.accounted if self.accounted is not None and not self.is_open else self.queued


@dataclass(frozen=True, slots=True, kw_only=True)
class Poller:
    """Asks Slurm about submitted runs. ``memory`` lasts as long as the command."""

    client: commands.Client
    memory: Memory

    @property
    def asker(self) -> commands.Client:
        """The client with the patience that this question deserves."""
        brief = min(BRIEF, self.client.ask_seconds)
        return self.client if self.memory.is_patient else replace(self.client, ask_seconds=brief)

    def states(self, runs: Sequence[RunRecord]) -> dict[str, JobState]:
        """The state of each run by its id. Raises SilentError where neither accounting nor queue
        answers.
        """
        try:
            return self._states(runs)
        finally:
            self.memory.is_patient = True

    def _states(self, runs: Sequence[RunRecord]) -> dict[str, JobState]:
        views = {run.id: View(run=run, files=read_files(run)) for run in runs}
        self._ask(views)
        # A run that was submitted twice runs as the job that writes its files first, and the other
        # job fails. Its files may have been written since they were read.
        moved = {
            run_id: View(run=view.run, files=written)
            for run_id, view in views.items()
            if view.files.job_id is None and view.known is not None and view.known.is_end
            if (written := read_files(view.run)).job_id not in (None, view.job_id)
        }
        if moved:
            self._ask(moved)
        return {run_id: self._state(view) for run_id, view in {**views, **moved}.items()}

    def _ask(self, views: Mapping[str, View]) -> None:
        """Ask accounting, and the queue where that is not enough, for the jobs of ``views``."""
        by_job = {view.job_id: view for view in views.values() if view.job_id is not None}
        for row in self._accounted(by_job):
            by_job[row.job_id].accounted = row.state
        open_views = {job_id: view for job_id, view in by_job.items() if view.is_open}
        try:
            for row in self._queued(open_views):
                open_views[row.job_id].queued = row.state
        except commands.SilentError as error:
            if not any(view.accounted for view in views.values()):
                raise
            for view in open_views.values():
                view.silence = error.message

    def identity(self) -> str:
        """Return the name of the cluster that Slurm's commands ask, from its configuration. Raises
        LlmbError.
        """
        if self.memory.cluster is None:
            self.memory.cluster = f"Slurm cluster {commands.cluster_name(self.asker)}"
        return self.memory.cluster

    def find(self, runs: Sequence[RunRecord]) -> dict[str, str]:
        """The job ids of those runs that Slurm knows by their names. Raises LlmbError where it does
        not answer.
        """
        ids = {
            run.id: files.job_id for run in runs if (files := read_files(run)).job_id is not None
        }
        by_name = {name_of(run): run for run in runs if run.id not in ids}
        if not by_name:
            return ids
        for row in commands.queued(self.asker, names=list(by_name)):
            _keep_first(ids, by_name, row)
        unanswered = {name: run for name, run in by_name.items() if run.id not in ids}
        if unanswered and self.memory.has_accounting:
            # No run is of later than now, though the clock may have been set back meanwhile.
            age = max(0.0, time.time() - min(run.submitted_at for run in unanswered.values()))
            try:
                listed = commands.accounted(self.asker, names=list(unanswered), within=age + YOUNG)
            except LlmbError as error:
                self._note_failure(error)
                if self.memory.has_accounting:
                    raise
                listed = []
            for row in listed:
                _keep_first(ids, unanswered, row)
        if any(run.id not in ids for run in unanswered.values()):
            self._find_renamed(ids, [run for run in unanswered.values() if run.id not in ids])
        return ids

    def _find_renamed(self, ids: dict[str, str], runs: Sequence[RunRecord]) -> None:
        """Add the jobs of runs that a plugin of the site, or a person, has given other names."""
        by_script = {str(run.script): run for run in runs}
        try:
            listed = list(commands.scripts(self.asker))
        except commands.SilentError:
            raise
        except LlmbError:  # an older squeue
            return
        for job_id, script in listed:
            run = by_script.get(script)
            if run is not None and (run.id not in ids or int(job_id) < int(ids[run.id])):
                ids[run.id] = job_id

    def jobs_to_cancel(self, runs: Sequence[RunRecord]) -> tuple[list[str], dict[str, str]]:
        """Return the jobs of ``runs`` that the queue has, and by run why it has none to cancel.

        A controller that lost its state gives old ids to new jobs, of anybody. Raises LlmbError.
        """
        found = self.find([run for run in runs if run.scheduler_id is None])
        # A run that was submitted twice may run as another job than the recorded one.
        ids_of = {
            run.id: [
                job_id
                for job_id in dict.fromkeys(
                    (run.scheduler_id or found.get(run.id), read_files(run).job_id)
                )
                if job_id is not None
            ]
            for run in runs
        }
        wanted = list(dict.fromkeys(job_id for ids in ids_of.values() for job_id in ids))
        names: dict[str, str] = {}
        for row in commands.queued(self.client, ids=wanted) if wanted else []:
            # squeue shows an array as 87_[0-3], and a part of a heterogeneous job as 87+0
            names.setdefault(re.split(r"[_+]", row.job_id)[0], row.name)
        accepted: list[str] = []
        refused: dict[str, str] = {}
        for run in runs:
            reasons = {job_id: self._objection(job_id, names, run) for job_id in ids_of[run.id]}
            own_ids = [job_id for job_id, reason in reasons.items() if reason is None]
            accepted += own_ids
            if reasons and not own_ids:
                refused[run.id] = ", ".join(filter(None, reasons.values()))
        return list(dict.fromkeys(accepted)), refused

    def _objection(self, job_id: str, names: Mapping[str, str], run: RunRecord) -> str | None:
        """Return why a job must not be cancelled for ``run``. ``names``: of the queue's jobs."""
        if job_id not in names:
            view = View(run=run, files=bashscript.RunFiles())
            hides = ", or hides it as another user's" if view.is_of_another else ""
            return f"Slurm does not know job {job_id}{hides}: nothing to cancel"
        try:
            is_own = names[job_id] == name_of(run) or self._has_script(job_id, run)
        except LlmbError as error:
            return error.message
        return None if is_own else f"job {job_id} is now another job ({names[job_id]})"

    def _accounted(self, by_job: Mapping[str, View]) -> Iterable[commands.JobRow]:
        memory = self.memory
        if not by_job or not memory.has_accounting or time.monotonic() < memory.rest_until:
            return []
        try:
            rows = commands.accounted(self.asker, ids=list(by_job))
        except LlmbError as error:
            self._note_failure(error)
            return []
        memory.rest, memory.rest_until = _FIRST_REST, 0.0
        return self._rows_of(by_job, rows)

    def _note_failure(self, error: LlmbError) -> None:
        """Remember that accounting failed: for good where there is none, else for a while."""
        memory = self.memory
        if error.code in (commands.NO_ACCOUNTING, commands.MISSING):
            memory.has_accounting = False
            return
        memory.rest_until = time.monotonic() + memory.rest
        memory.rest = min(2 * memory.rest, _LONGEST_REST)

    def _queued(self, by_job: Mapping[str, View]) -> Iterable[commands.JobRow]:
        if not by_job:
            return []
        try:
            return self._rows_of(by_job, commands.queued(self.asker, ids=list(by_job)))
        except commands.SilentError:
            raise
        # no program, or a question that it refuses: nothing is known either way
        except LlmbError as error:
            raise commands.SilentError(error.message, hint=error.hint, code=error.code) from error

    def _rows_of(
        self, by_job: Mapping[str, View], rows: Iterable[commands.JobRow]
    ) -> list[commands.JobRow]:
        """The rows of these runs. A row of another name is another cluster's, was written before
        the job's true end, or is of a job that was renamed.
        """
        return [row for row in rows if (view := by_job.get(row.job_id)) and self._is_of(row, view)]

    def _is_of(self, row: commands.JobRow, view: View) -> bool:
        """Return True if a row is of the run: by its name, else by what nobody can change.

        That is the start of the job whose script wrote the run's own file, or its batch script.
        """
        if row.name == name_of(view.run):
            return True
        if row.name == _NO_NAME:
            return False
        began, started = view.files.started, row.state.started
        is_its_own = view.files.job_id == row.job_id
        if is_its_own and began and started and abs(began - started) < YOUNG:
            return True
        try:
            return self._has_script(row.job_id, view.run)
        except LlmbError:  # asked again by the next poll
            return False

    def _has_script(self, job_id: str, run: RunRecord) -> bool:
        """Return True if a job in the queue has the run's batch script. Raises LlmbError."""
        renamed = self.memory.renamed
        if job_id not in renamed:
            renamed[job_id] = commands.script_of(self.asker, job_id) == str(run.script)
        return renamed[job_id]

    def _state(self, view: View) -> JobState:
        if view.queued is None and view.silence is not None:
            return (view.accounted or last_seen(view.run)).unanswered(view.silence)
        if view.known is None:
            return self._gone(view)
        state = self._complete(view, view.known)
        if state.fix and view.is_of_another:  # only its own user can release, cancel or retry it
            state = replace(state, fix="")
        first, last = view.files.started, state.started
        if first is None or last is None or last - first < _REQUEUED_AFTER or state.reason:
            return state
        return replace(state, reason=_SECOND)

    def _complete(self, view: View, state: JobState) -> JobState:
        """``state`` with what the rows do not have: the limit, the lost node, the true exit
        code.
        """
        if state.state == TIMEOUT:
            lines = bashscript.read_lines(view.run.script)
            text = next((line.removeprefix(_TIME) for line in lines if line.startswith(_TIME)), "")
            limit = clock(seconds(text) or view.run.launch.time_limit)
            return replace(state, reason=f"ran longer than its limit of {limit}")
        if state.state == "NODE_FAIL":
            return replace(state, reason=self._failed_node(view.run, state))
        if state.state != FAILED:
            return state
        files = read_files(view.run)  # the run may have ended since they were read
        if files.cause == _PREEMPTED:  # with GraceTime, the script ends before Slurm kills it
            return replace(state, state=_PREEMPTED, exit_code=None, reason="")
        if (node := _lost_node(view.run)) is not None:
            return replace(state, state="NODE_FAIL", reason=node)
        if files.job_id is not None and files.exit_code is None and _was_killed(state):
            return replace(
                state,
                exit_code=None,
                reason="its script was killed, and nothing says why",
            )
        if files.exit_code is not None:  # accounting keeps seven bits of it: 137 comes back as 9
            return replace(state, exit_code=files.exit_code)
        shown = "" if state.exit_code is not None else self._exit_code(view.job_id)
        if files.job_id is None and commands.NO_OUTPUT in (state.reason, shown):
            output = view.run.batch_log
            return replace(state, reason=f"the node could not open the job's output file {output}")
        if state.exit_code is not None:
            return state
        return replace(state, exit_code=commands.read_exit_code(shown))

    def _failed_node(self, run: RunRecord, state: JobState) -> str:
        """Return why a job ended with NODE_FAIL, with the failed node if Slurm or srun names it."""
        lost, reason = _lost_node(run), state.reason
        if lost is not None:
            return lost
        try:
            failed = commands.failed_nodes(self.asker, state.nodes) if state.nodes else []
        except LlmbError:  # the state is known without it
            failed = []
        if not failed or len(failed) > _MOST_FAILED:
            return reason
        named = f"node {fold(failed)} failed"
        return f"{named}: {reason}" if reason else named

    def _exit_code(self, job_id: str | None) -> str:
        try:
            return commands.exit_code(self.asker, job_id) if job_id is not None else ""
        except LlmbError:  # the state is known without it
            return ""

    def _gone(self, view: View) -> JobState:
        """The state of a run that Slurm was asked for and did not know."""
        run = view.run
        answer = (
            f"Slurm no longer knows job {view.job_id}" if view.job_id else "Slurm does not know it"
        )
        if view.is_of_another:
            answer += ", or hides it"
        if (end := _end_of(run, view.files)) is not None:
            return replace(end, reason=f"from its own files; {answer}")
        before = view.accounted or last_seen(run)
        if view.is_of_another:
            return replace(before, reason=f"{answer}: it is another user's", fix="")
        if time.monotonic() < self.memory.rest_until:
            return replace(before, reason=f"{answer}, and its accounting does not answer")
        return JobState(
            state=LOST, reason=f"{answer}, and it recorded no end; last seen {before.state}"
        )


def name_of(run: RunRecord) -> str:
    """The run's name in Slurm's queue."""
    return sbatch_options.job_name(run.launch, run.stamp)


def read_files(run: RunRecord) -> bashscript.RunFiles:
    """Return what the script of the run's present attempt has written so far. A job's id is a
    number.
    """
    files = bashscript.read_files(run)
    return (
        files if files.job_id is None or files.job_id.isdecimal() else replace(files, job_id=None)
    )


def _keep_first(
    ids: dict[str, str], by_name: Mapping[str, RunRecord], row: commands.JobRow
) -> None:
    """Keep the id of the first job of a name: of a run submitted twice, the second job ends
    itself.
    """
    run = by_name.get(row.name)
    if run is not None and (run.id not in ids or int(row.job_id) < int(ids[run.id])):
        ids[run.id] = row.job_id


def _was_killed(state: JobState) -> bool:
    """Return True if a signal ended a job's script: accounting keeps seven bits of an exit code, so
    128 more is a signal.
    """
    is_signal = state.reason == commands.NO_OUTPUT or (state.exit_code or 0) > 128
    return is_signal or state.reason.startswith(_LAUNCH_FAILURE)


def _end_of(run: RunRecord, files: bashscript.RunFiles) -> JobState | None:
    """Return how the run ended, by its own files alone, or None where they do not say."""
    # Slurm's daemons write into the script's output as well.
    events = [
        match[2] or ""
        for path in (run.batch_log, run.log)
        for match in _CANCELLED.finditer(bashscript.read_tail(path))
    ]
    ends = [cause for cause in events if cause != _REQUEUED]
    if ends:
        return JobState(
            state=_DUE_TO.get(ends[-1], CANCELLED), started=files.started, ended=files.ended
        )
    if files.cause == _PREEMPTED:
        return JobState(state=_PREEMPTED, started=files.started, ended=files.ended)
    if files.exit_code is None:
        return None
    state = COMPLETED if files.exit_code == 0 else FAILED
    return JobState(
        state=state, exit_code=files.exit_code, started=files.started, ended=files.ended
    )


def _lost_node(run: RunRecord) -> str | None:
    """srun's message about a node that it lost. Such a job may end FAILED, as its script runs on
    for a moment.
    """
    lost = [
        match
        for path in (run.log, run.batch_log)
        for match in _LOST_NODE.finditer(bashscript.read_tail(path))
    ]
    return lost[-1][1] if lost else None
