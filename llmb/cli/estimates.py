# SPDX-License-Identifier: Apache-2.0
"""Estimates the time of jobs from past runs of the install directory, or published step times."""

from collections.abc import Mapping, Sequence

from llmb.cli.context import CliContext
from llmb.contract.job import Job
from llmb.contract.state import COMPLETED
from llmb.core.grouping import grouped
from llmb.kit.seen_state import last_seen
from llmb.plan.estimate import Alike, JobEstimate, alike, estimate_job, occupied_gpus
from llmb.plan.repeats import once_for_repeats
from llmb.run import store


def estimates_of(
    context: CliContext, jobs: Sequence[Job], past: Mapping[Alike, float] | None = None
) -> list[JobEstimate]:
    """Estimate each job from past runs here, published step times, or its time limit.

    ``past``: what ``past_of`` returned for these jobs and others, None to read it now.
    """
    seconds = past_of(context, jobs) if past is None else past

    def estimate(job: Job) -> JobEstimate:
        gpus = occupied_gpus(job, context.config)
        return estimate_job(job, gpus, seconds, lambda key: context.figures([key]))

    return once_for_repeats(estimate, jobs)


def past_of(context: CliContext, jobs: Sequence[Job]) -> dict[Alike, float]:
    """The mean seconds of the completed runs of these experiments on this install."""
    durations = grouped(
        (alike(run.job), state.ended - state.started)
        for workload, name in dict.fromkeys((job.workload, job.experiment_name) for job in jobs)
        for run in store.runs_of(context.config, workload, name)
        if (state := last_seen(run)).state == COMPLETED
        and state.started is not None
        and state.ended is not None
    )
    return {key: sum(seconds) / len(seconds) for key, seconds in durations.items()}
