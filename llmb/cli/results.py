# SPDX-License-Identifier: Apache-2.0
"""`llmb-run results`: what runs measured; how every command chooses runs, judges and prints their results."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context, say
from llmb.cli.output import print_rows, print_runs
from llmb.clusters.base import HINT_ELSEWHERE
from llmb.errors import RUN_FAILED, LlmbError
from llmb.logs.formats import ParseSpec
from llmb.logs.lines import SlowPatternError
from llmb.report.markdown import digest
from llmb.results import columns, find, summary, table
from llmb.results.log_reader import LogReader
from llmb.results.recorded import result_of_run
from llmb.results.result import CANCELLED, FAILED, SUCCESS, UNKNOWN, Identity, Result
from llmb.runs import store
from llmb.runs.job import Job
from llmb.runs.record import RunRecord
from llmb.runs.state import COMPLETED, JobState
from llmb.stats.measure import Window, parse_window
from llmb.submission.follow import last_seen, look
from llmb.system import console
from llmb.text.names import find_workload_and_size
from llmb.text.tables import escape, to_json
from llmb.verdict import export
from llmb.verdict.judge import BAD, judge
from llmb.workload.flops import Flops
from llmb.workload.gpus import peak_dtype
from llmb.workload.model import ModelShape
from llmb.workload.published import check_release

F = TypeVar("F", bound=Callable[..., Any])


def choice_options(command: F) -> F:
    """Add ``-w``, ``--exclude-cancelled`` and ``--window``; ``judged.choice_of`` reads them."""
    text = "Only these workloads, as key or key_size."
    for option in (
        options.window_option,
        click.option("--exclude-cancelled", is_flag=True, help="Omit cancelled runs."),
        click.option("-w", "--workloads", multiple=True, callback=options.words, metavar="W", help=text),
    ):
        command = option(command)
    return command


@click.command("results")
@click.argument("runs", nargs=-1)
@choice_options
@options.reference_option
@click.option("--full-names", is_flag=True, help="Do not shorten names.")
@options.format_or_junit_option
@options.install_option
@pass_context
def command(
    context: Context,
    runs: tuple[str, ...],
    workloads: tuple[str, ...],
    window: str | None,
    reference: str | None,
    exclude_cancelled: bool,
    full_names: bool,
    fmt: str,
) -> int:
    """Show results of RUNS (default: all runs), with verdicts.

    Name a run by a unique prefix of its id, by the scheduler's job id, or by its directory.
    """
    choice = choice_of(workloads, exclude_cancelled, window)
    results = [result for _, result in gather(context, runs, choice)]
    if not runs and not workloads:
        results += unreadable(context)
    return print_report(judged(context, results, reference), fmt, full_names=full_names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which runs are selected: of ``workloads`` (empty: all), with or without cancelled ones; and the window."""

    workloads: tuple[str, ...] = ()
    exclude_cancelled: bool = False
    window: Window | None = None


def choice_of(workloads: tuple[str, ...], exclude_cancelled: bool, window: str | None) -> Choice:
    """The choice that the options make. Raises UsageError."""
    counted = parse_window(window) if window is not None else None
    return Choice(workloads=workloads, exclude_cancelled=exclude_cancelled, window=counted)


def gather(context: Context, names: tuple[str, ...], choice: Choice) -> list[tuple[RunRecord, Result]]:
    """The selected runs among those that ``names`` mean (empty: all), with their results, not judged.

    Raises UsageError for a name that means none or several.
    """
    return gather_of(context, context.runs(names), choice)


def gather_of(context: Context, every: Sequence[RunRecord], choice: Choice) -> list[tuple[RunRecord, Result]]:
    """The selected runs of ``every``, with their results, not judged; prints whether cancelled ones are included."""
    wanted = _wanted(context, choice, [(run.job.workload, run.job.model_size) for run in every])
    found = [run for run in every if wanted(run.job.workload, run.job.model_size)]
    if not found:
        say("no run of these workloads" if every else "no runs yet; submit some: llmb-run submit-all jobs.txt")
    results = results_of(context, found, choice.window)
    kept = _announce_cancelled([result for result in results if result.status == CANCELLED], choice)
    return [(run, one) for run, one in zip(found, results, strict=True) if kept or one.status != CANCELLED]


def unreadable(context: Context) -> list[Result]:
    """A result for each run whose record ``gather`` could not read."""
    return [
        Result(
            identity=Identity(experiment=one.directory.parent.name, path=str(one.directory)),
            status=UNKNOWN,
            reason=one.reason,
        )
        for one in context.unreadable
    ]


def choose(context: Context, results: Sequence[Result], choice: Choice) -> list[Result]:
    """The selected results, which may be of another cluster."""
    own = [one.identity.configuration for one in results]
    wanted = _wanted(context, choice, [(each.workload, each.model_size) for each in own if each is not None])
    found = [
        one
        for one, each in zip(results, own, strict=True)
        if (wanted(each.workload, each.model_size) if each is not None else not choice.workloads)
    ]
    kept = [one for one in found if not (choice.exclude_cancelled and one.status == CANCELLED)]
    if not kept:
        say("no run matches the options" if results else "the file has no runs")
    return kept


