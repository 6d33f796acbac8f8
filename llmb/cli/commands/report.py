# SPDX-License-Identifier: Apache-2.0
"""`llmb-run report`: one Markdown page about a set of runs, to be kept or sent."""

from __future__ import annotations

from pathlib import Path

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context, say


@click.command("report")
@click.argument("runs", nargs=-1)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write it there, not on stdout.")
@options.window_option
@options.reference_option
@options.install_option
@pass_context
def command(
    context: Context, runs: tuple[str, ...], output: Path | None, window: str | None, reference: str | None
) -> int:
    """Write a report in Markdown on RUNS, on all runs of this install without names."""
    from llmb import files
    from llmb.cli.page import make_page
    from llmb.cli.reporting import exit_code
    from llmb.measure import parse_window
    from llmb.results.page import to_markdown

    chosen = parse_window(window) if window is not None else None
    page = make_page(context, context.runs(runs), chosen, reference)
    text = to_markdown(page)
    if output is None:
        click.echo(text, nl=False)
    else:
        files.write_text(output, text)
        say(f"{output}: {len(page.results)} runs")
    return exit_code(page.results)
