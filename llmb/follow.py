# SPDX-License-Identifier: Apache-2.0
"""Follows runs: asks the cluster once for all that have not ended, and keeps what it says."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from llmb.clusters.base import Cluster
from llmb.runs import store
from llmb.runs.record import RunRecord
from llmb.state import UNKNOWN, JobState

POLL_SECONDS = 0.5


def poll(cluster: Cluster, runs: Sequence[RunRecord]) -> dict[str, JobState]:
    """The state of each run by its id. One that has ended before is not asked for again."""
    states = {run.id: seen for run in runs if (seen := store.seen_state(run)) is not None and seen.is_end}
    live = [run for run in runs if run.id not in states]
    polled = cluster.poll(live) if live else {}
    for run in live:
        states[run.id] = store.save_state(run, polled.get(run.id, JobState(state=UNKNOWN)))
    return states


def wait(
    cluster: Cluster,
    runs: Sequence[RunRecord],
    on_poll: Callable[[Mapping[str, JobState]], None],
    *,
    every: float = POLL_SECONDS,
) -> dict[str, JobState]:
    """Poll until every run has ended; ``on_poll`` sees each round. Ctrl-C leaves the jobs alone."""
    while True:
        states = poll(cluster, runs)
        on_poll(states)
        if all(state.is_end for state in states.values()):
            return states
        time.sleep(every)
