# SPDX-License-Identifier: Apache-2.0
"""Retry failed runs: a new attempt of the same run, each with its own folder."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from llmb.contract import record
from llmb.contract.cluster import Cluster
from llmb.contract.state import LOST, JobState
from llmb.core.process import ProcessId
from llmb.errors import LlmbError
from llmb.run import store
from llmb.run.prepare import NO_ARGS
from llmb.run.submission import (
    SubmitResult,
    check_is_here,
    start_attempt,
    submission_lock,
    submit_each,
)

# Ends that the machines caused, not the job: a retry without changes may succeed.
RETRIABLE = frozenset({"NODE_FAIL", "PREEMPTED", "BOOT_FAIL", LOST})
RETRY_AFTER = 600.0  # seconds after a run was lost, in which it may reappear


def may_be_retried(state: JobState, now: float) -> bool:
    """Return True if the attempt that ended with ``state`` cannot reappear."""
    # The clock may have been set back, or it is another login node's, some seconds behind.
    return state.is_final or not state.is_end or abs(now - (state.ended or 0.0)) >= RETRY_AFTER


def retry(
    cluster: Cluster,
    runs: Sequence[record.RunRecord],
    *,
    time_limit: int | None = None,
    slurm_args: Mapping[str, str | bool] = NO_ARGS,
    on_result: Callable[[SubmitResult], None] = lambda results: None,
    on_interrupt: Callable[[], None] = lambda: None,
) -> tuple[list[SubmitResult], bool]:
    """Submit the next attempt of each of these runs, all of which have ended.

    Returns the results, and True if Ctrl-C interrupted. ``time_limit`` is for the new attempts, in
    seconds, None to keep it. ``slurm_args`` override a run's own.
    """
    return submit_each(
        iter(runs),
        lambda run: _attempt(run, cluster, time_limit, slurm_args),
        cluster,
        keep_going=True,
        on_result=on_result,
        on_interrupt=on_interrupt,
    )


def changed(
    run: record.RunRecord, time_limit: int | None, slurm_args: Mapping[str, str | bool] = NO_ARGS
) -> record.RunRecord:
    """Return the run with another time limit and more options of sbatch.

    The limit overrides an earlier ``time``.
    """
    kept_args = {
        name: value
        for name, value in run.launch.slurm_args.items()
        if time_limit is None or name != "time"
    }
    launch = replace(run.launch, slurm_args={**kept_args, **slurm_args})
    if time_limit is None:
        return replace(run, launch=launch)
    return replace(
        run,
        job=replace(run.job, time_limit=time_limit),
        launch=replace(launch, time_limit=time_limit),
    )


def _check_over(cluster: Cluster, run: record.RunRecord, end: JobState) -> None:
    """Raise LlmbError for a lost run that may reappear: two attempts would then run at once."""
    if end.is_final:
        return
    check_is_here(cluster, run)
    now = time.time()
    if not may_be_retried(end, now):
        minutes = (RETRY_AFTER - (now - (end.ended or now))) / 60
        raise LlmbError(
            f"{run.id} was lost a moment ago and may reappear",
            hint=f"retry it in {minutes:.0f} min" if minutes >= 1 else "retry it in a minute",
            code="run-just-lost",
            value=round(minutes),
        )


def _attempt(
    run: record.RunRecord,
    cluster: Cluster,
    time_limit: int | None,
    slurm_args: Mapping[str, str | bool],
) -> SubmitResult:
    try:
        with submission_lock(run):
            current = record.load(run.directory)
            end = store.seen_state(current)
            # Read again under the lock: another command may have started the next attempt.
            if current.attempt != run.attempt or end is None or not end.is_end:
                raise LlmbError(
                    f"{run.id} is already being retried",
                    hint="llmb-run jobs shows it",
                    code="run-being-retried",
                    value=run.id,
                )
            _check_over(cluster, current, end)
            again = current.next_attempt(end, ProcessId.current(), time.time())
            return start_attempt(changed(again, time_limit, slurm_args), cluster)
    except LlmbError as error:
        return SubmitResult(run=run, error=error)
