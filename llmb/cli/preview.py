# SPDX-License-Identifier: Apache-2.0
"""What a dry run shows: each job with all its numbers and the script that would be sent, and the totals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from llmb.cli.context import Context, say
from llmb.cli.output import print_json_list, print_rows
from llmb.errors import LlmbError
from llmb.job import Job
from llmb.runs import store
from llmb.runs.record import RunRecord
from llmb.state import COMPLETED
from llmb.submit import Prepared, preview
from llmb.tables import Column

if TYPE_CHECKING:
    from llmb.estimate import Alike

_HIDDEN = ("model", "learning_rate")
FIELDS = tuple(field.name for field in fields(Job) if field.name not in _HIDDEN)


def job_data(job: Job) -> dict[str, Any]:
    """A job as ``--format json`` prints it: its fields in their order, the time limit as HH:MM:SS."""
    data = {name: getattr(job, name) for name in FIELDS}
    return {**data, "env": dict(job.env), "time_limit": clock(job.time_limit)}


def clock(seconds: float) -> str:
    """Seconds as HH:MM:SS."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest:02}"


def show(context: Context, items: Sequence[Prepared], fmt: str) -> None:
    """Print the jobs of a dry run."""
    if fmt == "json":
        cluster, config = context.cluster, context.config
        print_json_list("jobs", ({**job_data(item.job), "script": preview(item, cluster, config)} for item in items))
        return
    print_rows(_columns(fmt), [job_data(item.job) for item in items], fmt)
    if fmt == "table":
        _totals(context, [item.job for item in items])


def _columns(fmt: str) -> list[Column]:
    if fmt == "csv":
        return [Column(key=name, heading=name) for name in FIELDS]
    left = [Column(key="workload", heading="Workload"), Column(key="model_size", heading="Size")]
    left += [Column(key="dtype", heading="Dtype"), Column(key="gpu_type", heading="GPU")]
    numbers = ("scale", "repeat", "tp", "pp", "cp", "vp", "dp", "mbs", "gbs", "ga", "nodes")
    right = [Column(key=name, heading=_heading(name), right=True) for name in numbers]
    more = [Column(key="time_limit", heading="Limit", right=True), Column(key="profile", heading="Profile", show=_mark)]
    return [*left, *right, *more]


def _heading(name: str) -> str:
    return name.capitalize() if len(name) > 3 else name.upper()


def _mark(value: Any) -> str:
    return "yes" if value else ""


def _totals(context: Context, jobs: Sequence[Job]) -> None:
    """How much it is, and what is missing before it could be submitted."""
    from llmb.estimate import describe, estimate

    unit = "CPU" if all(job.gpu_type == "cpu" for job in jobs) else "GPU"
    found = estimate(jobs, _past(context, jobs), lambda key: context.figures([key]))
    say(f"{len(jobs)} job{'s' if len(jobs) != 1 else ''}, {describe(found, unit)}")
    workloads = context.config.workloads
    missing = sorted({job.workload for job in jobs if not workloads.installed or not workloads.has(job.workload)})
    if missing:
        say(f"not installed here: {', '.join(missing)}")
    say("nothing was submitted (--dry-run)")


def _past(context: Context, jobs: Sequence[Job]) -> dict[Alike, float]:
    """How many seconds the runs of these experiments that ended well here took, on average."""
    from llmb.estimate import alike

    took: dict[Alike, list[float]] = {}
    for workload, name in dict.fromkeys((job.workload, job.experiment_name) for job in jobs):
        for run in store.runs_of(context.config, workload, name):
            if (seconds := _took(run)) is not None:
                took.setdefault(alike(run.job), []).append(seconds)
    return {key: sum(seconds) / len(seconds) for key, seconds in took.items()}


def _took(run: RunRecord) -> float | None:
    """How long a run took that ended well; one damaged file does not stand in the way of an estimate."""
    try:
        seen = store.seen_state(run)
    except LlmbError:
        return None
    if seen is None or seen.state != COMPLETED or seen.started is None or seen.ended is None:
        return None
    return seen.ended - seen.started
