# SPDX-License-Identifier: Apache-2.0
"""Submits runs that have failed once more: a new attempt of the same run, its files beside those before it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from llmb.clusters.base import Cluster
from llmb.errors import LlmbError
from llmb.handover import Handed, begin, hand_over_all, owned
from llmb.process import ProcessId
from llmb.runs import record, store
from llmb.runs.record import RunRecord


def retry(
    cluster: Cluster,
    runs: Sequence[RunRecord],
    *,
    keep_going: bool = True,
    on_handed: Callable[[Handed], None] = lambda handed: None,
    on_interrupt: Callable[[], None] = lambda: None,
) -> tuple[list[Handed], bool]:
    """Submit the next attempt of each of these runs, all of which have ended; and whether Ctrl-C came."""
    return hand_over_all(
        iter(runs), lambda run: _attempt(run, cluster), cluster,
        keep_going=keep_going, on_handed=on_handed, on_interrupt=on_interrupt,
    )  # fmt: skip


def _attempt(run: RunRecord, cluster: Cluster) -> Handed:
    try:
        with owned(run):
            now = record.load(run.directory)
            end = store.seen_state(now)
            if now.attempt != run.attempt or end is None or not end.is_end:
                raise LlmbError(f"{run.id} is being retried already", hint="llmb-run jobs list shows it")
            return begin(now.again(end, ProcessId.current(), time.time()), cluster)
    except LlmbError as error:
        return Handed(run=run, error=error)
