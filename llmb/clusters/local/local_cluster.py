# SPDX-License-Identifier: Apache-2.0
"""This machine as a cluster: hands runs to the supervisor's queue and reads what became of them."""

from __future__ import annotations

import contextlib
import getpass
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from llmb.clusters import checks
from llmb.clusters.base import Pace
from llmb.clusters.local import journal, queue, run_script, states
from llmb.clusters.local.queue import ensure_supervisor
from llmb.config import ClusterConfig
from llmb.errors import Fault, LlmbError
from llmb.runs import programs
from llmb.runs.launch import Launch, Stamp
from llmb.runs.record import RunRecord
from llmb.runs.state import CANCELLED, PENDING, JobState
from llmb.system import console, files, secrets, shell
from llmb.system.process import host_name
from llmb.workload.gpus import CPU

_GPUS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What there is on this machine for jobs; ``gpus`` None where the jobs are for CPUs."""

    cpus: int
    gpus: int | None


def find_hardware(config: ClusterConfig) -> Hardware:
    """What this machine has."""
    return Hardware(cpus=count_cpus(), gpus=None if config.rows_for(config.gpu_type) == CPU else count_gpus())


def count_cpus() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def count_gpus() -> int:
    """The GPUs of this machine: what the driver shows, else what nvidia-smi lists."""
    if _GPUS.is_dir():
        return sum(1 for _ in _GPUS.iterdir())
    try:
        listed = shell.run(["nvidia-smi", "-L"], timeout=30)
    except LlmbError:  # no driver here, or one that hangs
        return 0
    return sum(line.startswith("GPU ") for line in listed.out.splitlines())


def faults_of_launch(launch: Launch, config: ClusterConfig, found: Hardware) -> Iterator[Fault]:
    """What stands in the way of one launch."""
    if launch.nodes != 1:
        yield Fault(
            message=f"{launch.name} needs {launch.nodes} nodes, and a local cluster is one machine",
            hint="choose a smaller scale",
        )
    elif found.gpus is not None and launch.ranks_per_node > found.gpus:
        yield Fault(
            message=f"{launch.name} needs {launch.ranks_per_node} GPUs, and this machine has {found.gpus}",
            hint="choose a smaller scale; nvidia-smi -L lists the GPUs",
        )
    yield from checks.faults_of_launch(launch, config)
    yield from checks.faults_of_venv(launch, config)


IDLE = 10.0  # seconds
GRACE = 5.0  # seconds


def create(config: ClusterConfig) -> LocalCluster:
    """This machine, as it is now."""
    return LocalCluster(config=config, environ=os.environ, found=find_hardware(config), digest=programs.digest())


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCluster:
    """The cluster type ``local``.

    ``environ`` is the submitting environment, ``digest`` that of the installed programs; ``idle`` and ``grace`` in
    seconds: how long a supervisor stays without work, and ranks after one of them has failed.
    """

    config: ClusterConfig
    environ: Mapping[str, str]
    found: Hardware
    digest: str
    idle: float = IDLE
    grace: float = GRACE
    pace: Pace = field(default_factory=Pace)

    @property
    def folder(self) -> Path:
        """Where the queue is."""
        return queue.state_folder(self.environ)

    def identity(self) -> str:
        """Which queue this is: its folder and this host. Raises LlmbError where no home folder is known."""
        return f"the queue in {self.folder.resolve()} on {host_name()}"

    def preflight(self, launches: Sequence[Launch]) -> list[Fault]:
        """What stands in the way of these launches, all of it; empty when nothing does."""
        faults = [fault for launch in launches for fault in faults_of_launch(launch, self.config, self.found)]
        faults += checks.faults_of_secrets(launches, self.environ)
        return list(dict.fromkeys([*faults, *checks.faults_of_place(self.config, self.digest, launches)]))

    def render(self, launch: Launch, stamp: Stamp) -> str:
        """The script of ``launch``: the runner executes what this text says. Pure."""
        staged = programs.path(self.config.llmb_install, self.digest)
        machine = run_script.Machine(cpus=self.found.cpus, programs=str(staged))
        return run_script.to_text(run_script.make(launch, stamp, machine, grace=self.grace))

    def submit(self, run: RunRecord) -> str:
        """Put a recorded run into the queue, once however often it is asked; its attempt's id. Raises LlmbError."""
        self._stage(run)
        if not _has_begun(run):
            queue.make_folder(self.folder)
            queue.add(self.folder, self._entry(run))
            with contextlib.suppress(files.DiskFullError):  # it waits in the queue, and poll says what for
                ensure_supervisor(self.folder, self.environ, idle=self.idle)
        return run.stamp.id

    def find(self, runs: Sequence[RunRecord]) -> Mapping[str, str]:
        """The ids of those of these runs that are in the queue or have left it. Raises LlmbError for another host's."""
        if elsewhere := next((run for run in runs if not run.submitter.is_here), None):
            host = elsewhere.submitter.host
            message = f"{elsewhere.id} was to be submitted on {host}, whose queue cannot be seen here"
            raise LlmbError(message, hint=f"llmb-run jobs reconcile on {host}")
        waiting = queue.ahead(self.folder)
        return {run.id: run.stamp.id for run in runs if run.stamp.id in waiting or _has_begun(run)}

    def poll(self, runs: Sequence[RunRecord]) -> Mapping[str, JobState]:
        """The state of each run by its id; a supervisor that was killed while work is there is replaced."""
        ahead = queue.ahead(self.folder)
        found = {run.id: states.state_of(run, ahead) for run in runs}
        again = [run for run in runs if found[run.id] == states.NEVER_QUEUED]
        if again:  # it may have come between the two looks; now that its submitter is gone, nothing comes any more
            ahead = queue.ahead(self.folder)
            found |= {run.id: states.state_of(run, ahead) for run in again}
        waiting = [run for run in runs if found[run.id].state == PENDING]
        if trouble := self._keep_going() or _full([self.folder, *(run.place for run in waiting[:1])]):
            found |= {run.id: replace(found[run.id], reason=trouble) for run in waiting}
        return found

    def cancel(self, runs: Sequence[RunRecord]) -> None:
        """End these runs, waiting or running. One that has ended already is left alone. Raises LlmbError."""
        for run in runs:
            if _has_ended(run):
                continue
            journal.ask_to_cancel(run.place, _user())
            if not _has_begun(run):
                self._withdraw(run)

    def _stage(self, run: RunRecord) -> None:
        staged = programs.stage(self.config.llmb_install)
        wanted = Path(run_script.read(run.script).programs)
        if wanted != staged and not wanted.is_dir():
            raise LlmbError(f"{run.script} wants the programs {wanted}, which are gone", hint="submit the job again")

    def _entry(self, run: RunRecord) -> queue.Entry:
        kept = secrets.find(run.launch.secrets, self.environ)
        passed = queue.base_environment(self.environ, self.config.pass_environment)
        return queue.Entry(
            id=run.stamp.id,
            directory=run.place.absolute(),
            argv=(sys.executable, "-P", "-m", "llmb.clusters.local.runner", str(run.directory.absolute())),
            environment={**passed, **kept},
            umask=files.umask_in(run.place, files.own_umask()),
        )

    def _keep_going(self) -> str | None:
        if not queue.has_work(self.folder):
            return None
        try:
            ensure_supervisor(self.folder, self.environ, idle=self.idle)
        except LlmbError as error:
            return f"{error.message}; {error.hint}"
        return None

    def _withdraw(self, run: RunRecord) -> None:
        reason = journal.cancelled_by(run.place) or ""
        # Whichever is first: this end, or the runner, which then finds the mark.
        journal.create(run.place, journal.Journal(id=run.stamp.id, end=journal.end_now(CANCELLED, reason)))
        queue.remove(self.folder, run.stamp.id)


def _full(folders: Sequence[Path]) -> str | None:
    """Which of the folders the queue waits for to have room again; None where all have."""
    try:
        for folder in folders:
            files.check_space(folder)
    except files.DiskFullError as error:
        return f"the queue waits: {error.message}"
    return None


def _has_begun(run: RunRecord) -> bool:
    """Whether the run has a journal: then it was started, or cancelled before, whatever the file says."""
    return (run.place / journal.SCHEDULER).exists()


def _has_ended(run: RunRecord) -> bool:
    try:
        seen = journal.read(run.place)
    except LlmbError as error:  # the runner, if there is one, will find the mark
        console.warn_once(error.message)
        return False
    return seen is not None and seen.end is not None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may not know its user's name
        return f"user {os.getuid()}"
