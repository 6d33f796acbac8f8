# SPDX-License-Identifier: Apache-2.0
"""Estimates the GPU-hours of jobs: from past runs, else published step times, else time limits. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from llmb.results.description import configuration_of
from llmb.runs.job import Job
from llmb.text.names import listed
from llmb.verdict.reference import find_reference
from llmb.workload.published import Figure

Alike = tuple[str, str, int]
How = Literal["past", "published", "limit"]
PAST: How = "past"
PUBLISHED: How = "published"
LIMIT: How = "limit"


def alike(job: Job) -> Alike:
    """Equal for jobs that take about the same time: experiment, GPU type, steps."""
    return job.experiment_name, job.gpu_type, job.max_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEstimate:
    """The GPU-hours of one job, and what they follow from.

    ``how``: ``past``, past runs of the same experiment on this install; ``published``, a published step time of
    ``release``, without the start-up; ``limit``, its time limit, as nothing else is known.
    """

    gpu_hours: float
    how: How
    release: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """GPU-hours of some jobs, and the number of jobs estimated in each way, named as in JobEstimate.

    ``releases``: those of the published step times. ``most`` is the GPU-hours of all by their time limits.
    """

    gpu_hours: float
    most: float
    past: int = 0
    published: int = 0
    limit: int = 0
    releases: tuple[str, ...] = ()


def estimate_job(job: Job, past: Mapping[Alike, float], figures: Callable[[str], Sequence[Figure]]) -> JobEstimate:
    """The estimate of one job; ``past``: the seconds of past runs, by ``alike``; ``figures``: those of a workload.

    A job takes at most its time limit.
    """
    how, release, seconds = PAST, None, past.get(alike(job))
    if seconds is None:
        figure, seconds = _published(job, figures)
        how, release = (LIMIT, None) if figure is None else (PUBLISHED, figure.release)
    seconds = job.time_limit if seconds is None else min(seconds, job.time_limit)
    return JobEstimate(gpu_hours=job.scale * seconds / 3600, how=how, release=release)


def estimate(jobs: Sequence[Job], past: Mapping[Alike, float], figures: Callable[[str], Sequence[Figure]]) -> Estimate:
    """The estimate of all ``jobs``; the rest as for ``estimate_job``."""
    return total(jobs, [estimate_job(job, past, figures) for job in jobs])


def total(jobs: Sequence[Job], estimates: Sequence[JobEstimate]) -> Estimate:
    counts: dict[How, int] = {PAST: 0, PUBLISHED: 0, LIMIT: 0}
    for one in estimates:
        counts[one.how] += 1
    return Estimate(
        gpu_hours=sum(one.gpu_hours for one in estimates),
        most=sum(job.scale * job.time_limit for job in jobs) / 3600,
        releases=tuple(sorted({one.release for one in estimates if one.release is not None})),
        past=counts[PAST],
        published=counts[PUBLISHED],
        limit=counts[LIMIT],
    )


def _published(job: Job, figures: Callable[[str], Sequence[Figure]]) -> tuple[Figure | None, float | None]:
    """The figure with the published step time, and the seconds of the job's steps by it.

    None without one, and for a job that trains nothing.
    """
    if job.training is None:
        return None, None
    figure, _ = find_reference(configuration_of(job), figures(job.workload))
    step = None if figure is None else figure.seconds_per_step
    return (None, None) if step is None else (figure, job.max_steps * step)


def describe(found: Estimate, unit: str) -> str:
    """The estimate in words: ``about 12.3 GPU-hours (from past runs), at most 16.0 ... by their time limits``.

    Where the jobs were estimated in several ways, each way has the number of its jobs.
    """
    one = found.past + found.published + found.limit == 1
    limits = "its time limit" if one else "their time limits"
    most = f"{hours_in_words(found.most)} {unit}-hours by {limits}"
    if not found.past and not found.published:
        return f"at most {most}"
    releases = f"release{'' if len(found.releases) == 1 else 's'} {listed(found.releases, 4)}"
    ways = [
        (found.past, "from past runs"),
        (found.published, f"from published step times of {releases}, without start-up"),
        (found.limit, "from time limits"),
    ]
    ways = [(count, how) for count, how in ways if count]
    counted = (f"{count} job{'' if count == 1 else 's'} {how}" for count, how in ways)
    how = "; ".join(counted) if len(ways) > 1 else ways[0][1]
    return f"about {hours_in_words(found.gpu_hours)} {unit}-hours ({how}), at most {most}"


def hours_in_words(hours: float) -> str:
    """One decimal, and below 1 two digits."""
    return f"{hours:,.1f}" if hours >= 0.95 else f"{hours:.2g}"
