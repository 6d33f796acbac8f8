# SPDX-License-Identifier: Apache-2.0
"""This machine as a cluster: adds runs to the supervisor's queue, and reads their states from their
folders.
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from llmb.builtin.local import journal, queue, ranks
from llmb.contract.cluster import Pace
from llmb.contract.gpus import CPU
from llmb.contract.launch import Launch, Stamp
from llmb.contract.record import RunRecord
from llmb.contract.schema import ClusterConfig
from llmb.contract.state import CANCELLED, PENDING, JobState
from llmb.core import console, files, permissions, process, secrets, shell
from llmb.core.parallel import processors
from llmb.core.values import dataclass
from llmb.errors import Fault, LlmbError
from llmb.kit import checks, programs

_GPUS = Path("/proc/driver/nvidia/gpus")
IDLE = 10.0  # seconds
GRACE = 5.0  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The resources of this machine for jobs. ``gpus`` is None if the jobs run on CPUs."""

    cpus: int
    gpus: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCluster:
    """The cluster type ``local``."""

    config: ClusterConfig
    #: The submitting environment.
    environ: Mapping[str, str]
    found: Hardware
    #: Of the installed programs.
    digest: str
    #: Seconds that a supervisor without work stays.
    idle: float = IDLE
    #: Seconds that ranks may run on after one of them has failed.
    grace: float = GRACE
    pace: Pace = field(default_factory=Pace)

    @property
    def folder(self) -> Path:
        """The folder of the queue."""
        return queue.state_folder(self.environ)

    def identity(self) -> str:
        """The queue's folder and this host. Raises LlmbError where no home folder is known."""
        return f"the queue in {self.folder.resolve()} on {process.host_name()}"

    def preflight(self, launches: Sequence[Launch]) -> list[Fault]:
        """Every fault that prevents these launches, empty when there is none."""
        faults = self.faults_here(launches)
        faults += checks.faults_of_secrets(launches, self.environ)
        return list(
            dict.fromkeys([*faults, *checks.faults_of_folders(self.config, self.digest, launches)])
        )

    def faults_here(self, launches: Sequence[Launch]) -> list[Fault]:
        """The faults that a dry run can see: too few GPUs, and missing files and programs."""
        return [
            fault
            for launch in launches
            for fault in faults_of_launch(launch, self.config, self.found)
        ]

    def render(self, launch: Launch, stamp: Stamp) -> str:
        """The script that the runner executes for ``launch``. Pure."""
        staged = str(programs.path(self.config.llmb_install, self.digest))
        return ranks.to_text(
            ranks.make_script(
                launch, stamp, cpus=self.found.cpus, programs=staged, grace=self.grace
            )
        )

    def submit(self, run: RunRecord) -> str:
        """Add a recorded run to the queue, once however often it is called. Return the attempt's
        id. Raises LlmbError.
        """
        self._stage(run)
        if not _has_begun(run):
            queue.make_folder(self.folder)
            queue.add(self.folder, self._entry(run))
            # the run waits in the queue, and its state says why
            with contextlib.suppress(files.DiskFullError):
                queue.ensure_supervisor(self.folder, self.environ, idle=self.idle)
        return run.stamp.id

    def find(self, runs: Sequence[RunRecord]) -> Mapping[str, str]:
        """The ids of those runs that are or were in the queue.

        Raises LlmbError where all are of other hosts, and the record of one does not name its
        cluster.
        """
        runs_here = [run for run in runs if run.submitter.is_here]
        if not runs_here and (unclear := next((run for run in runs if run.cluster is None), None)):
            host = unclear.submitter.host
            raise LlmbError(
                f"{unclear.id} was submitted on {host}, whose queue this machine cannot read",
                hint=f"run llmb-run jobs reconcile on {host}",
                code="other-host",
                value=host,
            )
        waiting = queue.ahead(self.folder)
        return {
            run.id: run.stamp.id for run in runs_here if run.stamp.id in waiting or _has_begun(run)
        }

    def poll(self, runs: Sequence[RunRecord]) -> Mapping[str, JobState]:
        """The state of each run by its id. Starts a supervisor again that was killed while runs
        wait.
        """
        ahead = queue.ahead(self.folder)
        states = {run.id: journal.state_of(run, ahead) for run in runs}
        again = [run for run in runs if states[run.id] == journal.NEVER_QUEUED]
        # it may have been queued since the first look; its submitter has ended, so a second look is
        # final
        if again:
            ahead = queue.ahead(self.folder)
            states |= {run.id: journal.state_of(run, ahead) for run in again}
        waiting = [run for run in runs if states[run.id].state == PENDING]
        if trouble := self._supervise() or _full(
            [self.folder, *(run.place for run in waiting[:1])]
        ):
            states |= {run.id: replace(states[run.id], reason=trouble) for run in waiting}
        return states

    def cancel(self, runs: Sequence[RunRecord]) -> None:
        """Cancel these runs, waiting or running. Runs that have ended stay as they are. Raises
        LlmbError.
        """
        for run in runs:
            if _has_ended(run):
                continue
            journal.ask_to_cancel(run.place, process.user_name() or f"user {os.getuid()}")
            if not _has_begun(run):
                self._withdraw(run)

    def _stage(self, run: RunRecord) -> None:
        staged = programs.stage(self.config.llmb_install)
        folder = Path(ranks.read_script(run.script).programs)
        if folder != staged and not folder.is_dir():
            message = f"{run.script} needs the programs in {folder}, which no longer exist"
            raise LlmbError(
                message, hint="submit the job again", code="programs-missing", value=str(folder)
            )
        if folder != staged:
            programs.check(folder)

    def _entry(self, run: RunRecord) -> queue.WaitingRun:
        secret_values = secrets.find(run.launch.secrets, self.environ)
        passed = queue.base_environment(self.environ, self.config.pass_environment)
        return queue.WaitingRun(
            id=run.stamp.id,
            directory=run.place.absolute(),
            argv=(
                sys.executable,
                "-P",
                "-m",
                "llmb.builtin.local.runner",
                str(run.directory.absolute()),
            ),
            environment={**passed, **secret_values},
            umask=permissions.umask_in(run.place, permissions.own_umask()),
        )

    def _supervise(self) -> str | None:
        if not queue.has_work(self.folder):
            return None
        try:
            queue.ensure_supervisor(self.folder, self.environ, idle=self.idle)
        except LlmbError as error:
            return f"{error.message}; {error.hint}"
        return None

    def _withdraw(self, run: RunRecord) -> None:
        reason = journal.cancelled_by(run.place) or ""
        # Either this end comes first, or the runner, which then finds the request to cancel.
        journal.create(
            run.place, journal.Journal(id=run.stamp.id, end=journal.end_now(CANCELLED, reason))
        )
        queue.remove(self.folder, run.stamp.id)


