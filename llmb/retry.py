# SPDX-License-Identifier: Apache-2.0
"""Submits runs that have failed once more: a new attempt of the same run, its files beside those before it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from llmb.clusters.base import Cluster
from llmb.clusters.bashscript import clock
from llmb.errors import LlmbError
from llmb.handover import Handed, begin, hand_over_all, owned
from llmb.process import ProcessId
from llmb.runs import record, store
from llmb.runs.record import RunRecord


def retry(
    cluster: Cluster,
    runs: Sequence[RunRecord],
    *,
    time_limit: int | None = None,
    keep_going: bool = True,
    on_handed: Callable[[Handed], None] = lambda handed: None,
    on_interrupt: Callable[[], None] = lambda: None,
) -> tuple[list[Handed], bool]:
    """Submit the next attempt of each of these runs, all of which have ended; and whether Ctrl-C came.

    ``time_limit``: of the new attempts in seconds, None for that of the one before.
    """
    return hand_over_all(
        iter(runs), lambda run: _attempt(run, cluster, time_limit), cluster,
        keep_going=keep_going, on_handed=on_handed, on_interrupt=on_interrupt,
    )  # fmt: skip


def with_limit(run: RunRecord, seconds: int) -> RunRecord:
    """The run with this time limit; on Slurm over ``--slurm-arg`` and ``args`` of the configuration."""
    args = {name: value for name, value in run.launch.slurm_args.items() if name.strip("-") != "time"}
    if run.cluster_type == "slurm":
        args["time"] = clock(seconds)
    launch = replace(run.launch, time_limit=seconds, slurm_args=args)
    return replace(run, job=replace(run.job, time_limit=seconds), launch=launch)


def _attempt(run: RunRecord, cluster: Cluster, time_limit: int | None) -> Handed:
    try:
        with owned(run):
            now = record.load(run.directory)
            end = store.seen_state(now)
            if now.attempt != run.attempt or end is None or not end.is_end:
                raise LlmbError(f"{run.id} is being retried already", hint="llmb-run jobs list shows it")
            again = now.again(end, ProcessId.current(), time.time())
            return begin(again if time_limit is None else with_limit(again, time_limit), cluster)
    except LlmbError as error:
        return Handed(run=run, error=error)
