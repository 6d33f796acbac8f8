# SPDX-License-Identifier: Apache-2.0
"""What every cluster type answers; llmb's own and a plugin's alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from llmb.config import ClusterConfig
    from llmb.errors import Fault
    from llmb.launch import Launch, Stamp
    from llmb.runs.record import RunRecord
    from llmb.state import JobState


class Cluster(Protocol):
    """A place that runs jobs. Only ``submit``, ``poll`` and ``cancel`` touch it; ``render`` is pure."""

    def preflight(self, launches: Sequence[Launch]) -> list[Fault]:
        """What stands in the way of these launches, all of it; empty when nothing does."""

    def render(self, launch: Launch, stamp: Stamp) -> str:
        """The script that would be sent for ``launch``: the very text that ``submit`` sends."""

    def submit(self, run: RunRecord) -> str:
        """Hand over a recorded run, whose script lies at ``run.script``; the scheduler's id of it. Raises LlmbError."""

    def poll(self, runs: Sequence[RunRecord]) -> Mapping[str, JobState]:
        """The state of each run by its id, in one go however many they are."""

    def cancel(self, runs: Sequence[RunRecord]) -> None:
        """End these runs, waiting or running. One that has ended already is left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterType:
    """A cluster type by the name that ``cluster_type`` in cluster_config.yaml gives it."""

    name: str
    create: Callable[[ClusterConfig], Cluster]
