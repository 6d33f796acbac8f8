# SPDX-License-Identifier: Apache-2.0
"""Reads what runs measured: from their kept summaries where these are current, else from their logs."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from llmb.cli.context import Context
from llmb.errors import LlmbError
from llmb.logs.formats import ParseSpec
from llmb.logs.lines import PatternError
from llmb.results import find, summary
from llmb.results.log_reader import LogReader
from llmb.results.result import FAILED, SUCCESS, UNKNOWN, Result
from llmb.results.run_result import result_of_run
from llmb.runs import store
from llmb.runs.job import Job
from llmb.runs.record import RunRecord
from llmb.runs.state import COMPLETED, JobState
from llmb.stats.window import Window
from llmb.system import console
from llmb.workload.flops import Flops
from llmb.workload.gpus import peak_dtype
from llmb.workload.model import ModelShape


def peak_of(context: Context, job: Job) -> float | None:
    """The peak TFLOPS of one GPU at the job's dtype, None where it is unknown."""
    return context.config.gpu(job.gpu_type).peak_tflops.get(peak_dtype(job.dtype))


def peaks_of(context: Context, runs: Iterable[RunRecord]) -> dict[tuple[str, str], float | None]:
    """As ``peak_of``, for each GPU type and dtype of ``runs``."""
    jobs = {(run.job.gpu_type, run.job.dtype): run.job for run in runs}
    return {kind: peak_of(context, job) for kind, job in jobs.items()}


def flops_of(context: Context, job: Job) -> Flops | None:
    """The operations of one sample of a job's model by the plugin's own formula; None for llmb's."""
    return None if job.training is None else own_flops(context, job.workload, job.training.model)


def own_flops(context: Context, workload: str, shape: ModelShape) -> Flops | None:
    """The operations of one sample by the plugin's own formula; None for llmb's, with a warning where it fails."""
    own = context.workloads.get(workload)
    if own is None:
        return None
    try:
        return context.plugins.flops(own, shape)
    except LlmbError as error:
        console.warn_once(f"{error.message}: the FLOPs of its runs follow llmb's formula")
        return None


def result_of(
    context: Context, run: RunRecord, state: JobState, peak_tflops: float | None, window: Window | None
) -> Result:
    """The result of a recorded run; Unknown where it completed and only a missing plugin can read its log.

    It is read from the run's summary where that is current, and kept there once the run has ended.
    """
    kept = summary.load(run) if state.is_end else None
    flops = flops_of(context, run.job)
    current = kept is not None and window is None and state.is_final and kept.is_current(run, peak_tflops, flops)
    if current and kept is not None and kept.log_reader.spec.samples is not None:
        return kept.result_of(run)  # its plugin would read the log again to answer
    reader, missing = _reader(context, run, kept)
    if current and kept is not None and (kept.log_reader == reader or kept.is_log_gone(run)):
        return kept.result_of(run)
    log = find.log_of(run)
    stamps = summary.stamps_of(run, log, state) if window is None else None
    asked = reader
    try:
        result = result_of_run(run, state, reader, peak_tflops, window, flops=flops)
    except PatternError as error:
        console.warn_once(error.message)
        reader, missing = LogReader(), error.message
        result = result_of_run(run, state, reader, peak_tflops, window, flops=flops)
    before = kept.log_reader if kept is not None else _earlier_reader(run)
    if state.is_end and result.status != SUCCESS and before not in (None, reader, asked):
        assert before is not None
        earlier = None
        with suppress(PatternError):  # of an earlier version of the plugin
            earlier = result_of_run(run, state, before, peak_tflops, window, flops=flops)
        if earlier is not None and earlier.status == SUCCESS:
            note = "read with an earlier version of its plugin: the current one finds no step"
            return replace(earlier, reason="; ".join(filter(None, (earlier.reason, note))))
    nothing_read = result.status in (FAILED, UNKNOWN) and not result.metrics.max_iteration
    if missing and nothing_read and state.state == COMPLETED:
        why = f"its log cannot be read: {missing}"
        return replace(result, status=UNKNOWN, cause=None, reason=why, unreadable=True)
    if missing and run.job.workload in context.workloads:  # its plugin failed
        return replace(result, unreadable=True)
    if stamps is not None and not missing and not result.unreadable:
        summary.keep(run, result, reader, peak_tflops, stamps)
    return result


def spec_of(context: Context, run: RunRecord) -> ParseSpec:
    """How the run's log is read: by its plugin, else as kept from an earlier reading, else as a known format.

    A plugin may have been removed, or fail, since it read the run.
    """
    return reader_for(context, run).spec


def reader_for(context: Context, run: RunRecord) -> LogReader:
    """As ``spec_of``, with the metrics of the run."""
    return _reader(context, run, summary.load(run))[0]


def _earlier_reader(run: RunRecord) -> LogReader | None:
    """The reader of the run when it was submitted; releases before 0.2 kept it in a file of its own."""
    if (reader := summary.kept_reader(run)) is not None:
        return reader
    spec = store.saved_parse_spec(run)
    return None if spec is None else LogReader(spec=spec)


def keep_reader(context: Context, run: RunRecord) -> None:
    """Keep how the log of a new run is read; a plugin that cannot say so yet is asked when there is a log."""
    workload = context.workloads.get(run.job.workload)
    if workload is not None:
        with suppress(LlmbError):
            summary.keep_reader(run, context.log_reader(workload, run))


def _reader(context: Context, run: RunRecord, kept: summary.Summary | None) -> tuple[LogReader, str]:
    """How the run's log is read, and why its plugin cannot say so, where nothing is kept of an earlier reading."""
    workload = context.workloads.get(run.job.workload)
    missing = f"no installed plugin offers {run.job.workload}"
    if workload is not None:
        try:
            return context.log_reader(workload, run), ""
        except LlmbError as error:
            missing = error.message
            console.warn_once(f"{missing}: its logs are read as before, or as a format that llmb knows")
    before = kept.log_reader if kept is not None else _earlier_reader(run)
    return (before, "") if before is not None else (LogReader(), missing)
