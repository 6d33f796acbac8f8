# SPDX-License-Identifier: Apache-2.0
"""`llmb-run report`: one page about a set of runs, in Markdown or HTML."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import click

from llmb import __version__
from llmb.cli import options
from llmb.cli.compare import baseline_instead
from llmb.cli.context import Context, pass_context, say
from llmb.cli.explain import cause_of, figure_of, row_of
from llmb.cli.reading import opened, peaks_of, spec_of
from llmb.cli.results import Choice, choice_options, exit_code, gather, judged, unreadable
from llmb.config.images import recorded_digest
from llmb.errors import LlmbError, UsageError
from llmb.failures import Cause, group_failures
from llmb.logs.reader import read_log
from llmb.logs.samples import Samples
from llmb.report.history import history_of
from llmb.report.history_pages import history_html, history_markdown
from llmb.report.markdown import to_markdown
from llmb.report.page import charted, to_html
from llmb.report.value import Report, Run
from llmb.results.find import log_of
from llmb.results.result import Result
from llmb.runs.record import RunRecord
from llmb.runs.store import nodes_of
from llmb.system import console, files
from llmb.system.secrets import is_secret_name
from llmb.verdict.compare import without
from llmb.verdict.export import Baseline
from llmb.verdict.reference import References
from llmb.verdict.scaling import scaling_points

FORMATS = ("md", "html")
_ENDINGS = {"": "md", ".md": "md", ".markdown": "md", ".txt": "md", ".html": "html", ".htm": "html"}


@click.command("report")
@click.argument("runs", nargs=-1)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the report to FILE (default: stdout).",
)
@click.option("--format", "fmt", type=click.Choice(FORMATS), help="Output format (default: from FILE's extension).")
@click.option("--history", is_flag=True, help="Show each configuration by night, and what changed.")
@choice_options
@options.baseline_option
@options.reference_option
@options.read_option
@pass_context
def command(
    context: Context,
    /,
    runs: tuple[str, ...],
    output: Path | None,
    fmt: str | None,
    history: bool,
    choice: Choice,
    baseline: str | None,
    reference: str | None,
) -> int:
    """Write a report on RUNS (default: all runs).

    `-o report.html` writes one self-contained page: verdicts, differences from the published runs, charts, failures
    with fixes, conditions. Markdown is for notes and tickets. `--history` shows the ratio of each configuration in each
    night, and what changed in between.
    """
    as_html = (fmt or _format_of(output)) == "html"
    if as_html and output is None and sys.stdout.isatty():
        hint = "write it to a file: -o report.html"
        message = "an HTML page is not readable in a terminal"
        raise UsageError(message, hint=hint, code="html-on-terminal", key="--format")
    if output is not None:
        _check_folder(output)
    runs = opened(context, runs)
    against = baseline_instead(context, baseline, reference, choice)
    found = gather(context, context.runs(runs), choice)
    if against is not None and not runs and not history:  # a history has its nights too
        found = _later(found, against)
    unread = [] if runs else unreadable(context, choice)
    report = make_report(context, found, reference, datetime.now().astimezone(), unread, against)
    if as_html and not history:
        report = with_samples(context, report, [record for record, _ in found], charted(report))
    over_time = history_of(report) if history else None
    if over_time is None:
        text = to_html(report) if as_html else to_markdown(report)
    else:
        text = (history_html if as_html else history_markdown)(report, over_time)
    if output is None:
        console.echo(text, nl=False)
    else:
        with files.output(output) as stream:
            stream.write(text.encode())
        say(f"{output}: {len(report.runs)} run{'' if len(report.runs) == 1 else 's'}")
    return exit_code(report.results if over_time is None else over_time.latest)


def _format_of(output: Path | None) -> str:
    """The format that the name of the file says; Markdown without one. Raises UsageError for any other extension."""
    ending = output.suffix.lower() if output is not None else ""
    if ending not in _ENDINGS:
        hint = f"name it {', '.join(filter(None, _ENDINGS))}, or add --format"
        message = f"--output {output}: a report has no format {ending}"
        raise UsageError(message, hint=hint, code="report-format", key="--output", value=str(output))
    return _ENDINGS[ending]


def _check_folder(output: Path) -> None:
    """Raise UsageError where the folder of the file does not exist: a typing mistake should not create one."""
    folder = output.absolute().parent
    if folder.is_dir() and not output.is_dir():
        return
    if output.is_dir() or folder.exists():
        wrong = f"{output} is a folder" if output.is_dir() else f"{folder} is not a folder"
        message, hint = f"--output: {wrong}", "name a file: -o report.html"
    else:
        message = f"--output {output}: its folder does not exist"
        hint = f"create it: mkdir -p {shlex.quote(str(output.parent))}"
    raise UsageError(message, hint=hint, code="folder-missing", key="--output", value=str(output))


def _later(found: Sequence[tuple[RunRecord, Result]], baseline: Baseline) -> list[tuple[RunRecord, Result]]:
    """The runs that are not part of the baseline; all where there are no others."""
    kept = {id(result) for result in without([result for _, result in found], baseline.results)}
    if len(kept) < len(found):
        omitted = len(found) - len(kept)
        say(f"note: {omitted} run{'s' if omitted > 1 else ''} of {baseline.called} omitted; name runs to include them")
    return [one for one in found if id(one[1]) in kept]


def make_report(
    context: Context,
    found: Sequence[tuple[RunRecord, Result]],
    reference: str | None,
    made: datetime,
    unreadable: Sequence[Result] = (),
    baseline: Baseline | None = None,
) -> Report:
    """The report on runs with their results (not judged), without their steps. Raises LlmbError.

    ``unreadable``: the results of runs whose record cannot be read; ``baseline``: what they are compared with, None for
    the published figures.
    """
    records = [record for record, _ in found]
    results = judged(context, [result for _, result in found], reference, baseline)
    figures = tuple(context.figures({record.job.workload for record in records}))
    references = References(figures if baseline is None else (), reference)
    peaks = peaks_of(context, records)
    runs = [_run(context, record, result, references, peaks) for record, result in zip(records, results, strict=True)]
    failures = [(f"{run.id} {run.job.experiment_name}", run.cause) for run in runs if run.cause is not None]
    config = context.config
    return Report(
        cluster_name=config.cluster_name,
        cluster_type=config.cluster_type,
        gpu_type=config.gpu_type,
        llmb_version=__version__,
        made=made,
        runs=tuple(runs),
        failures=tuple(group_failures(failures)),
        points=tuple(scaling_points(results)),
        figures=figures,
        release=reference,
        digests=_digests(context, {record.job.image for record in records}),
        faulty=tuple(context.faulty_figures),
        unreadable=tuple(unreadable),
        baseline=baseline,
        archived=context.archive is not None,
    )


def with_samples(context: Context, report: Report, records: Sequence[RunRecord], wanted: Sequence[Run]) -> Report:
    """The report with the steps of the runs ``wanted``, from their logs. Raises LlmbError."""
    chosen = {run.id for run in wanted}
    runs = tuple(
        replace(run, samples=_samples(context, record)) if run.id in chosen else run
        for run, record in zip(report.runs, records, strict=True)
    )
    return replace(report, runs=runs)


def _run(
    context: Context,
    record: RunRecord,
    result: Result,
    references: References,
    peaks: Mapping[tuple[str, str], float | None],
) -> Run:
    variables = {name: value for name, value in record.launch.environment.items() if not is_secret_name(name)}
    return Run(
        result=result,
        job=record.job,
        directory=context.shown(record.directory),
        created=record.created,
        llmb_version=record.llmb_version,
        scheduler_id=record.scheduler_id,
        environment=variables,
        figure=figure_of(result, references),
        row=row_of(context, record.job),
        peak_tflops=peaks[record.job.gpu_type, record.job.dtype],
        cause=_cause(context, result) if result.is_failure else None,
        nodes=nodes_of(record, context.states.get(record.id)),
    )


def _cause(context: Context, result: Result) -> Cause:
    cause = cause_of(result)
    return replace(cause, advice=context.advice(cause.fix))


def _samples(context: Context, record: RunRecord) -> Samples | None:
    path = log_of(record)
    spec = spec_of(context, record)
    try:
        return read_log(path, spec) if path.exists() else spec.samples
    except LlmbError as error:  # this run alone has no chart
        console.warn_once(error.message)
        return None


def _digests(context: Context, references: set[str | None]) -> dict[str, str]:
    found = {reference: recorded_digest(reference, context.config) for reference in filter(None, references)}
    return {reference: digest for reference, digest in sorted(found.items()) if digest is not None}
