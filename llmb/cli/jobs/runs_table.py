# SPDX-License-Identifier: Apache-2.0
"""The list of runs with their states and results, from kept summaries and few logs."""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from llmb.cli import output, reading
from llmb.cli.choice import NO_RUN, announce_sessions
from llmb.cli.context import CliContext, say
from llmb.cli.jobs.filters import Filters, choose, selects
from llmb.cli.judging import judged, states_of
from llmb.contract.metrics import STEP_TIME, MetricSpec, heading
from llmb.contract.record import RunRecord
from llmb.contract.state import UNKNOWN, JobState
from llmb.core.grouping import grouped
from llmb.core.tables import Column
from llmb.core.times import clock, day_and_time, iso
from llmb.judge.value import NO_REFERENCE, bounds_of, ratio_in_digits
from llmb.measure import summary
from llmb.measure.result import Result
from llmb.run import sessions
from llmb.show import results_table

READ = 16  # logs that a list reads at most; `results` reads them all
OUTCOME = ("metric", "value", "unit", "ratio", "verdict")


def outcomes(
    context: CliContext,
    runs: Sequence[RunRecord],
    states: Mapping[str, JobState],
    all_runs: Sequence[RunRecord],
    read_at_most: int | None = None,
) -> tuple[dict[str, Result], int]:
    """Judge the results of ``runs`` that have ended and return them by id, and the number not read.

    Runs without a current summary are read from their logs, the newest ``read_at_most`` of them,
    and their results are kept.
    """
    read_at_most = READ if read_at_most is None else read_at_most
    peaks = reading.peaks_of(context, runs)
    results: dict[str, Result] = {}
    unread: list[RunRecord] = []
    for run in runs:
        state, peak = states[run.id], peaks[run.job.gpu_type, run.job.dtype]
        if not state.is_end or state.is_refused:
            continue
        stored = summary.load(run)
        if stored is not None and reading.is_current(context, run, state, peak, stored):
            results[run.id] = stored.result_of(run)
        else:
            unread.append(run)
    for run in unread[max(0, len(unread) - read_at_most) :]:
        results[run.id] = reading.result_of(
            context, run, states[run.id], peaks[run.job.gpu_type, run.job.dtype], None
        )
    verdicts = judged(context, list(results.values()), runs=all_runs)
    return dict(zip(results, verdicts, strict=True)), max(0, len(unread) - read_at_most)


def outcome_data(result: Result | None) -> dict[str, Any]:
    """Return the values of OUTCOME. ``value`` is the mean of the headline metric."""
    if result is None:
        return dict.fromkeys(OUTCOME)
    value = result.metrics.value
    return {
        "metric": result.metrics.headline if value is not None else None,
        "value": value and value.mean,
        "unit": value and value.unit,
        "ratio": result.verdict.ratio,
        "verdict": result.verdict.word,
    }


_JOB = ("workload", "model_size", "dtype", "gpu_type", "scale")
_HEAD = ("id", "experiment", "parameters", "repeat", "state")
# A narrow terminal omits optional columns from the right: how long a run took is worth more than
# when it was submitted.
_TABLE = (*_HEAD, "value", "verdict", "ran", "submitted", "reason")
# The contract of `--format json`.
FIELDS = (
    *("id", "scheduler_id", "attempt", "experiment", "repeat", "state", "submitted", "ran"),
    *("reason", "parameters", *_JOB, *OUTCOME),
)
_OPTIONAL = ("parameters", "repeat", "value", "verdict", "submitted", "ran")


