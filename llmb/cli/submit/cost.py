# SPDX-License-Identifier: Apache-2.0
"""What the jobs of a submission cost in GPU-hours, and which of them `--budget` picks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llmb.cli.context import Context, say
from llmb.errors import UsageError
from llmb.planning.budget import parse_budget, pick
from llmb.planning.estimate import LIMIT, Alike, JobEstimate, alike, estimate_job, hours_in_words
from llmb.runs import store
from llmb.runs.job import Job
from llmb.runs.state import COMPLETED
from llmb.submission.prepare import Prepared

ESTIMATE_FIELDS = ("gpu_hours", "from", "release")
BUDGET_FIELDS = ("gpu_hours", "used", "skipped")
SKIPPED_FIELDS = ("experiment_name", "repeat", *ESTIMATE_FIELDS)
_NAMED = 8  # skipped experiments that are named


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The jobs within a budget, and as data the budget: that of BUDGET_FIELDS, None without a budget."""

    items: tuple[Prepared, ...]
    budget: dict[str, Any] | None = None


def estimates_of(context: Context, jobs: Sequence[Job]) -> list[JobEstimate]:
    """The estimate of each job, from past runs of this install or published step times, else its time limit."""
    past = _past(context, jobs)
    return [estimate_job(job, past, lambda key: context.figures([key])) for job in jobs]


def estimate_data(one: JobEstimate) -> dict[str, Any]:
    return {"gpu_hours": one.gpu_hours, "from": one.how, "release": one.release}


def within(context: Context, items: Sequence[Prepared], budget: str | None) -> Chosen:
    """The jobs that fit ``budget`` (None: all); prints how many, and which are skipped.

    Raises UsageError for a budget that cannot be read, or that no job fits.
    """
    if budget is None or not items:
        return Chosen(items=tuple(items))
    limit = parse_budget(budget)
    jobs = [item.job for item in items]
    estimates = estimates_of(context, jobs)
    found = pick(estimates, limit)
    unit = "CPU" if all(job.gpu_type == "cpu" for job in jobs) else "GPU"
    if not found.picked:
        least = hours_in_words(min(one.gpu_hours for one in estimates))
        message = f"--budget: no job fits {hours_in_words(limit)} {unit}-hours: the cheapest takes {least}"
        hint = "raise the budget, or choose smaller scales or fewer steps"
        raise UsageError(message, hint=hint, code="budget-too-small", key="--budget", value=budget)
    hours = f"about {hours_in_words(found.used)} of {hours_in_words(limit)} {unit}-hours"
    say(f"budget: {len(found.picked)} of {len(jobs)} jobs, {hours}")
    if guessed := sum(one.how == LIMIT for one in estimates):
        have = "1 job has" if guessed == 1 else f"{guessed} jobs have"
        say(f"note: {have} no past run and no published step time: the estimate is the time limit")
    _name_skipped([(jobs[place], estimates[place]) for place in found.skipped], unit)
    skipped = [
        {"experiment_name": jobs[at].experiment_name, "repeat": jobs[at].repeat, **estimate_data(estimates[at])}
        for at in found.skipped
    ]
    return Chosen(
        items=tuple(items[place] for place in found.picked),
        budget={"gpu_hours": limit, "used": found.used, "skipped": skipped},
    )


def _name_skipped(skipped: Sequence[tuple[Job, JobEstimate]], unit: str) -> None:
    """Print the skipped jobs, those of one experiment on one line, the first _NAMED experiments by name."""
    groups: dict[str, list[float]] = {}
    for job, one in skipped:
        groups.setdefault(job.experiment_name, []).append(one.gpu_hours)
    for name, hours in list(groups.items())[:_NAMED]:
        times = f"{len(hours)} x " if len(hours) > 1 else ""
        say(f"  skipped: {name} ({times}{hours_in_words(hours[0])} {unit}-hours)")
    left = list(groups.values())[_NAMED:]
    if left:
        say(f"  skipped: {sum(map(len, left))} more jobs; --format json names them all")


def _past(context: Context, jobs: Sequence[Job]) -> dict[Alike, float]:
    """The mean seconds of the completed runs of these experiments on this install."""
    took: dict[Alike, list[float]] = {}
    for workload, name in dict.fromkeys((job.workload, job.experiment_name) for job in jobs):
        for run in store.runs_of(context.config, workload, name):
            seen = store.seen_state(run)
            if seen is not None and seen.state == COMPLETED and seen.started is not None and seen.ended is not None:
                took.setdefault(alike(run.job), []).append(seen.ended - seen.started)
    return {key: sum(seconds) / len(seconds) for key, seconds in took.items()}
