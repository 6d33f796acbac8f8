# SPDX-License-Identifier: Apache-2.0
"""The interface of every cluster type, llmb's own and a plugin's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from llmb.errors import Fault, LlmbError

if TYPE_CHECKING:
    from llmb.runs.launch import Launch, Stamp
    from llmb.runs.record import RunRecord
    from llmb.runs.state import JobState


HINT_ELSEWHERE = "run the command with the SLURM_CONF, LLMB_STATE_DIR, HOME or configuration of the submission"


class UnclearError(LlmbError):
    """A submission got no answer: the scheduler may or may not have the run. ``Cluster.find`` finds out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often llmb may call a cluster; times in seconds.

    ``parallel``: concurrent submissions. ``poll``: from one poll to the next, growing to ``slowest_poll`` while nothing
    changes. ``settle``: how long a submission may still take to arrive after its process was killed. ``sender``: the
    program that submits a script whose path it gets, None where there is none; on the host where it ran, a submission
    is visible at most ``arrive`` after that program ended.
    """

    parallel: int = 1
    poll: float = 0.5
    slowest_poll: float = 0.5
    settle: float = 0.0
    sender: str | None = None
    arrive: float = 0.0


class Cluster(Protocol):
    """A cluster that runs jobs. ``render`` is pure; the other methods call the cluster.

    The scheduler knows a run by ``run.stamp.id``, which is different for each attempt. An attempt writes its files
    below ``run.place``.
    """

    @property
    def pace(self) -> Pace:
        """How often llmb may call the cluster."""

    def identity(self) -> str | None:
        """A text that names this cluster, always the same and different from every other's; None where unknown.

        The record of each run keeps it: a run that another cluster has is not lost because this one does not know it.
        Raises LlmbError where the cluster does not answer.
        """

    def preflight(self, launches: Sequence[Launch]) -> list[Fault]:
        """Every fault that prevents these launches; empty when there is none."""

    def render(self, launch: Launch, stamp: Stamp) -> str:
        """The script that ``submit`` sends for ``launch``, exactly."""

    def submit(self, run: RunRecord) -> str:
        """Submit a recorded run, whose script is the file ``run.script``; the scheduler's id of it.

        Raises LlmbError for a refusal, UnclearError where it is unknown whether the scheduler has the run. Called from
        as many threads at a time as ``pace`` says.
        """

    def find(self, runs: Sequence[RunRecord]) -> Mapping[str, str]:
        """The scheduler's id, by the run's, of those runs that the scheduler knows, waiting, running or ended.

        Asked for runs whose submission was cut off; a run that is not found is submitted again. So look everywhere: in
        the run's own files, the queue, and the jobs that have ended. Raises LlmbError where it is unknown whether the
        scheduler has a run: not for a run whose own files answer.
        """

    def poll(self, runs: Sequence[RunRecord]) -> Mapping[str, JobState]:
        """The state of each run by its id, in as few calls as possible.

        LOST means that the cluster answered and does not know the run: llmb asks a second time to be sure. Each run has
        an answer of its own: where one machine of several is silent, its runs get ``state.unanswered(why)``, where
        ``state`` is what their files show or UNKNOWN. Raises LlmbError where nothing is known of any run.
        """

    def cancel(self, runs: Sequence[RunRecord]) -> None:
        """Cancel these runs, waiting or running; runs that have ended stay as they are.

        Raises LlmbError after all others are cancelled.
        """


def identity_of(cluster: Cluster) -> str | None:
    """The cluster's identity; None where it has none, or its plugin implements none. Raises LlmbError."""
    ask = getattr(cluster, "identity", None)
    return ask() if ask is not None else None


def elsewhere(cluster: Cluster, run: RunRecord) -> str | None:
    """A text that names the cluster that has the run and this one; None where they are the same, or unknown.

    Raises LlmbError where this cluster does not answer.
    """
    here = identity_of(cluster) if run.cluster is not None else None
    if here is None or here == run.cluster:
        return None
    return f"it was submitted to {run.cluster}, and this command asks {here}"
