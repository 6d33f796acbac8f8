# SPDX-License-Identifier: Apache-2.0
"""The cost of a submission in GPU-hours, and the jobs that `--budget` picks."""

from collections.abc import Mapping, Sequence
from typing import Any

from llmb.cli.context import CliContext, say
from llmb.cli.estimates import estimates_of
from llmb.contract.gpus import processor
from llmb.contract.job import Job
from llmb.core.digits import in_enough_digits
from llmb.core.grouping import grouped
from llmb.errors import UsageError
from llmb.plan.budget import parse_budget, pick
from llmb.plan.estimate import LIMIT, Alike, JobEstimate, hours_in_words
from llmb.run.prepare import Prepared

ESTIMATE_FIELDS = ("gpu_hours", "most_gpu_hours", "from", "release")
BUDGET_FIELDS = ("gpu_hours", "used", "skipped")
SKIPPED_FIELDS = ("experiment_name", "repeat", *ESTIMATE_FIELDS)
_NAMED = 8  # skipped experiments that are named


def estimate_data(estimate: JobEstimate) -> dict[str, Any]:
    values = estimate.gpu_hours, estimate.most, estimate.how, estimate.release
    return dict(zip(ESTIMATE_FIELDS, values, strict=True))


def within(
    context: CliContext,
    items: Sequence[Prepared],
    budget: str | None,
    past: Mapping[Alike, float] | None = None,
) -> tuple[Sequence[Prepared], dict[str, Any] | None]:
    """The jobs that fit ``budget`` (None: all), and as data the budget with BUDGET_FIELDS.

    Prints their number and the skipped jobs. Raises UsageError for a budget that cannot be read, or
    that no job fits. ``past`` is as of ``estimates_of``.
    """
    if budget is None or not items:
        return items, None
    limit = parse_budget(budget)
    jobs = [item.job for item in items]
    estimates = estimates_of(context, jobs, past)
    choice = pick(estimates, limit)
    unit = processor(job.gpu_type for job in jobs)
    if not choice.picked:
        cheapest = min(estimate.gpu_hours for estimate in estimates)
        least, most = in_enough_digits(cheapest, limit, hours_in_words)
        raise UsageError(
            f"--budget: no job fits {most} {unit}-hours: the cheapest takes {least}",
            hint="raise the budget, or choose smaller scales or fewer steps",
            code="budget-too-small",
            key="--budget",
            value=budget,
        )
    hours = f"about {hours_in_words(choice.used)} of {hours_in_words(limit)} {unit}-hours"
    say(f"budget: {len(choice.picked)} of {len(jobs)} jobs, {hours}")
    if guessed := sum(estimate.how == LIMIT for estimate in estimates):
        have = "1 job has" if guessed == 1 else f"{guessed} jobs have"
        say(f"note: {have} no past run and no published step time: the estimate is the time limit")
    skipped = [(jobs[place], estimates[place]) for place in choice.skipped]
    _name_skipped(skipped, unit)
    data = [
        {
            "experiment_name": job.experiment_name,
            "repeat": job.repeat,
            **estimate_data(estimate),
        }
        for job, estimate in skipped
    ]
    picked = [items[place] for place in choice.picked]
    return picked, {"gpu_hours": limit, "used": choice.used, "skipped": data}


def _name_skipped(skipped: Sequence[tuple[Job, JobEstimate]], unit: str) -> None:
    """Print the skipped jobs, one line for each of the first _NAMED experiments."""
    groups = grouped((job.experiment_name, estimate.gpu_hours) for job, estimate in skipped)
    for name, hours in list(groups.items())[:_NAMED]:
        times = f"{len(hours)} x " if len(hours) > 1 else ""
        say(f"  skipped: {name} ({times}{hours_in_words(hours[0])} {unit}-hours)")
    unnamed = list(groups.values())[_NAMED:]
    if unnamed:
        say(f"  skipped: {sum(map(len, unnamed))} more jobs (--format json names all of them)")
