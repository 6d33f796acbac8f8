# SPDX-License-Identifier: Apache-2.0
"""A Slurm cluster as its user sees it: hands scripts to sbatch, asks for many jobs at once, ends them."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from llmb.clusters.base import Pace, UnclearError
from llmb.clusters.slurm import commands, poll, sbatch_script, slurm_checks
from llmb.clusters.slurm.commands import SUBMIT_SECONDS, Client, SilentError, is_silence, last_line
from llmb.clusters.slurm.partitions import Registering
from llmb.clusters.slurm.poll import Memory, Poller
from llmb.clusters.slurm.refusals import hint_for
from llmb.clusters.slurm.sbatch_script import Setting
from llmb.config import ClusterConfig
from llmb.errors import Fault, LlmbError
from llmb.runs import programs
from llmb.runs.launch import Launch, Stamp
from llmb.runs.record import RunRecord
from llmb.runs.state import JobState
from llmb.system import files, secrets
from llmb.system.shell import Completed

_NO_ROOM = "temporarily unable to accept job"
_FAILED = "Batch job submission failed: "
_ID = re.compile(r"^(?:Submitted batch job )?(\d{1,18})(?:;\S*| on cluster \S+)?$", re.ASCII)
_RECONCILE = "llmb-run jobs reconcile"
_SHOWN = 200  # characters of an answer that a message repeats


def job_id_of(done: Completed) -> str:
    """The id of the job that sbatch says it has submitted.

    Raises LlmbError for a refusal, UnclearError for every answer that does not say whether the job was taken: whoever
    gets that looks for the job by its name.
    """
    ids = {match[1] for line in done.out.splitlines() if (match := _ID.match(line.strip()))}
    if done.code == 0:
        if len(ids) == 1:
            return ids.pop()
        raise UnclearError(f"sbatch ended without {_what(ids)}{_quoted(done.out or done.err)}", hint=_RECONCILE)
    if _NO_ROOM in done.err:  # sbatch has tried again for minutes, and this may have been its last word
        message = "Slurm takes no more jobs at the moment: its queue is full (MaxJobCount)"
        raise UnclearError(message, hint=f"{_RECONCILE}, once jobs have ended")
    said = last_line(done.err).removeprefix(_FAILED)
    if is_silence(done.err):
        raise UnclearError(f"Slurm does not answer: {said}", hint=f"{_RECONCILE}, once it does")
    if ids or done.code < 0 or not (said or done.out.strip()):
        how = f"was killed by signal {-done.code}" if done.code < 0 else f"ended with exit code {done.code}"
        raise UnclearError(f"sbatch {how}{_quoted(done.out or done.err)}", hint=_RECONCILE)
    said = said or last_line(done.out)
    raise LlmbError(f"Slurm refused it: {said}", hint=hint_for(said))


def _what(ids: set[str]) -> str:
    return "a job id" if not ids else "one job id alone"


def _quoted(text: str) -> str:
    shown = " ".join(text.split())
    return f"; it printed: {shown[:_SHOWN]}" if shown else " and printed nothing"


PACE = Pace(parallel=4, poll=1.0, slowest_poll=15.0, settle=20.0, sender="sbatch", arrive=1.0)

_asking = threading.Lock()  # the first of the jobs under way asks for the others
_staging = threading.Lock()  # the first of the jobs under way stages for the others


def create(config: ClusterConfig) -> SlurmCluster:
    """The cluster whose commands are on PATH; a preview needs none of them."""
    client = Client(environ=os.environ, passed=config.pass_environment)
    return SlurmCluster(
        config=config,
        client=client,
        digest=programs.digest(),
        knows_segment=commands.segment(client, config),
        lacks=commands.lacking(client, config),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmCluster:
    """The cluster type ``slurm``; ``digest`` is that of the installed programs, the rest as in ``script.Setting``."""

    config: ClusterConfig
    client: Client
    digest: str
    knows_segment: bool = True
    lacks: frozenset[str] = frozenset()
    pace: Pace = PACE
    memory: Memory = field(default_factory=Memory)
    patience: Registering = field(default_factory=Registering)

    @property
    def _setting(self) -> Setting:
        staged = programs.path(self.config.llmb_install, self.digest)
        return Setting(config=self.config, programs=str(staged), knows_segment=self.knows_segment, lacks=self.lacks)

    @property
    def _poller(self) -> Poller:
        return Poller(client=self.client, memory=self.memory)

    def identity(self) -> str:
        """Which cluster this is, by its name. Raises LlmbError where Slurm does not answer."""
        with _asking:
            return self._poller.identity()

    def preflight(self, launches: Sequence[Launch]) -> list[Fault]:
        """What stands in the way of these launches, all of it; empty when nothing does."""
        return slurm_checks.check(launches, self._setting, self.client, self.digest, self.patience)

    def render(self, launch: Launch, stamp: Stamp) -> str:
        """The batch script of ``launch``. Pure. Raises UsageError for what bash or Slurm cannot take."""
        return sbatch_script.render(launch, stamp, self._setting)

    def submit(self, run: RunRecord) -> str:
        """Hand the run's script to sbatch; the job's id.

        Raises LlmbError for a refusal, UnclearError where it is not known whether Slurm has taken it.
        """
        if (job_id := poll.read_files(run).job_id) is not None:
            return job_id
        self._stage()
        values = secrets.find(run.launch.secrets, self.client.environ)
        # What the job writes has the permissions of a shared install, Slurm's own log among it.
        umask = f"{files.umask_in(run.place, files.own_umask()):04o}"
        argv = ["sbatch", "--parsable", str(run.script)]
        try:
            done = self.client.run(argv, timeout=SUBMIT_SECONDS, variables={**values, "SLURM_UMASK": umask})
        except SilentError as error:
            raise UnclearError(error.message, hint=error.hint) from error
        return job_id_of(done)

    def _stage(self) -> None:
        """Stage the programs, once: reading all of them for each job costs more than the job."""
        with _staging:
            if not Path(self._setting.programs).is_dir():
                programs.stage(self.config.llmb_install)

    def find(self, runs: Sequence[RunRecord]) -> Mapping[str, str]:
        """The ids of those of these runs that have come to Slurm. Raises LlmbError where it does not answer."""
        return self._poller.find(runs)

    def poll(self, runs: Sequence[RunRecord]) -> Mapping[str, JobState]:
        """The state of each run by its id. Raises LlmbError where Slurm does not answer."""
        return self._poller.states(runs)

    def cancel(self, runs: Sequence[RunRecord]) -> None:
        """End these runs, waiting or running. One that has ended already is left alone. Raises LlmbError."""
        recorded = [run for run in runs if run.scheduler_id is not None]
        # Of one that was submitted twice, the job that runs it may be another than the recorded one.
        known = (job_id for run in recorded for job_id in (run.scheduler_id, poll.read_files(run).job_id))
        found = self._poller.find([run for run in runs if run.scheduler_id is None])
        if ids := dict.fromkeys(job_id for job_id in (*known, *found.values()) if job_id is not None):
            self.client.ask(["scancel", *ids])
