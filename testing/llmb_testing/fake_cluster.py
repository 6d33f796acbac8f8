# SPDX-License-Identifier: Apache-2.0
"""The cluster type ``fake`` for tests: llmb's real code for clusters, on top of a scheduler that is
a folder.

A job that reaches COMPLETED gets a log of ``max_steps`` steps, so that it has a result. To load it
as a plugin:

    [project.entry-points.llmb]
    fake = "llmb_testing.plugin"
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from llmb.contract.cluster import Pace, QueueFullError, UnclearError
from llmb.contract.cluster_type import ClusterType
from llmb.contract.launch import Launch, Stamp
from llmb.contract.record import RunRecord
from llmb.contract.schema import ClusterConfig
from llmb.contract.state import COMPLETED, LOST, JobState
from llmb.core import files
from llmb.errors import Fault
from llmb_testing.scheduler import FullError, NoReplyError, Scheduler

FOLDER = "fake-scheduler"
_STEP = (
    "Training epoch 0, iteration {i}/{last} | train_step_timing in s: 1.5 | reduced_train_loss:"
    " 2.5\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeCluster:
    """A cluster on ``scheduler``. It polls without pauses, so that tests that wait take no time."""

    scheduler: Scheduler
    pace: Pace = field(default_factory=lambda: Pace(parallel=4, poll=0.0, slowest_poll=0.0))

    def identity(self) -> str:
        """Return the folder of its scheduler."""
        return f"the scheduler in {self.scheduler.folder}"

    def preflight(self, launches: Sequence[Launch]) -> list[Fault]:
        """No faults: every submission may start."""
        return []

    def render(self, launch: Launch, stamp: Stamp) -> str:
        """Return the job script: a line with the name, id and folder of the job."""
        return f"run {launch.name} as {stamp.id} in {stamp.work(launch.name)}\n"

    def submit(self, run: RunRecord) -> str:
        """Submit a job whose script is what `render` returned. Raises LlmbError."""
        assert run.script.read_text(encoding="utf-8") == self.render(run.launch, run.stamp)
        try:
            return str(self.scheduler.submit(run.stamp.id, run.work))
        except NoReplyError as error:
            raise UnclearError(error.message, hint=error.hint) from error
        except FullError as error:
            raise QueueFullError(error.message, code=error.code) from error

    def find(self, runs: Sequence[RunRecord]) -> Mapping[str, str]:
        """Scheduler ids of the runs that the scheduler knows."""
        jobs = {run.id: self.scheduler.find(run.stamp.id) for run in runs}
        return {key: str(number) for key, number in jobs.items() if number is not None}

    def poll(self, runs: Sequence[RunRecord]) -> Mapping[str, JobState]:
        """States of these runs, from one query."""
        jobs = self.scheduler.query(
            [int(run.scheduler_id) for run in runs if run.scheduler_id is not None]
        )
        states = {}
        for run in runs:
            job = jobs.get(int(run.scheduler_id or 0))
            states[run.id] = JobState(state=LOST if job is None else job.state)
            if job is not None and job.state == COMPLETED:
                _train(run)
        return states

    def cancel(self, runs: Sequence[RunRecord]) -> None:
        """Cancel these runs."""
        for run in runs:
            self.scheduler.cancel(int(run.scheduler_id or 0))


def _train(run: RunRecord) -> None:
    last = run.job.max_steps - 1
    files.write_text(run.log, "".join(_STEP.format(i=step, last=last) for step in range(last + 1)))


def folder_of(install: Path) -> Path:
    """Return the scheduler's folder in an install directory of cluster type ``fake``."""
    return install / FOLDER


def _create(config: ClusterConfig) -> FakeCluster:
    return FakeCluster(scheduler=Scheduler(folder_of(config.llmb_install)))


FAKE = ClusterType(name="fake", create=_create)