def _announce_cancelled(cancelled: Sequence[Result], choice: Choice) -> bool:
    """Print whether cancelled runs are included; return it."""
    if cancelled:
        them = "it" if len(cancelled) == 1 else "them"
        done = "omitted" if choice.exclude_cancelled else f"listed; --exclude-cancelled omits {them}"
        say(f"note: {len(cancelled)} cancelled run{'s' if len(cancelled) > 1 else ''} {done}")
    return not choice.exclude_cancelled


def _wanted(context: Context, choice: Choice, known: Iterable[tuple[str, str]]) -> Callable[[str, str], bool]:
    """A test for a workload's key and size; ``known``: those of runs, whose plugins may have been removed."""
    if not choice.workloads:
        return lambda _key, _size: True
    sizes = {key: list(workload.sizes) for key, workload in context.workloads.items()}
    for key, size in known:
        sizes.setdefault(key, []).append(size)
    wanted = [find_workload_and_size(name, sizes) for name in choice.workloads]
    return lambda key, size: any(key == one and each in (None, size) for one, each in wanted)


def states_of(context: Context, runs: Sequence[RunRecord]) -> dict[str, JobState]:
    """The current state of each run by its id, or the last known one where the cluster does not answer."""
    if context.cluster is None:
        return {run.id: last_seen(run) for run in runs}
    states, trouble = look(context.cluster, runs)
    if trouble is not None:
        hint = f" ({trouble.hint})" if trouble.hint else ""
        say(f"note: these are the last known states: {trouble.message}{hint}")
    away = [state for state in states.values() if state.is_elsewhere]
    if away:
        count = f"{len(away)} runs are" if len(away) > 1 else "1 run is"
        console.warn_once(f"{count} on another cluster: {away[0].detail} ({HINT_ELSEWHERE})")
    return states


def results_of(context: Context, runs: Sequence[RunRecord], window: Window | None = None) -> list[Result]:
    """The current results of ``runs``, not judged."""
    states = states_of(context, runs)
    peaks = peaks_of(context, runs)
    return [result_of(context, run, states[run.id], peaks[run.job.gpu_type, run.job.dtype], window) for run in runs]


def judged(context: Context, results: Sequence[Result], reference: str | None = None) -> list[Result]:
    """``results`` judged against the published figures, of the release ``reference`` where given.

    Raises UsageError when that release is unknown.
    """
    if reference is not None:
        check_release(reference, context.figures())
    keys = {result.identity.configuration.workload for result in results if result.identity.configuration is not None}
    return judge(results, context.figures(keys), reference)


def print_report(results: Sequence[Result], fmt: str, *, full_names: bool) -> int:
    """Print ``results``; the exit code that they end a command with."""
    if fmt == "json":
        console.echo(to_json(columns.report(results)), nl=False)
    elif fmt == "junit":
        console.echo(export.to_junit(map(export.junit_case, results)), nl=False)
    elif fmt == "csv":
        print_rows(columns.csv_columns(results), columns.csv_rows(results), fmt)
    else:
        print_runs(*table.table_of(results), fmt, full_names=full_names)
        for line in (*table.legend(results), *(digest(results) if fmt == "table" else ())):
            say(escape(line))
    return exit_code(results)


def exit_code(results: Iterable[Result]) -> int:
    """3 when a run ended without success or a verdict is FAIL or INVALID, else 0."""
    return RUN_FAILED if any(result.is_failure or result.verdict.word in BAD for result in results) else 0


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
    try:
        result = result_of_run(run, state, reader, peak_tflops, window, flops=flops)
    except SlowPatternError as error:
        console.warn_once(error.message)
        reader, missing = LogReader(), error.message
        result = result_of_run(run, state, reader, peak_tflops, window, flops=flops)
    before = kept.log_reader if kept is not None else _earlier_reader(run)
    if state.is_end and result.status != SUCCESS and before not in (None, reader):
        assert before is not None
        earlier = result_of_run(run, state, before, peak_tflops, window, flops=flops)
        if earlier.status == SUCCESS:
            note = "read with an earlier version of its plugin: the current one finds no step"
            return replace(earlier, reason="; ".join(filter(None, (earlier.reason, note))))
    nothing_read = result.status in (FAILED, UNKNOWN) and not result.metrics.max_iteration
    if missing and nothing_read and state.state == COMPLETED:
        return replace(result, status=UNKNOWN, cause=None, reason=f"its log cannot be read: {missing}")
    if stamps is not None and not missing:
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
    """The reader that releases before 0.2 kept in a file of its own."""
    spec = store.saved_parse_spec(run)
    return None if spec is None else LogReader(spec=spec)


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
