# SPDX-License-Identifier: Apache-2.0
"""What reading commands share: archives, results from kept summaries or logs, the peers of a run."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from llmb.cli.context import Context
from llmb.config.locate import is_archive
from llmb.errors import LlmbError, UsageError
from llmb.logs.formats import ParseSpec
from llmb.logs.lines import PatternError
from llmb.results import find, summary
from llmb.results.result import FAILED, SUCCESS, UNKNOWN, Result
from llmb.results.run_result import LogReader, result_of_run
from llmb.runs import store
from llmb.runs.job import Job
from llmb.runs.record import RunRecord
from llmb.runs.state import COMPLETED, JobState
from llmb.stats.measure import Window
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


def opened(context: Context, names: tuple[str, ...]) -> tuple[str, ...]:
    """The runs that ``names`` mean; an archive in the first place is used as the install directory."""
    if not names or not is_archive(names[0]):
        return names
    context.install_option, context.reads_archives = Path(names[0]), True
    return names[1:]


def opened_run(context: Context, names: tuple[str, ...]) -> str:
    """The one run of ``[ARCHIVE] RUN``; without RUN, the only one of the archive. Raises UsageError."""
    runs = opened(context, names)
    if not runs and len(found := context.runs()) == 1:
        return found[0].id
    if len(runs) != 1:
        hint = "llmb-run jobs list shows the runs"
        raise UsageError("name one run", hint=hint, code="run-missing", key="RUN", value=" ".join(runs))
    return runs[0]


MOST = 200  # the latest ones


def kept_results(context: Context, own: Sequence[Result]) -> list[Result]:
    """The kept results, not judged, of the latest runs of this install directory that are not among ``own``.

    Empty where ``own`` are logs or another cluster's runs. Only summaries are read, never a log.
    """
    names = {result.identity.run for result in own}
    runs = context.every or ()
    if all(run.id not in names for run in runs):
        return []
    others = sorted((run for run in runs if run.id not in names), key=lambda run: -run.created)[:MOST]
    return [kept.result_of(run) for run in others if (kept := summary.load(run)) is not None]
