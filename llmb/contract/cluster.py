# SPDX-License-Identifier: Apache-2.0
"""The interface of every cluster type, llmb's own and a plugin's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from llmb.core.values import dataclass
from llmb.errors import Fault, LlmbError

if TYPE_CHECKING:
    from llmb.contract.launch import Launch, Stamp
    from llmb.contract.record import RunRecord
    from llmb.contract.state import JobState


HINT_ELSEWHERE = (
    "run the command with the SLURM_CONF, LLMB_STATE_DIR, HOME or configuration of the submission"
)


class UnclearError(LlmbError):
    """A submission got no answer.

    The scheduler may or may not have the run: ``Cluster.find`` finds out.
    """


class QueueFullError(UnclearError):
    """The scheduler takes no more jobs at the moment, and may take this one when others end.

    It is no refusal: the run stays recorded, and is submitted again later, after a look for it.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The times in seconds and the numbers that limit how often llmb calls a cluster."""

    parallel: int = 1  #: concurrent submissions
    poll: float = 0.5  #: from one poll to the next, growing to ``slowest_poll``
    slowest_poll: float = 0.5  #: the longest pause, while nothing changes
    arrival_timeout: float = 0.0  #: a submission may arrive so long after its process was killed
    #: The program that submits a script whose path it gets, if any. On the host that it ran on, a
    #: submission is visible at most ``arrive`` after the program ended.
    sender: str | None = None
    arrive: float = 0.0


class Cluster(Protocol):
    """A cluster that runs jobs. ``render`` is pure. The other methods call the cluster.

    The scheduler knows a run by ``run.stamp.id``, which is different for each attempt. An attempt
    writes its files below ``run.place``.
    """

    @property
    def pace(self) -> Pace:
        """The limits on how often llmb may call the cluster."""

    def identity(self) -> str | None:
        """Return a text that always names this cluster and no other, or None if unknown.

        The record of each run keeps it: a run that another cluster has is not lost because this one
        does not know it. Raises LlmbError if the cluster does not answer.
        """

    def preflight(self, launches: Sequence[Launch]) -> list[Fault]:
        """Return every fault that prevents these launches."""

    def render(self, launch: Launch, stamp: Stamp) -> str:
        """The script that ``submit`` sends for ``launch``, exactly."""

    def submit(self, run: RunRecord) -> str:
        """Submit a recorded run, whose script is ``run.script``, and return the scheduler's id.

        Raises LlmbError for a refusal, QueueFullError if the queue is full now, UnclearError if
        it is unknown whether the scheduler has the run. Called from as many threads at a time as
        ``pace`` says.
        """

    def find(self, runs: Sequence[RunRecord]) -> Mapping[str, str]:
        """Return the scheduler's ids, by the run's, of all runs that the scheduler knows.

        Asked for runs whose submission was cut off. A run that is not found is submitted again. So
        look everywhere: in the run's own files, the queue, and the jobs that have ended. Raises
        LlmbError if it is unknown whether the scheduler has a run: not for a run whose own files
        answer.
        """

    def poll(self, runs: Sequence[RunRecord]) -> Mapping[str, JobState]:
        """Return the state of each run by its id, in as few calls as possible.

        LOST means that the cluster answered and does not know the run: llmb asks a second time to
        be sure. Each run has an answer of its own: if one machine of several is silent, its runs
        get ``state.unanswered(why)``, with the ``state`` that their files show, or UNKNOWN. Raises
        LlmbError if nothing is known of any run.
        """

    def cancel(self, runs: Sequence[RunRecord]) -> None:
        """Cancel these runs, waiting or running. Runs that have ended stay as they are.

        Raises LlmbError after all others are cancelled.
        """


def identity_of(cluster: Cluster) -> str | None:
    """Return the cluster's identity, None if it has none. Raises LlmbError."""
    ask = getattr(cluster, "identity", None)
    return ask() if ask is not None else None


def elsewhere(cluster: Cluster, run: RunRecord) -> str | None:
    """Name this cluster and the other one that has the run. None if they are equal or unknown.

    Raises LlmbError if this cluster does not answer.
    """
    asked_cluster = identity_of(cluster) if run.cluster is not None else None
    if asked_cluster is None or asked_cluster == run.cluster:
        return None
    return f"it was submitted to {run.cluster}, and this command asks {asked_cluster}"