def list_runs(context: CliContext, fmt: str, filters: Filters) -> None:
    """Print the runs that ``filters`` select, with states and results."""
    all_runs, damaged = context.read_runs()
    runs = choose(context, all_runs, filters)
    states = states_of(context, runs)
    runs = [run for run in runs if selects(run, states[run.id], filters)]
    runs = _of_sessions(all_runs, runs, states, filters)
    results, unread = outcomes(context, runs, states, all_runs)
    rows = [_row(run, states[run.id], results.get(run.id)) for run in runs]
    for run in damaged if filters.is_any else ():
        cells = {"experiment": run.directory.parent.name, "state": UNKNOWN, "reason": run.reason}
        rows.append(dict.fromkeys(FIELDS) | cells)
    if not rows:
        say(NO_RUN if filters.is_any else "no run matches the options")
    output.print_runs(*table_of(rows, fmt), fmt)
    if unread:
        say(f"note: {unread} runs have no result here yet: llmb-run results reads their logs")


def _of_sessions(
    all_runs: Sequence[RunRecord],
    runs: Sequence[RunRecord],
    states: Mapping[str, JobState],
    filters: Filters,
) -> list[RunRecord]:
    """Return those of ``runs`` in the chosen sessions, by default the newest and all open runs.

    An age selects runs of any session.
    """
    if filters.since is not None and not filters.sessions:
        return list(runs)
    selection = sessions.select(all_runs, filters.sessions)
    announce_sessions(selection)
    chosen = {run.id for run in selection.runs}
    open_runs = {run.id for run in runs if not (filters.sessions or states[run.id].is_end)}
    if further := len(open_runs - chosen):
        verb = "run of another session has" if further == 1 else "runs of other sessions have"
        say(f"note: {further} {verb} not ended, and {'is' if further == 1 else 'are'} listed too")
    listed = chosen | open_runs
    return [run for run in runs if run.id in listed]


def _row(run: RunRecord, state: JobState, result: Result | None) -> dict[str, Any]:
    ran = None
    if state.started is not None:  # by the cluster's clock, which may be ahead of this machine's
        ran = clock(max(0.0, (state.ended or time.time()) - state.started))
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
        "bounds": result and bounds_of(result),
    }


def table_of(rows: Sequence[dict[str, Any]], fmt: str) -> tuple[list[Column], list[dict[str, Any]]]:
    """Return the columns and rows of the list. ``rows`` have the values of FIELDS.

    A table shows a later attempt after the state. It has repeats, run times, reasons, values and
    verdicts only if there are any, and the parameters of the workload in which the runs differ.
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
        "ran": any(row["ran"] for row in rows),
        "reason": any(row["reason"] for row in rows),
    }
    is_time = {name for name, _ in metrics} == {STEP_TIME}
    title = (
        "step (s)"
        if is_time
        else heading([MetricSpec(name=name, unit=unit) for name, unit in metrics], "result")
    )
    columns = _columns([name for name in _TABLE if shown.get(name, True)], title)
    return columns, [_shown(row, differing, mixed=len(metrics) > 1) for row in rows]


def _shown(row: Mapping[str, Any], differing: Collection[str], *, mixed: bool) -> dict[str, Any]:
    """Return the cells of a row. Values have their unit if rows have ``mixed`` metrics."""
    number = f" #{row['attempt']}" if (row["attempt"] or 1) > 1 else ""
    parameters = (row.get("parameters") or {}).items()
    value = row["value"]
    ratio, bounds = row["ratio"], row.get("bounds")
    ratio = "" if ratio is None else f" {ratio_in_digits(ratio, bounds)}"
    return {
        **row,
        "state": f"{row['state']}{number}",
        "parameters": " ".join(f"{name}={text}" for name, text in parameters if name in differing),
        "value": None
        if value is None
        else results_table.figure(row["metric"], value, row["unit"] if mixed else ""),
        "verdict": None if row["verdict"] in (None, NO_REFERENCE) else f"{row['verdict']}{ratio}",
    }


def _differing(all_values: Sequence[Mapping[str, str]]) -> set[str]:
    """The names of parameters with several values."""
    by_name = grouped(item for values in all_values for item in values.items())
    return {name for name, values in by_name.items() if len(set(values)) > 1}


def _columns(names: Sequence[str], value: str = "value") -> list[Column]:
    """Return the columns of ``names``. ``value`` is the heading of the measured values."""
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
