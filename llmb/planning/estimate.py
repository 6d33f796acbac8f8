# SPDX-License-Identifier: Apache-2.0
"""Estimates what a set of jobs will cost in GPU-hours: from past runs, else published step times, else limits. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from llmb.results.result import configuration_of
from llmb.runs.job import Job
from llmb.verdict import find_reference
from llmb.workload.published import Figure

Alike = tuple[str, str, int]


def alike(job: Job) -> Alike:
    """Equal for jobs that take about as long: experiment, GPU type, steps."""
    return job.experiment_name, job.gpu_type, job.max_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """GPU-hours of some jobs, and how many of them were estimated in which way.

    ``past``: by how long the same experiment took here; ``published``: by published step times, without the start-up;
    ``limit``: by the time limit, as there is nothing else. ``most`` is all of them by their time limits.
    """

    gpu_hours: float
    most: float
    past: int = 0
    published: int = 0
    limit: int = 0


def estimate(jobs: Sequence[Job], past: Mapping[Alike, float], figures: Callable[[str], Sequence[Figure]]) -> Estimate:
    """The estimate; ``past`` has the seconds that runs here took, by ``alike``; ``figures`` gives a workload's.

    No job counts for more than its time limit, which ends it.
    """
    counts = {"past": 0, "published": 0, "limit": 0}
    hours = 0.0
    for job in jobs:
        how, seconds = _seconds(job, past, figures)
        counts[how] += 1
        hours += job.scale * min(seconds, job.time_limit) / 3600
    return Estimate(gpu_hours=hours, most=sum(job.scale * job.time_limit for job in jobs) / 3600, **counts)


def _seconds(job: Job, past: Mapping[Alike, float], figures: Callable[[str], Sequence[Figure]]) -> tuple[str, float]:
    if alike(job) in past:
        return "past", past[alike(job)]
    figure, _ = find_reference(configuration_of(job), figures(job.workload))
    return ("published", job.max_steps * figure.step_time_s) if figure else ("limit", float(job.time_limit))


def describe(found: Estimate, unit: str) -> str:
    """The estimate in words: ``about 12.3 GPU-hours (by past runs here), at most 16.0 ... by their time limits``.

    Where the jobs were estimated in several ways, each way has the count of its jobs.
    """
    one = found.past + found.published + found.limit == 1
    limits = "its time limit" if one else "their time limits"
    most = f"{_figure(found.most)} {unit}-hours by {limits}"
    if not found.past and not found.published:
        return f"at most {most}"
    ways = [
        (found.past, "by past runs here"),
        (found.published, "by published step times, start-up not counted"),
        (found.limit, "by time limits"),
    ]
    ways = [(count, how) for count, how in ways if count]
    counted = (f"{count} job{'' if count == 1 else 's'} {how}" for count, how in ways)
    said = "; ".join(counted) if len(ways) > 1 else ways[0][1]
    return f"about {_figure(found.gpu_hours)} {unit}-hours ({said}), at most {most}"


def _figure(hours: float) -> str:
    """One decimal, and below 1 two digits: little is not nothing."""
    return f"{hours:,.1f}" if hours >= 0.95 else f"{hours:.2g}"