def create(config: ClusterConfig) -> LocalCluster:
    """This machine with its present hardware and environment."""
    return LocalCluster(
        config=config, environ=os.environ, found=find_hardware(config), digest=programs.digest()
    )


def _full(folders: Sequence[Path]) -> str | None:
    """Return why the queue waits if a folder is on a full disk, or None if none is."""
    try:
        for folder in folders:
            files.check_space(folder)
    except files.DiskFullError as error:
        return f"the queue waits: {error.message}"
    return None


def _has_begun(run: RunRecord) -> bool:
    """Return True if the run has a journal: then it was started, or cancelled before it started."""
    return (run.place / journal.SCHEDULER).exists()


def _has_ended(run: RunRecord) -> bool:
    try:
        entry = journal.read(run.place)
    except LlmbError as error:  # the runner, if there is one, will find the request
        console.warn_once(error.message)
        return False
    return entry is not None and entry.end is not None


def find_hardware(config: ClusterConfig) -> Hardware:
    """The CPUs that this process may use, and the GPUs of this machine."""
    return Hardware(
        cpus=processors(), gpus=None if config.rows_for(config.gpu_type) == CPU else count_gpus()
    )


def count_gpus() -> int:
    """The GPUs of this machine, from the driver's files, else from nvidia-smi."""
    if _GPUS.is_dir():
        return sum(1 for _ in _GPUS.iterdir())
    try:
        listed = shell.run(["nvidia-smi", "-L"], timeout=30)
    except LlmbError:  # no driver, or one that hangs
        return 0
    return sum(line.startswith("GPU ") for line in listed.out.splitlines())


def faults_of_launch(launch: Launch, config: ClusterConfig, hardware: Hardware) -> Iterator[Fault]:
    """Every fault that prevents one launch."""
    if launch.nodes != 1:
        yield Fault(
            message=f"{launch.name} needs {launch.nodes} nodes, and a local cluster is one machine",
            hint="choose a smaller scale",
            code="too-many-nodes",
            value=launch.nodes,
        )
    elif hardware.gpus is not None and launch.ranks_per_node > hardware.gpus:
        yield Fault(
            message=(
                f"{launch.name} needs {launch.ranks_per_node}"
                f" GPU{'s' * (launch.ranks_per_node > 1)}, and this machine has {hardware.gpus}"
            ),
            hint=(
                "choose a smaller scale; nvidia-smi -L lists the GPUs"
                if hardware.gpus
                else "submit on a machine whose GPUs nvidia-smi -L lists"
            ),
            code="too-few-gpus",
            value=hardware.gpus,
        )
    path = os.pathsep.join(
        filter(None, (launch.venv and f"{launch.venv}/bin", os.environ.get("PATH")))
    )
    if launch.start == "mpi" and shutil.which("mpirun", path=path) is None:
        hint = "install Open MPI or MPICH, or add it to the Python environment: pip install mpich"
        yield Fault(
            message=f"{launch.name} starts by MPI, and mpirun is not on PATH",
            hint=hint,
            code="no-mpi",
        )
    yield from checks.faults_of_launch(launch, config)
    yield from checks.faults_of_venv(launch, config)
