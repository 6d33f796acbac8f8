# SPDX-License-Identifier: Apache-2.0
"""`llmb-run report`: one page about a set of runs, in Markdown or HTML."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context, say
from llmb.cli.results import choose
from llmb.system import console

if TYPE_CHECKING:
    from llmb.report.value import Report

FORMATS = ("md", "html")
_HTML = (".html", ".htm")


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
@choose.choice_options
@options.reference_option
@options.install_option
@pass_context
def command(
    context: Context,
    runs: tuple[str, ...],
    output: Path | None,
    fmt: str | None,
    workloads: tuple[str, ...],
    exclude_cancelled: bool,
    window: str | None,
    reference: str | None,
) -> int:
    """Write a report on RUNS (default: all runs).

    `-o report.html` writes one self-contained page: verdicts, differences from the published runs, charts, failures
    with fixes, conditions. Markdown is for notes and tickets.
    """
    from llmb.cli.results.judged import exit_code
    from llmb.system import files

    choice = choose.choice_of(workloads, exclude_cancelled, window)
    fmt = fmt or ("html" if output is not None and output.suffix.lower() in _HTML else "md")
    if fmt == "html" and output is None and sys.stdout.isatty():
        from llmb.errors import UsageError

        hint = "write it to a file: -o report.html"
        raise UsageError(
            "an HTML page is not readable in a terminal", hint=hint, code="html-on-terminal", key="--format"
        )
    report = _report(context, runs, fmt, choice, reference)
    text = _text(report, fmt)
    if output is None:
        console.echo(text, nl=False)
    else:
        files.write_text(output, text)
        say(f"{output}: {len(report.runs)} run{'' if len(report.runs) == 1 else 's'}")
    return exit_code(report.results)


def _report(context: Context, names: tuple[str, ...], fmt: str, choice: choose.Choice, reference: str | None) -> Report:
    from datetime import datetime

    from llmb.cli.report.contents import make_report, with_samples

    found = choose.gather(context, names, choice)
    # The workload of a run without a readable record is unknown.
    unreadable = [] if names or choice.workloads else choose.unreadable(context)
    report = make_report(context, found, reference, datetime.now().astimezone(), unreadable)
    if fmt == "md":
        return report
    from llmb.report.page import charted

    return with_samples(context, report, [record for record, _ in found], charted(report))


def _text(report: Report, fmt: str) -> str:
    if fmt == "md":
        from llmb.report.markdown import to_markdown

        return to_markdown(report)
    from llmb.report.html import to_html

    return to_html(report)
