# SPDX-License-Identifier: Apache-2.0
"""What every cluster type answers; llmb's own and a plugin's alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from llmb.errors import LlmbError

if TYPE_CHECKING:
    from llmb.config import ClusterConfig
    from llmb.errors import Fault
    from llmb.runs.launch import Launch, Stamp
    from llmb.runs.record import RunRecord
    from llmb.runs.state import JobState


HINT_ELSEWHERE = "ask with the SLURM_CONF, LLMB_STATE_DIR, HOME or configuration that it was submitted with"


class UnclearError(LlmbError):
    """A submission got no answer: the scheduler may have taken the run, or not. ``Cluster.find`` will tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How hard a cluster may be worked; times in seconds.

    ``parallel``: submissions at a time; ``poll``: from one poll to the next, growing to ``slowest_poll`` while nothing
    changes; ``settle``: how long a submission may still take to arrive after its sender was killed; ``sender``: the
    program that is told the script's path and submits it, None where there is none; on the host where it ran, once it
    has ended, a submission takes at most ``arrive`` to be seen.
    """

    parallel: int = 1
    poll: float = 0.5
    slowest_poll: float = 0.5
    settle: float = 0.0
    sender: str | None = None
    arrive: float = 0.0


class Cluster(Protocol):
    """A place that runs jobs. ``render`` is pure; the other methods touch the cluster.

    A run is known to the scheduler by ``run.stamp.id``, which each attempt has its own; what an attempt writes goes
    below ``run.place``.
    """

    @property
    def pace(self) -> Pace:
        """How hard the cluster may be worked."""

    def identity(self) -> str | None:
        """Which cluster this is, in words that stay the same and that no other cluster has; None where nobody can say.

        Kept in the record of each run: a run that another cluster has taken is not lost because this one does not know
        it. Raises LlmbError where the cluster does not answer.
        """

    def preflight(self, launches: Sequence[Launch]) -> list[Fault]:
        """What stands in the way of these launches, all of it; empty when nothing does."""

    def render(self, launch: Launch, stamp: Stamp) -> str:
        """The script that would be sent for ``launch``: the very text that ``submit`` sends."""

    def submit(self, run: RunRecord) -> str:
        """Hand over a recorded run, whose script lies at ``run.script``; the scheduler's id of it.

        Raises LlmbError for a refusal, UnclearError where it is not known whether the run was taken. May be called from
        several threads at a time, as many as ``pace`` says.
        """

    def find(self, runs: Sequence[RunRecord]) -> Mapping[str, str]:
        """The scheduler's id, by the run's, of each of these runs that the scheduler knows, waiting, running or ended.

        Asked for runs whose submission was cut off: one that is not found is submitted again. So it looks everywhere:
        what the run itself has written, the queue, what has ended. Raises LlmbError where it cannot know.
        """

    def poll(self, runs: Sequence[RunRecord]) -> Mapping[str, JobState]:
        """The state of each run by its id, in one go however many they are.

        LOST means that the cluster was asked and does not know the run: llmb itself makes sure by a second look.
        """

    def cancel(self, runs: Sequence[RunRecord]) -> None:
        """End these runs, waiting or running. One that has ended already is left alone."""


def identity_of(cluster: Cluster) -> str | None:
    """Which cluster this is; None where it cannot say, or is of a plugin that knows no identities. Raises LlmbError."""
    ask = getattr(cluster, "identity", None)
    return ask() if ask is not None else None


def elsewhere(cluster: Cluster, run: RunRecord) -> str | None:
    """Which cluster has taken the run, and which this one is, where they differ; None where they do not, as far as
    anybody knows. Raises LlmbError where this cluster does not answer."""
    here = identity_of(cluster) if run.cluster is not None else None
    if here is None or here == run.cluster:
        return None
    return f"it was submitted to {run.cluster}, and this command asks {here}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterType:
    """A cluster type by the name that ``cluster_type`` in cluster_config.yaml gives it."""

    name: str
    create: Callable[[ClusterConfig], Cluster]
