# SPDX-License-Identifier: Apache-2.0
"""A Slurm cluster as its user sees it: submits scripts with sbatch, polls many jobs at once,
cancels them.
"""

import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import field

from llmb.builtin.slurm import commands, partitions, poll, sbatch_script, slurm_checks
from llmb.contract.cluster import Pace, QueueFullError, UnclearError
from llmb.contract.launch import Launch, Stamp
from llmb.contract.record import RunRecord
from llmb.contract.sbatch import SlurmConfig
from llmb.contract.schema import ClusterConfig
from llmb.contract.state import JobState
from llmb.core import console, permissions, secrets, shell
from llmb.core.names import listed
from llmb.core.values import dataclass
from llmb.errors import Fault, LlmbError
from llmb.kit import programs
from llmb.kit.advice import advice
from llmb.kit.cancellation import NotCancelledError

PACE = Pace(
    parallel=4, poll=1.0, slowest_poll=15.0, arrival_timeout=20.0, sender="sbatch", arrive=1.0
)
_ID = re.compile(r"^(?:Submitted batch job )?(\d{1,18})(?:;\S*| on cluster \S+)?$", re.ASCII)
_RECONCILE = "llmb-run jobs reconcile"
_NAMED = 8  # jobs in a message
_SHOWN = 200  # characters of sbatch's output in a message

_asking = threading.Lock()  # the first of several concurrent jobs asks for the others
_staging = threading.Lock()  # the first of several concurrent jobs stages for the others


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmCluster:
    """The cluster type ``slurm``."""

    config: ClusterConfig
    client: commands.Client
    #: Of the installed programs. The rest as in ``sbatch_script.Setting``.
    digest: str
    knows_segment: bool = True
    lacks: frozenset[str] = frozenset()
    pace: Pace = PACE
    memory: poll.Memory = field(default_factory=poll.Memory)
    patience: partitions.NodeWait = field(default_factory=partitions.NodeWait)

    @property
    def _setting(self) -> sbatch_script.Setting:
        return sbatch_script.Setting(
            config=self.config,
            programs=str(programs.path(self.config.llmb_install, self.digest)),
            knows_segment=self.knows_segment,
            lacks=self.lacks,
        )

    @property
    def _poller(self) -> poll.Poller:
        return poll.Poller(client=self.client, memory=self.memory)

    def identity(self) -> str:
        """The cluster's name. Raises LlmbError where Slurm does not answer."""
        with _asking:
            return self._poller.identity()

    def preflight(self, launches: Sequence[Launch]) -> list[Fault]:
        """Every fault that prevents these launches, empty when there is none."""
        return slurm_checks.check(launches, self._setting, self.client, self.digest, self.patience)

    def faults_here(self, launches: Sequence[Launch]) -> list[Fault]:
        """The faults that a dry run can see: those that no controller need be asked for."""
        return list(dict.fromkeys(slurm_checks.faults_here(launches, self._setting, self.client)))

    def render(self, launch: Launch, stamp: Stamp) -> str:
        """The batch script of ``launch``. Pure. Raises UsageError for what bash or Slurm cannot
        take.
        """
        return sbatch_script.render(launch, stamp, self._setting)

    def submit(self, run: RunRecord) -> str:
        """Submit the run's script with sbatch. Return the job's id.

        Raises LlmbError for a refusal, QueueFullError if the queue is full now, UnclearError if
        it is unknown whether Slurm has the job.
        """
        if (job_id := poll.read_files(run).job_id) is not None:
            return job_id
        # once: reading all programs for each job takes longer than the job's submission
        with _staging:
            programs.stage_once(self.config.llmb_install, self.digest)
        values = secrets.find(run.launch.secrets, self.client.environ)
        # The job's files get the permissions of a shared install, also the log that Slurm itself
        # writes.
        umask = f"{permissions.umask_in(run.place, permissions.own_umask()):04o}"
        argv = ["sbatch", "--parsable", str(run.script)]
        try:
            variables = {**values, "SLURM_UMASK": umask}
            completed = self.client.submit(argv, variables)
        except commands.SilentError as error:
            raise UnclearError(error.message, hint=error.hint, code=error.code) from error
        job_id = job_id_of(completed)
        for line in notices(completed):
            console.warn_once(f"Slurm says: {line}", kind="note")
        return job_id

    def find(self, runs: Sequence[RunRecord]) -> Mapping[str, str]:
        """The job ids of those runs that Slurm has. Raises LlmbError where it does not answer."""
        return self._poller.find(runs)

    def poll(self, runs: Sequence[RunRecord]) -> Mapping[str, JobState]:
        """The state of each run by its id. Raises LlmbError where Slurm does not answer."""
        return self._poller.states(runs)

    def cancel(self, runs: Sequence[RunRecord]) -> None:
        """Cancel these runs, waiting or running. Runs that have ended stay as they are. Raises
        NotCancelledError for runs whose job Slurm does not know or has given to others, LlmbError.
        """
        ids, refused = self._poller.jobs_to_cancel(runs)
        if ids:
            try:
                self.client.ask(["scancel", *ids])
            except commands.SilentError as error:
                if len(ids) == 1:
                    raise
                # scancel's last line names one of them
                message = f"Slurm does not answer: jobs {listed([*ids], _NAMED)} may still run"
                raise commands.silent(message) from error
        if refused:
            raise NotCancelledError(refused)


