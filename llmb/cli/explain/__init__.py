# SPDX-License-Identifier: Apache-2.0
"""`llmb-run explain`: how one run's figures and its verdict are computed, or why it failed."""

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context


@click.command("explain")
@click.argument("run")
@options.window_option
@options.reference_option
@options.install_option
@pass_context
def command(context: Context, run: str, window: str | None, reference: str | None) -> None:
    """Explain the figures of RUN, or why it failed and how to fix it."""
    from llmb.cli.explain.explanation import print_explanation

    print_explanation(context, run, window, reference)
