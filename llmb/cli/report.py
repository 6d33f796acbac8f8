# SPDX-License-Identifier: Apache-2.0
"""`llmb-run report`: one page about a set of runs, in Markdown or HTML."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import click

from llmb import __version__
from llmb.builtin.torch import torch_pretrain
from llmb.cli import options
from llmb.cli.choice import Choice, choice_options, choose_runs, gather, unreadable_results
from llmb.cli.compare import baseline_instead
from llmb.cli.context import CliContext, pass_context, say
from llmb.cli.explain import cause_of, figure_of, row_of, tflops_note_of
from llmb.cli.judging import judged
from llmb.cli.output import check_folder
from llmb.cli.reading import flops_of, kept_rows, opened, peaks_of, rows_of, spec_of
from llmb.cli.results import exit_code
from llmb.contract.record import RunRecord
from llmb.contract.report_section import ReportSection
from llmb.contract.samples import Samples
from llmb.contract.state import JobState
from llmb.core import console, files
from llmb.core.names import suggest
from llmb.core.secrets import is_secret_name
from llmb.errors import LlmbError, UsageError
from llmb.judge.compare import without_accepted
from llmb.judge.explain import Subject, formulas
from llmb.judge.export import Baseline
from llmb.judge.reference import References
from llmb.judge.scaling import scaling_points
from llmb.measure.failure_causes import Cause, group_failures
from llmb.measure.find_logs import log_of
from llmb.measure.log_reader import read_log
from llmb.measure.result import Result
from llmb.plan.images import recorded_digest
from llmb.run import sessions
from llmb.run.store import nodes_of
from llmb.show.report.history import history_of
from llmb.show.report.history_pages import history_html, history_markdown
from llmb.show.report.markdown import sections_markdown, to_markdown
from llmb.show.report.own_sections import sections_of
from llmb.show.report.page import charted, computed, sections_html, to_html
from llmb.show.report.value import Report, Run

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
@click.option(
    "--format",
    "fmt",
    type=click.Choice(FORMATS),
    help="Output format (default: from FILE's extension).",
)
@click.option("--history", is_flag=True, help="Show each configuration by night, and what changed.")
@click.option("--page", metavar="NAME", help="Show the page NAME of a plugin instead.")
@choice_options
@options.baseline_option
@options.reference_option
@options.read_option
@pass_context
def command(
    context: CliContext,
    /,
    runs: tuple[str, ...],
    output: Path | None,
    fmt: str | None,
    history: bool,
    page: str | None,
    choice: Choice,
    baseline: str | None,
    reference: str | None,
) -> int:
    """Write a report on RUNS (default: the newest session; with `--history`, all).

    `-o report.html` writes one self-contained page: verdicts, differences from the published runs,
    charts, failures with fixes, conditions. Markdown is for notes and tickets. `--history` shows
    the ratio of each configuration in each night, and what changed in between.
    """
    as_html = (fmt or _format_of(output)) == "html"
    if as_html and output is None and sys.stdout.isatty():
        raise UsageError(
            "an HTML page is not readable in a terminal",
            hint="write it to a file: -o report.html",
            code="html-on-terminal",
            key="--format",
        )
    if output is not None:
        check_folder(output)
    names = opened(context, runs)
    against = baseline_instead(context, baseline, reference, choice)
    all_runs, damaged = context.read_runs()
    by_default = (sessions.ALL if history else sessions.LAST,)
    chosen = choose_runs(all_runs, names, choice, by_default=by_default)
    measured = gather(context, chosen, choice)
    if against is not None and not names and not history:  # a history has its nights too
        measured = _later(measured, against)
    report = make_report(
        context,
        measured,
        reference,
        datetime.now().astimezone(),
        [] if names else unreadable_results(context, damaged, choice),
        against,
        all_runs,
    )
    report = _with_sections(context, report, all_runs, page)
    if as_html and not history and page is None:
        report = with_samples(context, report, [run for run, *_ in measured], charted(report))
    over_time = history_of(report) if history else None
    if page is not None:
        text = sections_html(report) if as_html else sections_markdown(report)
    elif over_time is None:
        text = to_html(report) if as_html else to_markdown(report)
    else:
        text = (history_html if as_html else history_markdown)(report, over_time)
    if output is None:
        console.echo(text, nl=False)
    else:
        with files.output(output) as stream:
            stream.write(text.encode())
        runs_word = "run" if len(report.runs) == 1 else "runs"
        say(f"{output}: {len(report.runs)} {runs_word}", links=[output])
    judged_results = report.results if over_time is None else over_time.latest
    return exit_code([*judged_results, *report.unreadable])


def page_on(
    context: CliContext, measured: Sequence[tuple[RunRecord, JobState, Result]], *, refresh: int
) -> str:
    """Return the HTML page on runs that are not judged yet. Raises LlmbError.

    ``refresh``: seconds after which a browser loads it again, 0 for never.
    """
    all_runs = context.runs()
    report = make_report(context, measured, None, datetime.now().astimezone(), all_runs=all_runs)
    report = _with_sections(context, report, all_runs, None)
    report = with_samples(context, report, [run for run, *_ in measured], charted(report))
    return to_html(replace(report, refresh=refresh))


def _with_sections(
    context: CliContext, report: Report, runs: Sequence[RunRecord], page: str | None
) -> Report:
    sections = [*sections_of(report.results), *_sections(context, report.results, runs)]
    return replace(report, sections=tuple(_on_page(sections, page)))


def _sections(
    context: CliContext, results: Sequence[Result], runs: Sequence[RunRecord]
) -> list[ReportSection]:
    """The sections of plugins, which get the rows of ``results --format json``."""
    if not context.plugins.has_hook("llmb_report"):
        return []
    return context.plugins.report_sections(rows_of(results), runs, kept_rows(runs))


def _on_page(sections: Sequence[ReportSection], page: str | None) -> list[ReportSection]:
    """The sections of one page, None for the report itself. Raises UsageError."""
    chosen = [section for section in sections if section.page == (page or "")]
    chosen.sort(key=lambda section: not section.first)
    if page is not None and not chosen:
        pages = list(dict.fromkeys(section.page for section in sections if section.page))
        raise UsageError(
            f"no plugin finds anything for a page '{page}' in these runs",
            hint=suggest(page, pages) if pages else "llmb-run plugins shows the plugins",
            code="page-unknown",
            key="--page",
            value=page,
        )
    return chosen


def _format_of(output: Path | None) -> str:
    """The format by the file's extension, or Markdown without one.

    Raises UsageError for an unknown extension.
    """
    ending = output.suffix.lower() if output is not None else ""
    if ending not in _ENDINGS:
        raise UsageError(
            f"--output {output}: a report has no format {ending}",
            hint=f"name it {', '.join(filter(None, _ENDINGS))}, or add --format",
            code="report-format",
            key="--output",
            value=str(output),
        )
    return _ENDINGS[ending]


def check_page(output: Path) -> None:
    """Raise UsageError unless ``output`` names an HTML file in a folder that exists."""
    if _format_of(output) != "html":
        raise UsageError(
            f"--report {output}: only an HTML page can be rewritten while you wait",
            hint=f"name it {output.with_suffix('.html')}",
            code="report-format",
            key="--report",
            value=str(output),
        )
    check_folder(output)


def _later(
    measured: Sequence[tuple[RunRecord, JobState, Result]], baseline: Baseline
) -> list[tuple[RunRecord, JobState, Result]]:
    """The runs that are not part of the baseline. Raises UsageError if all of them are."""
    results = [result for *_, result in measured]
    later = {id(result) for result in without_accepted(results, baseline.results, baseline.called)}
    if omitted := len(measured) - len(later):
        say(
            f"note: {omitted} run{'s' if omitted > 1 else ''} of {baseline.called} omitted; name"
            " runs to include them"
        )
    return [entry for entry in measured if id(entry[2]) in later]


def make_report(
    context: CliContext,
    measured: Sequence[tuple[RunRecord, JobState, Result]],
    reference: str | None,
    created: datetime,
    unreadable: Sequence[Result] = (),
    baseline: Baseline | None = None,
    all_runs: Sequence[RunRecord] = (),
) -> Report:
    """The report on runs with their results (not judged), without their steps. Raises LlmbError.

    ``unreadable`` are the results of runs whose record cannot be read. Without a ``baseline``,
    results are compared with the published figures. Others of ``all_runs`` may explain verdicts.
    """
    records = [record for record, *_ in measured]
    results = judged(
        context, [result for *_, result in measured], reference, baseline, runs=all_runs
    )
    figures = tuple(context.figures({record.job.workload for record in records}))
    references = References(figures if baseline is None else (), reference)
    peaks = peaks_of(context, records)
    runs = [
        _run(context, record, state, result, references, peaks)
        for (record, state, _), result in zip(measured, results, strict=True)
    ]
    failures = [
        (f"{run.id} {run.job.experiment_name}", run.cause) for run in runs if run.cause is not None
    ]
    config = context.config
    return Report(
        cluster_name=config.cluster_name,
        cluster_type=config.cluster_type,
        gpu_type=config.gpu_type,
        llmb_version=__version__,
        made=created,
        runs=tuple(runs),
        failures=tuple(group_failures(failures)),
        points=tuple(scaling_points(results)),
        figures=figures,
        release=reference,
        digests=_digests(context, {record.job.image for record in records}),
        faulty=tuple(context.faulty_figures(record.job.workload for record in records)),
        unreadable=tuple(unreadable),
        baseline=baseline,
        archived=context.archive is not None,
    )


def with_samples(
    context: CliContext, report: Report, records: Sequence[RunRecord], charted_runs: Sequence[Run]
) -> Report:
    """The report with the steps of the runs ``charted_runs``, from their logs. Raises LlmbError.

    One run of each configuration also has the formulas of its figures.
    """
    chosen = {run.id for run in charted_runs}
    repeats = {entry.runs[0].id: entry.runs for entry in computed(report)}
    runs = tuple(
        replace(
            run,
            samples=_samples(context, record) if run.id in chosen else None,
            formulas=_formulas(context, record, run, repeats.get(run.id, ())),
        )
        if run.id in chosen or run.id in repeats
        else run
        for run, record in zip(report.runs, records, strict=True)
    )
    return replace(report, runs=runs)


def _formulas(
    context: CliContext, record: RunRecord, run: Run, repeats: Sequence[Run]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not repeats:
        return ()
    subject = Subject(
        result=run.result,
        job=run.job,
        figure=run.figure,
        peak_tflops=run.peak_tflops,
        repeats=[repeat.result for repeat in repeats],
        tflops_note=tflops_note_of(spec_of(context, record)),
        flops=flops_of(context, run.job),
    )
    return tuple(formulas(subject))


def _run(
    context: CliContext,
    record: RunRecord,
    state: JobState,
    result: Result,
    references: References,
    peaks: Mapping[tuple[str, str], float | None],
) -> Run:
    variables = {
        name: value for name, value in record.launch.environment.items() if not is_secret_name(name)
    }
    return Run(
        result=result,
        job=record.job,
        directory=context.shown(record.directory),
        created=record.created,
        llmb_version=record.llmb_version,
        scheduler_id=record.scheduler_id,
        environment=variables,
        program=torch_pretrain.name_of(record.launch.program),
        figure=figure_of(result, references),
        row=row_of(context, record.job),
        peak_tflops=peaks[record.job.gpu_type, record.job.dtype],
        cause=_cause(context, result) if result.is_failure else None,
        nodes=nodes_of(record, state),
    )


def _cause(context: CliContext, result: Result) -> Cause:
    cause = cause_of(result)
    return replace(cause, advice=context.advice(cause.fix))


def _samples(context: CliContext, record: RunRecord) -> Samples | None:
    path = log_of(record)
    spec = spec_of(context, record)
    try:
        return read_log(path, spec) if files.exists(path) else spec.samples
    except LlmbError as error:  # this run alone has no chart
        console.warn_once(error.message)
        return None


def _digests(context: CliContext, references: set[str | None]) -> dict[str, str]:
    images = sorted(filter(None, references))
    digests = ((image, recorded_digest(image, context.config)) for image in images)
    return {image: digest for image, digest in digests if digest is not None}
