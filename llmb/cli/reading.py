# SPDX-License-Identifier: Apache-2.0
"""Results of recorded runs from kept summaries or logs, and runs named on a command line."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from llmb.cli.context import CliContext
from llmb.contract.flops import Flops
from llmb.contract.formats import ParseSpec
from llmb.contract.gpus import peak_at
from llmb.contract.job import Job
from llmb.contract.model import ModelShape
from llmb.contract.record import RunRecord
from llmb.contract.state import COMPLETED, JobState
from llmb.contract.window import Window
from llmb.core import console
from llmb.errors import LlmbError, UsageError
from llmb.measure import columns, find_logs, summary
from llmb.measure.log_lines import PatternError
from llmb.measure.reader import (
    LogReader,
    as_submitted,
    kept_reader,
    submitted_metrics,
)
from llmb.measure.result import FAILED, SUCCESS, UNKNOWN, Result
from llmb.measure.run_result import result_of_run
from llmb.plan.locate import is_archive
from llmb.plugins.loaded import ResultRow


def peak_of(context: CliContext, job: Job) -> float | None:
    """The peak TFLOPS of one GPU at the job's dtype, or None if it is unknown."""
    return peak_at(context.config.gpu(job.gpu_type), job.dtype)


def peaks_of(context: CliContext, runs: Iterable[RunRecord]) -> dict[tuple[str, str], float | None]:
    """As ``peak_of``, for each GPU type and dtype of ``runs``."""
    jobs = {(run.job.gpu_type, run.job.dtype): run.job for run in runs}
    return {kind: peak_of(context, job) for kind, job in jobs.items()}


def flops_of(context: CliContext, job: Job, stored: summary.Summary | None = None) -> Flops | None:
    """Return the operations of one sample by the plugin's own formula, or None for llmb's.

    A plugin that is gone or fails has the formula of ``stored``, so that no figure changes.
    """
    model = job.with_dotted.model
    if model is None:
        return None
    return own_flops(context, job.workload, model, stored)


def own_flops(
    context: CliContext,
    workload: str,
    shape: ModelShape,
    stored: summary.Summary | None = None,
) -> Flops | None:
    """As ``flops_of``, for one shape. If the plugin fails, warn."""
    workload_spec = context.workloads.get(workload)
    if workload_spec is None:
        return None if stored is None else stored.flops
    try:
        return context.plugins.flops(workload_spec, shape)
    except LlmbError as error:
        earlier = None if stored is None else stored.flops
        formula = "llmb's formula" if earlier is None else "the formula of an earlier reading"
        console.warn_once(f"{error.message}: the FLOPs of its runs follow {formula}")
        return earlier


def result_of(
    context: CliContext,
    run: RunRecord,
    state: JobState,
    peak_tflops: float | None,
    window: Window | None,
) -> Result:
    """Return the result of a recorded run, Unknown if only a missing plugin can read its log.

    It is read from the run's summary if that is current, and kept there once the run has ended. A
    reading that finds less than an earlier one neither hides nor replaces what was measured.
    """
    stored = summary.load(run) if state.is_end else None
    if (
        window is None
        and stored is not None
        and is_current(context, run, state, peak_tflops, stored)
        and (
            # a plugin that reads logs itself would read this one again, only to say how
            stored.log_reader.spec.samples is not None
            or stored.log_reader == _reader(context, run, stored)[0]
            or stored.is_log_gone(run)
        )
    ):
        return stored.result_of(run)
    log = find_logs.log_of(run)
    # before the log is read: a line that comes meanwhile makes the summary outdated
    stamps = summary.stamps_of(run, log, state) if window is None else None
    result, reader = _read(context, run, state, peak_tflops, window, stored, log)
    if stored is not None and stored.is_better_than(result):
        if window is None:
            return stored.result_of(run, summary.EARLIER)
        if stored.is_log_gone(run):
            return stored.outside_of_window(run)
    if stamps is not None and reader is not None and not result.unreadable:
        summary.keep(run, result, reader, peak_tflops, stamps)
    return result


def is_current(
    context: CliContext,
    run: RunRecord,
    state: JobState,
    peak_tflops: float | None,
    stored: summary.Summary,
) -> bool:
    """Return True if nothing that ``stored`` was made from has changed. Its plugin is not asked."""
    if not state.is_final:
        return False
    flops = flops_of(context, run.job, stored)
    return stored.is_current(run, peak_tflops or stored.peak_tflops, flops)


