# SPDX-License-Identifier: Apache-2.0
"""Comparisons as tables, for people and as CSV. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from llmb.contract.metrics import STEP_TIME, MetricSpec, heading
from llmb.core.tables import Column
from llmb.judge.compare import Comparison
from llmb.judge.value import ratio_in_digits
from llmb.measure import result
from llmb.measure.result_notes import distinguishing, settings_of
from llmb.show import results_table

_TEXT = (
    Column(key="session"),
    Column(key="experiment"),
    Column(key="n", heading="runs", right=True, optional=True),
    Column(key="metric", optional=True),
    Column(key="value", right=True),
    Column(key="reference_value", heading="reference", right=True, optional=True),
    Column(key="against", optional=True),
    Column(key="ratio", right=True),
    Column(key="verdict"),
    Column(key="reason"),
)
_CSV = (
    *("experiment", "runs", "status", "window", "metric", "value", "unit", "step_time_s"),
    *(
        "against",
        "reference_window",
        "reference_value",
        "reference_step_time_s",
        "reference_source",
    ),
    *("ratio", "ratio_low", "ratio_high", "n", "verdict", "differences", "reason", "session"),
    *("nodelist", "reference_nodelist"),
)


def rows_of(rows: Sequence[Comparison]) -> list[dict[str, Any]]:
    """The rows of a table: what tells two of one experiment apart is part of the reason."""
    mixed = len(_metrics(rows)) > 1
    notes = distinguishing(
        [(row.experiment, settings_of(row.configuration, window=row.window)) for row in rows]
    )
    cells = [(row, _cells(row, "table"), note) for row, note in zip(rows, notes, strict=True)]
    return [
        {
            **values,
            "value": _figure(row, row.value, mixed=mixed),
            "reference_value": row.reference and _figure(row, row.reference.value, mixed=mixed),
            "reason": "; ".join(filter(None, (note, values["reason"]))) or None,
        }
        for row, values, note in cells
    ]


def _figure(row: Comparison, value: float | None, *, mixed: bool) -> str | None:
    return (
        None
        if value is None
        else results_table.figure(row.metric or "", value, (row.unit if mixed else None) or "")
    )


def _metrics(rows: Iterable[Comparison]) -> set[MetricSpec]:
    """Return the metrics of the rows, without the direction, which no heading needs."""
    return {
        MetricSpec(name=row.metric, unit=row.unit or "") for row in rows if row.metric is not None
    }


def columns(rows: Sequence[Comparison]) -> list[Column]:
    """Return the columns of a table. Headings have the unit if all rows are of one metric."""
    metrics = _metrics(rows)
    times = {metric.name for metric in metrics} <= {STEP_TIME}
    titles = {"value": "step (s)" if times else heading(metrics, "measured")}
    titles |= {"reference_value": "reference (s)"} if times else {}
    omitted = set() if len(metrics) > 1 else {"metric"}
    if len({row.session for row in rows}) < 2:
        omitted.add("session")
    shown = [column for column in _TEXT if column.key not in omitted]
    return [replace(column, heading=titles.get(column.key, column.heading)) for column in shown]


def csv_columns() -> list[Column]:
    return [Column(key=key) for key in _CSV]


def csv_rows(rows: Iterable[Comparison]) -> list[dict[str, Any]]:
    return [_cells(row, "csv") for row in rows]


def _cells(row: Comparison, fmt: str) -> dict[str, Any]:
    low, high = row.ratio_interval or (None, None)
    star = "*" if row.same_window is False else ""
    reference = row.reference
    reason = "; ".join(text for text in (row.verdict_reason, *row.differences) if text)
    if row.status != result.SUCCESS:  # a separate row: nothing else names its run
        reason = ": ".join(filter(None, (" ".join(row.runs), reason)))
    return {
        "experiment": row.experiment,
        "session": row.session,
        "runs": " ".join(row.runs),
        "n": len(row.runs),
        "status": row.status,
        "window": row.window and str(row.window),
        "metric": row.metric,
        "value": row.value,
        "unit": row.unit,
        "step_time_s": row.step_time_s,
        "against": reference and reference.release,
        "reference_window": reference and reference.window,
        "reference_value": reference and reference.value,
        "reference_step_time_s": reference and reference.step_time_s,
        "reference_source": reference and reference.source,
        "ratio": row.ratio
        if fmt == "csv" or row.ratio is None
        else f"{ratio_in_digits(row.ratio, row.bounds)}{star}",
        "ratio_low": low,
        "ratio_high": high,
        "verdict": row.verdict or (None if fmt == "csv" else row.status),
        "differences": "; ".join(row.differences) or None,
        "reason": (row.verdict_reason if fmt == "csv" else reason),
        "nodelist": row.nodelist,
        "reference_nodelist": row.reference_nodelist,
    }
