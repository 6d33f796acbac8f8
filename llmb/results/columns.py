# SPDX-License-Identifier: Apache-2.0
"""The columns of results: all fields for CSV, and what an engineer wants at a glance for a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from llmb import typed
from llmb.results.result import Result
from llmb.tables import Column, shorten

NAME_WIDTH = 90

CSV_FIRST = (
    "filename", "status", "time_mean_seconds", "time_std_dev_seconds", "tflops_per_gpu_mean", "tflops_per_gpu_std_dev",
    "max_iteration",
)  # fmt: skip


_GLANCE = (
    Column(key="experiment"),
    Column(key="status"),
    Column(key="step_time", heading="step time (s)", right=True),
    Column(key="tokens_per_second", heading="tokens/s", show="{:.0f}".format, right=True),
    Column(key="tokens_per_second_per_gpu", heading="tokens/s/GPU", show="{:.1f}".format, right=True),
    Column(key="tflops", heading="TFLOPS/GPU", right=True),
    Column(key="mfu", heading="MFU %", show=lambda value: f"{100 * value:.2f}", right=True),
    Column(key="reason"),
)


def result_columns(fmt: str, results: Sequence[Result] = ()) -> list[Column]:
    """The columns of ``results`` for ``fmt``; without those of a table that no result has a value for."""
    if fmt == "csv":
        fields = [field.name for field in dataclasses.fields(Result) if field.name not in CSV_FIRST]
        return [Column(key=key) for key in (*CSV_FIRST, *fields)]
    rows = table_rows(results)
    return [column for column in _GLANCE if not rows or any(row[column.key] is not None for row in rows)]


def csv_rows(results: Iterable[Result]) -> list[dict[str, Any]]:
    """The rows of CSV: every field, the window as ``--window`` takes it, and the log's name as ``filename``."""
    return [
        {**typed.to_data(result), "filename": Path(result.path).name, "window": result.window and str(result.window)}
        for result in results
    ]


def table_rows(results: Iterable[Result], *, full_names: bool = False) -> list[dict[str, Any]]:
    """The rows of a table; a name wider than NAME_WIDTH loses its middle unless ``full_names``."""
    return [
        {
            **typed.to_data(result),
            "experiment": result.experiment if full_names else shorten(result.experiment, NAME_WIDTH),
            "step_time": _spread(result.time_mean_seconds, result.time_std_dev_seconds, 3),
            "tflops": _tflops(result),
        }
        for result in results
    ]


def _tflops(result: Result) -> str | None:
    """By our formula; for a log without a shape, as the framework says."""
    if result.model_tflops_per_gpu is not None:
        return f"{result.model_tflops_per_gpu:.2f}"
    return _spread(result.tflops_per_gpu_mean, result.tflops_per_gpu_std_dev, 2)


def _spread(mean: float | None, deviation: float | None, digits: int) -> str | None:
    return None if mean is None else f"{mean:.{digits}f} ± {deviation or 0:.{digits}f}"
