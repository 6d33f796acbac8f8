# SPDX-License-Identifier: Apache-2.0
"""`llmb-run report`: one page about a set of runs, in Markdown or HTML."""

import sys
from pathlib import Path

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context
from llmb.cli.results import choice_options
from llmb.errors import UsageError

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
@choice_options
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
    from llmb.cli.report.contents import write_report
    from llmb.cli.results.judged import choice_of

    fmt = fmt or ("html" if output is not None and output.suffix.lower() in _HTML else "md")
    if fmt == "html" and output is None and sys.stdout.isatty():
        hint = "write it to a file: -o report.html"
        message = "an HTML page is not readable in a terminal"
        raise UsageError(message, hint=hint, code="html-on-terminal", key="--format")
    choice = choice_of(workloads, exclude_cancelled, window)
    return write_report(context, runs, choice, reference, output, as_html=fmt == "html")
