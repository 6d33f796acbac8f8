# SPDX-License-Identifier: Apache-2.0
"""Estimates the GPU-hours of jobs: from past runs, else published step times, else time limits. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from llmb.results.result import configuration_of
from llmb.runs.job import Job
from llmb.verdict.reference import find_reference
from llmb.workload.published import Figure

Alike = tuple[str, str, int]


def alike(job: Job) -> Alike:
    """Equal for jobs that take about the same time: experiment, GPU type, steps."""
    return job.experiment_name, job.gpu_type, job.max_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """GPU-hours of some jobs, and the number of jobs estimated in each way.

    ``past``: from past runs of the same experiment on this install; ``published``: from published step times, without
    the start-up; ``limit``: from the time limit. ``most`` is the GPU-hours of all by their time limits.
    """

    gpu_hours: float
    most: float
    past: int = 0
    published: int = 0
    limit: int = 0


def estimate(jobs: Sequence[Job], past: Mapping[Alike, float], figures: Callable[[str], Sequence[Figure]]) -> Estimate:
    """The estimate; ``past``: the seconds of past runs, by ``alike``; ``figures``: the published figures of a workload.

    A job takes at most its time limit.
    """
    counts = {"past": 0, "published": 0, "limit": 0}
    hours = 0.0
    for job in jobs:
        how, seconds = "past", past.get(alike(job))
        if seconds is None:
            published = _published(job, figures)
            how, seconds = ("limit", float(job.time_limit)) if published is None else ("published", published)
        counts[how] += 1
        hours += job.scale * min(seconds, job.time_limit) / 3600
    return Estimate(gpu_hours=hours, most=sum(job.scale * job.time_limit for job in jobs) / 3600, **counts)


def _published(job: Job, figures: Callable[[str], Sequence[Figure]]) -> float | None:
    """The seconds of its steps by the published step time; None without one, and for a job that trains nothing."""
    if job.training is None:
        return None
    figure, _ = find_reference(configuration_of(job), figures(job.workload))
    step = None if figure is None else figure.seconds_per_step
    return None if step is None else job.max_steps * step


def describe(found: Estimate, unit: str) -> str:
    """The estimate in words: ``about 12.3 GPU-hours (from past runs), at most 16.0 ... by their time limits``.

    Where the jobs were estimated in several ways, each way has the number of its jobs.
    """
    one = found.past + found.published + found.limit == 1
    limits = "its time limit" if one else "their time limits"
    most = f"{_figure(found.most)} {unit}-hours by {limits}"
    if not found.past and not found.published:
        return f"at most {most}"
    ways = [
        (found.past, "from past runs"),
        (found.published, "from published step times, without start-up"),
        (found.limit, "from time limits"),
    ]
    ways = [(count, how) for count, how in ways if count]
    counted = (f"{count} job{'' if count == 1 else 's'} {how}" for count, how in ways)
    how = "; ".join(counted) if len(ways) > 1 else ways[0][1]
    return f"about {_figure(found.gpu_hours)} {unit}-hours ({how}), at most {most}"


def _figure(hours: float) -> str:
    """One decimal, and below 1 two digits."""
    return f"{hours:,.1f}" if hours >= 0.95 else f"{hours:.2g}"
