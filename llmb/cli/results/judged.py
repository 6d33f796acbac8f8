# SPDX-License-Identifier: Apache-2.0
"""Collects the results of runs and logs, judges and prints them, and picks the exit code."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from llmb.cli.context import Context, say
from llmb.cli.output import print_rows, print_runs
from llmb.errors import RUN_FAILED, LlmbError
from llmb.logs.formats import ParseSpec
from llmb.logs.lines import SlowPatternError
from llmb.results.columns import csv_columns, csv_rows, legend, report, table_of
from llmb.results.find import log_of, run_directory
from llmb.results.foreign import NOTHING, Description
from llmb.results.recorded import result_of_log, result_of_run
from llmb.results.result import FAILED, SUCCESS, Result
from llmb.results.result import UNKNOWN as UNKNOWN_RESULT
from llmb.runs import record, store
from llmb.runs.record import RunRecord
from llmb.runs.state import COMPLETED, UNKNOWN, JobState
from llmb.stats.measure import Window
from llmb.system import console
from llmb.system.shell import map_many
from llmb.text.tables import escape, to_json
from llmb.verdict.judge import judge
from llmb.verdict.rules import BAD


def states_of(context: Context, runs: Sequence[RunRecord]) -> dict[str, JobState]:
    """The current state of each run by its id, or the last known one where the cluster does not answer."""
    if context.cluster is None:
        return {run.id: store.seen_state(run) or JobState(state=UNKNOWN) for run in runs}
    from llmb.clusters.base import HINT_ELSEWHERE
    from llmb.submission.follow import look

    states, trouble = look(context.cluster, runs)
    if trouble is not None:
        hint = f" ({trouble.hint})" if trouble.hint else ""
        say(f"note: these are the last known states: {trouble.message}{hint}")
    away = [state for state in states.values() if state.is_elsewhere]
    if away:
        count = f"{len(away)} runs are" if len(away) > 1 else "1 run is"
        context.warn(f"{count} on another cluster: {away[0].detail} ({HINT_ELSEWHERE})")
    return states


def print_results(context: Context, runs: Sequence[RunRecord], fmt: str) -> int:
    """Print the current results of ``runs``, judged; the exit code."""
    return print_report(judged(context, results_of(context, runs)), fmt, full_names=False)


def results_of(context: Context, runs: Sequence[RunRecord], window: Window | None = None) -> list[Result]:
    """The current results of ``runs``, not judged."""
    states = states_of(context, runs)
    return [_result(context, run, states[run.id], window) for run in runs]


def judged(context: Context, results: Sequence[Result], reference: str | None = None) -> list[Result]:
    """``results`` judged against the published figures, of the release ``reference`` where given.

    Raises UsageError when that release is unknown.
    """
    if reference is not None:
        from llmb.workload.published import check_release

        check_release(reference, context.figures())
    keys = {result.identity.configuration.workload for result in results if result.identity.configuration is not None}
    return judge(results, context.figures(keys), reference)


def print_report(results: Sequence[Result], fmt: str, *, full_names: bool) -> int:
    """Print ``results``; the exit code that they end a command with."""
    if fmt == "json":
        console.echo(to_json(report(results)), nl=False)
    elif fmt == "junit":
        from llmb.verdict import export

        console.echo(export.to_junit(export.junit_cases(results)), nl=False)
    elif fmt == "csv":
        print_rows(csv_columns(), csv_rows(results), fmt)
    else:
        print_runs(*table_of(results), fmt, full_names=full_names)
        from llmb.report.digest import digest

        for line in (*legend(results), *(digest(results) if fmt == "table" else ())):
            say(escape(line))
    return exit_code(results)


def exit_code(results: Iterable[Result]) -> int:
    """3 when a run ended without success or a verdict is FAIL or INVALID, else 0."""
    return RUN_FAILED if any(result.is_failure or result.verdict.word in BAD for result in results) else 0


def results_of_files(
    context: Context, logs: Sequence[Path], window: Window | None, given: Description = NOTHING
) -> list[Result]:
    """The results of logs: with the run's record for the log of its last attempt, else from the log alone.

    ``given``: what the user says of logs without a record, which never name their GPU type.
    """
    recorded = {log: run for log in logs if (run := _run_of(log)) is not None}
    foreign = [log for log in logs if log not in recorded]
    read = partial(result_of_log, spec=ParseSpec(), window=window, workloads=context.workloads, given=given)
    results = dict(zip(foreign, map_many(read, foreign), strict=True))
    return [results[log] if log in results else _recorded(context, log, recorded[log], window) for log in logs]


def _run_of(log: Path) -> RunRecord | None:
    """The recorded run whose last attempt wrote ``log``; None with a warning where the record is damaged."""
    directory = run_directory(log)
    try:
        run = record.load(directory) if directory is not None else None
    except LlmbError as error:
        say(f"warning: {error.message}; reading its log without the record")
        return None
    return run if run is not None and log_of(run).resolve() == log.resolve() else None


def _recorded(context: Context, log: Path, run: RunRecord, window: Window | None) -> Result:
    """The result of a recorded run by its last known state, or by a complete log; asks no cluster."""
    from llmb.workload.gpus import known_types

    seen = store.seen_state(run) or JobState(state=UNKNOWN, reason="its cluster has not been asked since")
    if not seen.is_end and result_of_log(log, spec_of(context, run), window).status == SUCCESS:
        seen = JobState(state=COMPLETED)
    peaks = known_types()[run.job.gpu_type].peak_tflops if run.job.gpu_type in known_types() else {}
    return _of_run(context, run, seen, peaks.get(run.job.dtype), window)


def _result(context: Context, run: RunRecord, state: JobState, window: Window | None) -> Result:
    peaks = context.config.gpu(run.job.gpu_type).peak_tflops
    return _of_run(context, run, state, peaks.get(run.job.dtype), window)


def _of_run(
    context: Context, run: RunRecord, state: JobState, peak_tflops: float | None, window: Window | None
) -> Result:
    """The result of a recorded run; Unknown where it completed and only a missing plugin can read its log."""
    spec, missing = _reader(context, run)
    try:
        result = result_of_run(run, state, spec, peak_tflops, window)
    except SlowPatternError as error:
        context.warn(error.message)
        spec, missing = ParseSpec(), error.message
        result = result_of_run(run, state, spec, peak_tflops, window)
    if result.status == SUCCESS and not missing:
        store.save_parse_spec(run, spec)
    elif state.is_end and result.status != SUCCESS and (before := store.saved_parse_spec(run)) not in (None, spec):
        assert before is not None
        earlier = result_of_run(run, state, before, peak_tflops, window)
        if earlier.status == SUCCESS:
            note = "read with an earlier version of its plugin: the current one finds no step"
            result = replace(earlier, reason="; ".join(filter(None, (earlier.reason, note))))
    nothing_read = result.status in (FAILED, UNKNOWN_RESULT) and not result.metrics.max_iteration
    if missing and nothing_read and state.state == COMPLETED:
        return replace(result, status=UNKNOWN_RESULT, cause=None, reason=f"its log cannot be read: {missing}")
    return result


def spec_of(context: Context, run: RunRecord) -> ParseSpec:
    """How the run's log is read: by its plugin, else as kept from an earlier reading, else as a known format.

    A plugin may have been removed, or fail, since it read the run.
    """
    return _reader(context, run)[0]


def _reader(context: Context, run: RunRecord) -> tuple[ParseSpec, str]:
    """How the run's log is read, and why its plugin cannot say so, where nothing is kept of an earlier reading."""
    workload = context.workloads.get(run.job.workload)
    missing = f"no installed plugin offers {run.job.workload}"
    if workload is not None:
        try:
            return context.plugins.parse(workload, run) or ParseSpec(), ""
        except LlmbError as error:
            missing = error.message
            context.warn(f"{missing}: its logs are read as before, or as a format that llmb knows")
    before = store.saved_parse_spec(run)
    return (before, "") if before is not None else (ParseSpec(), missing)
