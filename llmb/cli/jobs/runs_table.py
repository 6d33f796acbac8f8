# SPDX-License-Identifier: Apache-2.0
"""Lists runs: which they are, their states, and what they measured, from kept summaries with few logs read."""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from llmb.cli import output, reading
from llmb.cli.context import Context, say
from llmb.cli.jobs.filters import Filters, choose, selects
from llmb.cli.results import judged, states_of
from llmb.results import summary, table
from llmb.results.result import Result
from llmb.runs.record import RunRecord
from llmb.runs.state import UNKNOWN, JobState
from llmb.stats.metrics import STEP_TIME, MetricSpec, heading
from llmb.text.tables import Column
from llmb.text.times import clock, day_and_time, iso
from llmb.verdict.judge import NO_REFERENCE

READ = 16  # logs that a list reads at most; `results` reads them all
OUTCOME = ("metric", "value", "unit", "ratio", "verdict")


def outcomes(
    context: Context, runs: Sequence[RunRecord], states: Mapping[str, JobState], most: int | None = None
) -> tuple[dict[str, Result], int]:
    """The judged results of those ``runs`` that have ended, by their ids, and how many of them were not read.

    The logs of the newest runs without a current summary are read (``most``, READ where None) and kept.
    """
    most = READ if most is None else most
    peaks = reading.peaks_of(context, runs)
    found: dict[str, Result] = {}
    unread: list[RunRecord] = []
    for run in runs:
        state, peak = states[run.id], peaks[run.job.gpu_type, run.job.dtype]
        if not state.is_end or state.is_refused:
            continue
        kept = summary.load(run)
        if kept is not None and state.is_final and kept.is_current(run, peak, reading.flops_of(context, run.job)):
            found[run.id] = kept.result_of(run)
        else:
            unread.append(run)
    for run in unread[max(0, len(unread) - most) :]:
        found[run.id] = reading.result_of(context, run, states[run.id], peaks[run.job.gpu_type, run.job.dtype], None)
    results = judged(context, list(found.values()))
    return dict(zip(found, results, strict=True)), max(0, len(unread) - most)


def outcome_data(result: Result | None) -> dict[str, Any]:
    """The values of OUTCOME: the headline metric, its mean and unit, the ratio to the reference, and the verdict."""
    own = result.metrics.value if result is not None else None
    if result is None:
        return dict.fromkeys(OUTCOME)
    return {
        "metric": result.metrics.headline if own is not None else None,
        "value": own and own.mean,
        "unit": own and own.unit,
        "ratio": result.verdict.ratio,
        "verdict": result.verdict.word,
    }


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
    output.print_runs(*table_of(rows, fmt), fmt)
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
    is_time = {name for name, _ in metrics} == {STEP_TIME}
    title = "step (s)" if is_time else heading([MetricSpec(name=one, unit=unit) for one, unit in metrics], "result")
    columns = _columns([name for name in _TABLE if shown.get(name, True)], title)
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
        "value": None if value is None else table.figure(row["metric"], value, row["unit"] if mixed else ""),
        "verdict": None if row["verdict"] in (None, NO_REFERENCE) else f"{row['verdict']}{ratio}",
    }


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