def create(config: ClusterConfig) -> SlurmCluster:
    """The cluster whose commands are on PATH. A preview needs none of them."""
    client = commands.Client(
        environ=os.environ,
        passed=config.pass_environment,
        cluster=(config.slurm or SlurmConfig()).clusters,
    )
    return SlurmCluster(
        config=config,
        client=client,
        digest=programs.digest(),
        knows_segment=slurm_checks.has_segment(client, config),
        lacks=slurm_checks.lacking(client, config),
    )


def job_id_of(completed: shell.Completed) -> str:
    """The id of the job that sbatch has submitted. A site's wrapper around sbatch may print notices
    of its own.

    Raises LlmbError for a refusal, QueueFullError if the queue is full now, UnclearError for
    every answer that leaves open whether Slurm has the job: the caller then looks for the job by
    its name.
    """
    ids = {match[1] for line in completed.out.splitlines() if (match := _ID.match(line.strip()))}
    if completed.code == 0:
        if len(ids) == 1:
            return ids.pop()
        missing = "several job ids" if ids else "no job id"
        raise _unclear(f"sbatch ended with {missing}{_quoted(completed.out or completed.err)}")
    if (limit := commands.full_queue(completed.err)) is not None:
        raise QueueFullError(
            f"Slurm takes no more jobs now: its queue is full ({limit})",
            hint=f"{_RECONCILE}, once jobs have ended",
            code="queue-full",
            value=limit,
        )
    reason = commands.refusal(completed.err)
    if commands.is_silence(completed.err):
        raise _unclear(f"Slurm does not answer: {reason}", ", once it does", code="slurm-silent")
    if ids or completed.code < 0 or not (reason or completed.out.strip()):
        end = (
            f"was killed by signal {-completed.code}"
            if completed.code < 0
            else f"ended with exit code {completed.code}"
        )
        raise _unclear(f"sbatch {end}{_quoted(completed.out or completed.err)}")
    reason = reason or commands.refusal(completed.out)
    raise LlmbError(
        f"Slurm refused it: {reason}",
        hint=advice("slurm_refused", reason) or None,
        code="slurm-refused",
        value=reason,
    )


def notices(completed: shell.Completed) -> list[str]:
    """Return what a site's plugins and wrappers say of a job that Slurm took."""
    lines = [line for line in completed.out.splitlines() if _ID.match(line.strip()) is None]
    return commands.lines_of("\n".join([*lines, completed.err]))


def _unclear(message: str, condition: str = "", *, code: str = "sbatch-unclear") -> UnclearError:
    return UnclearError(message, hint=f"{_RECONCILE}{condition}", code=code)


def _quoted(text: str) -> str:
    shown = " ".join(text.split())
    return f"; it printed: {shown[:_SHOWN]}" if shown else " and printed nothing"
