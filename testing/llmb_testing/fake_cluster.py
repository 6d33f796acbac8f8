# SPDX-License-Identifier: Apache-2.0
"""The cluster type ``fake``, for tests: llmb's own way of working with a cluster, on a scheduler in a folder.

A job that ends COMPLETED has written a log of ``max_steps`` steps, so that it has a result. As a plugin:

    [project.entry-points.llmb]
    fake = "llmb_testing.plugin"
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from llmb.clusters.base import ClusterType, Pace, UnclearError
from llmb.config import ClusterConfig
from llmb.errors import Fault
from llmb.runs.launch import Launch, Stamp
from llmb.runs.record import RunRecord
from llmb.runs.state import COMPLETED, LOST, JobState
from llmb.system import files
from llmb_testing.scheduler import Scheduler, SilentError

FOLDER = "fake-scheduler"
_STEP = "Training epoch 0, iteration {i}/{last} | train_step_timing in s: 1.5 | reduced_train_loss: 2.5\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeCluster:
    """A cluster on ``scheduler``. It polls without a pause, so a test of waiting takes no time."""

    scheduler: Scheduler
    pace: Pace = field(default_factory=lambda: Pace(parallel=4, poll=0.0, slowest_poll=0.0))

    def identity(self) -> str:
        """Which scheduler it is, by its folder."""
        return f"the scheduler in {self.scheduler.folder}"

    def preflight(self, launches: Sequence[Launch]) -> list[Fault]:
        """Nothing ever stands in the way."""
        return []

    def render(self, launch: Launch, stamp: Stamp) -> str:
        """A text that names all that the cluster is told."""
        return f"run {launch.name} as {stamp.id} in {stamp.work(launch.name)}\n"

    def submit(self, run: RunRecord) -> str:
        """Give the scheduler a job named as its script says. Raises LlmbError."""
        assert run.script.read_text(encoding="utf-8") == self.render(run.launch, run.stamp)
        try:
            return str(self.scheduler.submit(run.stamp.id, run.work))
        except SilentError as error:
            raise UnclearError(error.message, hint=error.hint) from error

    def find(self, runs: Sequence[RunRecord]) -> Mapping[str, str]:
        """The numbers of those of these runs whose job the scheduler has."""
        found = {run.id: self.scheduler.find(run.stamp.id) for run in runs}
        return {key: str(number) for key, number in found.items() if number is not None}

    def poll(self, runs: Sequence[RunRecord]) -> Mapping[str, JobState]:
        """The states of these runs, by one query."""
        jobs = self.scheduler.query([int(run.scheduler_id) for run in runs if run.scheduler_id is not None])
        states = {}
        for run in runs:
            job = jobs.get(int(run.scheduler_id or 0))
            states[run.id] = JobState(state=LOST if job is None else job.state)
            if job is not None and job.state == COMPLETED:
                _train(run)
        return states

    def cancel(self, runs: Sequence[RunRecord]) -> None:
        """End these runs."""
        for run in runs:
            self.scheduler.cancel(int(run.scheduler_id or 0))


def _train(run: RunRecord) -> None:
    last = run.job.max_steps - 1
    files.write_text(run.log, "".join(_STEP.format(i=step, last=last) for step in range(last + 1)))


def folder_of(install: Path) -> Path:
    """Where the scheduler of an install directory of cluster type ``fake`` is."""
    return install / FOLDER


def _create(config: ClusterConfig) -> FakeCluster:
    return FakeCluster(scheduler=Scheduler(folder_of(config.llmb_install)))


FAKE = ClusterType(name="fake", create=_create)
