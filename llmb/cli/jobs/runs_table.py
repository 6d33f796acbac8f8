# SPDX-License-Identifier: Apache-2.0
"""Lists runs: which they are, their states, and what they measured."""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from llmb.cli.context import Context, say
from llmb.cli.jobs.filters import Filters, choose, selects
from llmb.cli.jobs.outcomes import FIELDS as OUTCOME, outcome_data, outcomes
from llmb.cli.output import print_runs
from llmb.cli.results import states_of
from llmb.results.result import Result
from llmb.results.table import figure
from llmb.runs.record import RunRecord
from llmb.runs.state import UNKNOWN, JobState
from llmb.stats.metrics import STEP_TIME
from llmb.text.tables import Column
from llmb.text.times import clock, day_and_time, iso
from llmb.verdict.judge import NO_REFERENCE

NO_RUN = "no run yet; submit some: llmb-run submit-all jobs.txt"
_JOB = ("workload", "model_size", "dtype", "gpu_type", "scale")
_TABLE = ("id", "experiment", "parameters", "repeat", "state", "value", "verdict", "submitted", "ran", "reason")
# The contract of `--format json`.
FIELDS = (
    *("id", "scheduler_id", "attempt", "experiment", "repeat", "state", "submitted", "ran", "reason", "parameters"),
    *(*_JOB, *OUTCOME),
)
_OPTIONAL = ("parameters", "repeat", "value", "verdict", "submitted", "ran")


def list_runs(context: Context, fmt: str, filters: Filters) -> None:
    """Print the runs that ``filters`` select, with states and results."""
    runs = choose(context, context.runs(), filters)
    states = states_of(context, runs)
    runs = [run for run in runs if selects(run, states[run.id], filters)]
    results, unread = outcomes(context, runs, states)
    rows = [_row(run, states[run.id], results.get(run.id)) for run in runs]
    for one in context.unreadable if filters.is_any else ():
        known = {"experiment": one.directory.parent.name, "state": UNKNOWN, "reason": one.reason}
        rows.append(dict.fromkeys(FIELDS) | known)
    if not rows:
        say(NO_RUN if filters.is_any else "no run matches the options")
    print_runs(*table_of(rows, fmt), fmt)
    if unread:
        say(f"note: {unread} runs have no result here yet: llmb-run results reads their logs")


def _row(run: RunRecord, state: JobState, result: Result | None) -> dict[str, Any]:
    ran = clock((state.ended or time.time()) - state.started) if state.started is not None else None
    return {
        "id": run.id,
        "scheduler_id": run.scheduler_id,
        "attempt": run.attempt,
        "experiment": run.job.experiment_name,
        "repeat": run.job.repeat,
        "state": state.state,
        "submitted": iso(run.submitted_at),
        "ran": ran,
        "reason": state.reason,
        "parameters": dict(run.job.parameters),
        **{name: getattr(run.job, name) for name in _JOB},
        **outcome_data(result),
    }


def table_of(rows: Sequence[dict[str, Any]], fmt: str) -> tuple[list[Column], list[dict[str, Any]]]:
    """The columns and rows of the list; ``rows`` have the values of FIELDS.

    A table shows a later attempt after the state; repeats, reasons, values and verdicts only where there are any; and
    the workload's own parameters in which the runs differ.
    """
    if fmt != "table":
        return _columns(FIELDS), list(rows)
    differing = _differing([row.get("parameters") or {} for row in rows])
    metrics = {(row["metric"], row["unit"]) for row in rows if row["value"] is not None}
    shown = {
        "parameters": bool(differing),
        "repeat": any(row["repeat"] not in (None, 1) for row in rows),
        "value": bool(metrics),
        "verdict": any(row["verdict"] not in (None, NO_REFERENCE) for row in rows),
        "reason": any(row["reason"] for row in rows),
    }
    columns = _columns([name for name in _TABLE if shown.get(name, True)], _title(metrics))
    return columns, [_shown(row, differing, mixed=len(metrics) > 1) for row in rows]


def _shown(row: Mapping[str, Any], differing: Collection[str], *, mixed: bool) -> dict[str, Any]:
    """The cells of a row for people; ``mixed``: rows have several metrics, so values have their unit."""
    number = f" #{row['attempt']}" if (row["attempt"] or 1) > 1 else ""
    own = (row.get("parameters") or {}).items()
    value = row["value"]
    ratio = "" if row["ratio"] is None else f" {row['ratio']:.3f}"
    return {
        **row,
        "state": f"{row['state']}{number}",
        "parameters": " ".join(f"{name}={value}" for name, value in own if name in differing),
        "value": None if value is None else figure(row["metric"], value, row["unit"] if mixed else ""),
        "verdict": None if row["verdict"] in (None, NO_REFERENCE) else f"{row['verdict']}{ratio}",
    }


def _title(metrics: Collection[tuple[str, str]]) -> str:
    """The heading of the values: ``step (s)``, ``busbw (GB/s)``, or ``result`` where they are of several metrics."""
    if len(metrics) != 1:
        return "result"
    ((name, unit),) = metrics
    name = "step" if name == STEP_TIME else name
    return f"{name} ({unit})" if unit else name


def _differing(all_values: Sequence[Mapping[str, str]]) -> set[str]:
    """The names of parameters with several values."""
    found: dict[str, set[str]] = {}
    for values in all_values:
        for name, value in values.items():
            found.setdefault(name, set()).add(value)
    return {name for name, values in found.items() if len(values) > 1}


def _columns(names: Sequence[str], value: str = "value") -> list[Column]:
    """The columns of these ``names``; ``value``: the heading of what was measured."""
    show = {"submitted": lambda text: day_and_time(text)[:16]}
    return [
        Column(
            key=name,
            heading=value if name == "value" else name.replace("_", " ").capitalize(),
            show=show.get(name, str),
            right=name == "value",
            optional=name in _OPTIONAL,
        )
        for name in names
    ]
