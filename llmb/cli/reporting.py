# SPDX-License-Identifier: Apache-2.0
"""Prints results of runs and of logs in every format, and picks the exit code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from llmb.cli.context import Context
from llmb.cli.following import RUN_FAILED
from llmb.cli.output import print_rows
from llmb.follow import poll
from llmb.logs.spec import ParseSpec
from llmb.measure import Window
from llmb.results import (
    FAILED,
    SUCCESS,
    Result,
    csv_rows,
    report,
    result_columns,
    result_of_log,
    result_of_run,
    run_directory,
    table_rows,
)
from llmb.runs import record, store
from llmb.runs.record import RunRecord
from llmb.state import COMPLETED, UNKNOWN, JobState
from llmb.tables import to_json


def print_results(
    context: Context, runs: Sequence[RunRecord], fmt: str, *, window: Window | None = None, full_names: bool = False
) -> int:
    """Print the results of ``runs`` as they stand; exit code 3 when one has failed, else 0."""
    if context.cluster is not None:
        states = poll(context.cluster, runs)
    else:
        states = {run.id: JobState(state=UNKNOWN) for run in runs}
    results = [_result(context, run, states[run.id], window) for run in runs]
    return print_report(results, fmt, full_names=full_names)


def print_report(results: Sequence[Result], fmt: str, *, full_names: bool) -> int:
    """Print ``results``; exit code 3 when one is Failed, else 0."""
    if fmt == "json":
        click.echo(to_json(report(results)), nl=False)
    elif fmt == "csv":
        print_rows(result_columns(fmt), csv_rows(results), fmt)
    else:
        print_rows(result_columns(fmt, results), table_rows(results, full_names=full_names), fmt)
    return RUN_FAILED if any(result.status == FAILED for result in results) else 0


def result_of_file(context: Context, log: Path, window: Window | None) -> Result:
    """The result of a log in some folder: with its run's record where that lies beside it, else from the log alone.

    Without a cluster to ask, a run's state is what was seen last; where its log is whole, that it has succeeded.
    """
    from llmb.gpus import known_types

    directory = run_directory(log)
    if directory is None:
        return result_of_log(log, ParseSpec(), window)
    run = record.load(directory)
    seen = store.seen_state(run) or JobState(state=UNKNOWN, reason="nobody has asked its cluster since")
    if not seen.is_end and result_of_log(log, ParseSpec(), window).status == SUCCESS:
        seen = JobState(state=COMPLETED)
    peaks = known_types()[run.job.gpu_type].peak_tflops if run.job.gpu_type in known_types() else {}
    return result_of_run(run, seen, _spec(context, run), peaks.get(run.job.dtype), window)


def _result(context: Context, run: RunRecord, state: JobState, window: Window | None) -> Result:
    peaks = context.config.gpu(run.job.gpu_type).peak_tflops
    return result_of_run(run, state, _spec(context, run), peaks.get(run.job.dtype), window)


def _spec(context: Context, run: RunRecord) -> ParseSpec:
    """How the run's log is read; as NeMo 2's where its workload is no longer installed."""
    workload = context.workloads.get(run.job.workload)
    return (context.plugins.parse(workload, run) if workload is not None else None) or ParseSpec()
