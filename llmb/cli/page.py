# SPDX-License-Identifier: Apache-2.0
"""Gathers what a report is made of: results with their verdicts, causes of failures, scaling."""

from __future__ import annotations

import time
from collections.abc import Sequence

from llmb import __version__
from llmb.cli import scaling
from llmb.cli.causes import cause_of
from llmb.cli.context import Context
from llmb.cli.reporting import judged, results_of
from llmb.failures import group_failures
from llmb.measure import Window
from llmb.results import FAILED
from llmb.results.page import Page
from llmb.runs.record import RunRecord
from llmb.scaling import efficiencies
from llmb.tables import render


def make_page(context: Context, runs: Sequence[RunRecord], window: Window | None, reference: str | None) -> Page:
    """The report on ``runs`` as they stand."""
    results = judged(context, results_of(context, runs, window), reference)
    failures = [
        (f"{run.id} {run.job.experiment_name}", cause_of(run, result))
        for run, result in zip(runs, results, strict=True)
        if result.status == FAILED
    ]
    points = [scaling.cells(point) for point in efficiencies(results)]
    config = context.config
    day = time.strftime("%Y-%m-%d %H:%M")
    return Page(
        title=f"Benchmarks on {config.cluster_name}",
        made=f"Made by llmb {__version__} on {day}; cluster type {config.cluster_type}, GPU type {config.gpu_type}.",
        results=results,
        failures=group_failures(failures),
        scaling=render(scaling.COLUMNS, points, "md") if points else "",
    )
