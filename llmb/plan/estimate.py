# SPDX-License-Identifier: Apache-2.0
"""Estimates the GPU-hours of jobs from past runs, else published step times, else limits. Pure."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from llmb.contract.job import Job
from llmb.contract.schema import ClusterConfig
from llmb.core.digits import in_enough_digits
from llmb.core.names import listed
from llmb.core.values import dataclass
from llmb.plan.find_reference import find_reference
from llmb.plan.published import Figure

Alike = tuple[str, str, int]
How = Literal["past", "published", "limit"]
PAST: How = "past"
PUBLISHED: How = "published"
LIMIT: How = "limit"
TIGHT = 0.8  # of a time limit: the start-up, a save and slower nodes need the rest


def alike(job: Job) -> Alike:
    """Equal for jobs that take about the same time: experiment, GPU type, steps."""
    return job.experiment_name, job.gpu_type, job.max_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEstimate:
    """The GPU-hours of one job, and what they follow from."""

    gpu_hours: float
    #: The GPU-hours by its time limit.
    most: float
    #: How long the job runs.
    seconds: float
    #: ``past``: past runs of the same experiment on this install. ``published``: a published step
    #: time of ``release``, without the start-up. ``limit``: its time limit, as nothing else is
    #: known.
    how: How
    release: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalEstimate:
    """GPU-hours of some jobs, and the number of jobs that were estimated in each way."""

    gpu_hours: float
    #: The GPU-hours of all by their time limits.
    most: float
    #: Jobs estimated from past runs.
    past: int = 0
    #: Jobs estimated from published step times.
    published: int = 0
    #: Jobs estimated by their time limits.
    limit: int = 0
    #: Of the published step times.
    releases: tuple[str, ...] = ()


def occupied_gpus(job: Job, config: ClusterConfig) -> int:
    """Return the GPUs that nobody else can use while the job runs.

    Slurm gives it whole nodes, also if it uses fewer of their GPUs.
    """
    if not config.traits.sbatch_options:
        return job.scale
    return max(job.scale, job.nodes * config.gpu(job.gpu_type).gpus_per_node)


def estimate_job(
    job: Job, gpus: int, past: Mapping[Alike, float], figures: Callable[[str], Sequence[Figure]]
) -> JobEstimate:
    """Return the estimate of one job from ``past`` runs or the ``figures`` of its workload.

    ``gpus``: ``occupied_gpus``. ``past`` has seconds by ``alike``. The estimate may be longer than
    the job's time limit: ``limit_warnings`` names such jobs.
    """
    source, release, seconds = PAST, None, past.get(alike(job))
    if seconds is None:
        figure, seconds = _published(job, figures)
        source, release = (LIMIT, None) if figure is None else (PUBLISHED, figure.release)
    seconds = job.time_limit if seconds is None else seconds
    return JobEstimate(
        gpu_hours=gpus * seconds / 3600,
        most=gpus * job.time_limit / 3600,
        seconds=seconds,
        how=source,
        release=release,
    )


def limit_warnings(jobs: Sequence[Job], estimates: Sequence[JobEstimate]) -> Iterator[str]:
    """Warn once of each experiment whose estimate is near its time limit, or above."""
    tight: dict[tuple[str, int], JobEstimate] = {}
    for job, estimated in zip(jobs, estimates, strict=True):
        if estimated.how != LIMIT and estimated.seconds > TIGHT * job.time_limit:
            tight.setdefault((job.experiment_name, job.time_limit), estimated)
    for (name, limit), estimated in tight.items():
        source = "past runs" if estimated.how == PAST else f"the figure of {estimated.release}"
        start_up = "" if estimated.how == PAST else " without start-up"
        yield (
            f"{name} takes about {minutes_in_words(estimated.seconds)} by {source}{start_up}, and"
            f" its time limit is {minutes_in_words(limit)}; --time-limit HH:MM:SS raises it"
        )


def total(estimates: Sequence[JobEstimate]) -> TotalEstimate:
    counts = Counter(job_estimate.how for job_estimate in estimates)
    return TotalEstimate(
        gpu_hours=sum(job_estimate.gpu_hours for job_estimate in estimates),
        most=sum(job_estimate.most for job_estimate in estimates),
        releases=tuple(
            sorted(
                {
                    job_estimate.release
                    for job_estimate in estimates
                    if job_estimate.release is not None
                }
            )
        ),
        past=counts[PAST],
        published=counts[PUBLISHED],
        limit=counts[LIMIT],
    )


def _published(
    job: Job, figures: Callable[[str], Sequence[Figure]]
) -> tuple[Figure | None, float | None]:
    """The figure with the published step time, and the seconds of the job's steps by it.

    None without one, and for a job that trains nothing.
    """
    if job.training is None:
        return None, None
    figure, _ = find_reference(job.settings, figures(job.workload))
    step = None if figure is None else figure.seconds_per_step
    return (None, None) if step is None else (figure, job.max_steps * step)


def describe(whole: TotalEstimate, unit: str) -> str:
    """Return ``about 12.3 GPU-hours (from past runs), at most 16.0 ... by their time limits``.

    If the jobs were estimated in several ways, each way has the number of its jobs.
    """
    is_single = whole.past + whole.published + whole.limit == 1
    limits = "its time limit" if is_single else "their time limits"
    used, most = hours_in_words(whole.gpu_hours), hours_in_words(whole.most)
    if whole.gpu_hours > whole.most:
        used, most = in_enough_digits(whole.gpu_hours, whole.most, hours_in_words)
    upper_limit = f"{most} {unit}-hours by {limits}"
    if not whole.past and not whole.published:
        return f"at most {upper_limit}"
    releases = f"release{'' if len(whole.releases) == 1 else 's'} {listed(whole.releases, 4)}"
    ways = [
        (whole.past, "from past runs"),
        (whole.published, f"from published step times of {releases}, without start-up"),
        (whole.limit, "from time limits"),
    ]
    ways = [(count, how) for count, how in ways if count]
    counted = (f"{count} job{'' if count == 1 else 's'} {how}" for count, how in ways)
    how = "; ".join(counted) if len(ways) > 1 else ways[0][1]
    if whole.gpu_hours > whole.most:
        return f"about {used} {unit}-hours ({how}), more than the {upper_limit}"
    return f"about {used} {unit}-hours ({how}), at most {upper_limit}"


def minutes_in_words(seconds: float) -> str:
    """Whole minutes, and below two of them seconds."""
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"


def hours_in_words(hours: float, more: int = 0) -> str:
    """One decimal, and below 1 two digits. ``more``: digits beyond these."""
    below_one = f"{hours:.{2 + more}g}"
    return below_one if float(below_one) < 1 else f"{hours:,.{1 + more}f}"