def _read(
    context: CliContext,
    run: RunRecord,
    state: JobState,
    peak_tflops: float | None,
    window: Window | None,
    stored: summary.Summary | None,
    log: Path,
) -> tuple[Result, LogReader | None]:
    """Read the logs of a run. The reader is None if its plugin did not read them."""
    read = partial(
        result_of_run,
        run,
        state,
        peak_tflops=peak_tflops or (stored.peak_tflops if stored is not None else None),
        window=window,
        window_parts=context.plugins.windows.get(run.job.framework),
        flops=flops_of(context, run.job, stored),
        log=log,
    )
    reader, missing = _reader(context, run, stored)
    plugin_reader = reader
    try:
        result = read(reader)
    except PatternError as error:
        console.warn_once("; ".join(filter(None, (error.message, error.fix))))
        reader, missing = LogReader(failures=reader.failures), error.message
        result = read(reader)
    before = None
    if state.is_end and result.status != SUCCESS:
        before = stored.log_reader if stored is not None else kept_reader(run)
    if before is not None and before not in (reader, plugin_reader):
        earlier = None
        with suppress(PatternError):  # of an earlier version of the plugin
            earlier = read(before)
        if earlier is not None and earlier.status == SUCCESS:
            note = summary.EARLIER
            if before.spec.samples is None:
                note = "read with an earlier version of its plugin: the current one finds no step"
            return replace(earlier, reason="; ".join(filter(None, (earlier.reason, note)))), None
    nothing_read = result.status in (FAILED, UNKNOWN) and not result.metrics.max_iteration
    if missing and nothing_read and state.state == COMPLETED:
        fault = f"its log cannot be read: {missing}"
        return replace(result, status=UNKNOWN, cause=None, reason=fault, unreadable=True), None
    if missing and run.job.workload in context.workloads:  # its plugin failed
        return replace(result, unreadable=True), None
    return result, None if missing else reader


def spec_of(context: CliContext, run: RunRecord) -> ParseSpec:
    """The format of the run's log: by its plugin, an earlier reading, or a known format.

    A plugin may have been removed, or fail, since it read the run.
    """
    return reader_for(context, run).spec


def reader_for(context: CliContext, run: RunRecord) -> LogReader:
    """As ``spec_of``, with the metrics of the run."""
    return _reader(context, run, summary.load(run))[0]


def _reader(
    context: CliContext, run: RunRecord, stored: summary.Summary | None
) -> tuple[LogReader, str]:
    """Return the reader of the run's log, or the reason why its plugin cannot name one."""
    workload = context.workloads.get(run.job.workload)
    missing = f"no installed plugin offers {run.job.workload}"
    before = stored.log_reader if stored is not None else kept_reader(run)
    if workload is not None:
        try:
            reader = _as_submitted(context.log_reader(workload, run), run, stored)
            return _with_failures(reader, before), ""
        except LlmbError as error:
            missing = error.message
            console.warn_once(
                f"{missing}: its logs are read as before, or as a format that llmb knows"
            )
    if before is not None:
        return before, ""
    return LogReader(failures=context.plugins.failures), missing


def _with_failures(reader: LogReader, before: LogReader | None) -> LogReader:
    """Return ``reader`` with the causes of plugins that have been removed since ``before``."""
    kinds = {failure.kind for failure in reader.failures}
    removed = [
        failure
        for failure in (before.failures if before is not None else ())
        if failure.kind not in kinds
    ]
    return replace(reader, failures=(*reader.failures, *removed)) if removed else reader


def _as_submitted(reader: LogReader, run: RunRecord, stored: summary.Summary | None) -> LogReader:
    """Return ``reader`` with the metrics of the run's submission, else of its kept result."""
    if not reader.metrics:
        return reader
    submitted = submitted_metrics(run)
    if submitted is None and stored is not None:
        submitted = stored.log_reader
    return reader if submitted is None else as_submitted(reader, submitted)


def opened(context: CliContext, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of runs. An archive in the first place becomes the install directory."""
    if not names or not is_archive(names[0]):
        return names
    context.install_option, context.reads_archives = Path(names[0]), True
    return names[1:]


def opened_run(context: CliContext, names: tuple[str, ...]) -> str:
    """Return the run of ``[ARCHIVE] RUN``, without RUN the only one. Raises UsageError."""
    runs = opened(context, names)
    if not runs and len(all_runs := context.runs()) == 1:
        return all_runs[0].id
    if len(runs) != 1:
        raise UsageError(
            "name one run",
            hint="llmb-run jobs shows the runs",
            code="run-missing",
            key="RUN",
            value=" ".join(runs),
        )
    return runs[0]


MOST = 200  # the latest ones


def kept_results(runs: Sequence[RunRecord], results: Sequence[Result]) -> list[Result]:
    """The kept results, not judged, of the latest ``runs`` that are not among ``results``.

    Empty if none of ``results`` is of these runs. Only summaries are read, never a log.
    """
    ids = {result.identity.run for result in results}
    newest = sorted((run for run in runs if run.id not in ids), key=lambda run: -run.created)
    if len(newest) == len(runs):
        return []
    return _kept_results(newest[:MOST])


def _kept_results(runs: Iterable[RunRecord]) -> list[Result]:
    summaries = ((run, summary.load(run)) for run in runs)
    return [stored.result_of(run) for run, stored in summaries if stored is not None]


MOST_ROWS = 1000  # the latest ones: a month of nights


def kept_rows(runs: Sequence[RunRecord]) -> list[ResultRow]:
    """As ``kept_results`` of all ``runs``, as objects for plugins, newest first."""
    newest = sorted(runs, key=lambda run: -run.created)
    return rows_of(_kept_results(newest[:MOST_ROWS]))


def rows_of(results: Sequence[Result]) -> list[ResultRow]:
    """Return results as objects of ``results --format json``."""
    rows: list[ResultRow] = columns.report(results)["results"]
    return rows
