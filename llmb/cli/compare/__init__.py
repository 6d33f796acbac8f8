# SPDX-License-Identifier: Apache-2.0
"""`llmb-run compare`: runs against published figures, other runs, another cluster, or an accepted baseline."""

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context
from llmb.cli.results import choice_options


@click.command("compare")
@click.argument("ours", metavar="[A]", required=False)
@click.argument("theirs", metavar="[B]", required=False)
@click.option("--baseline", metavar="NAME", help="Compare with an accepted baseline.")
@options.reference_option
@choice_options
@click.option("--scaling", is_flag=True, help="Show how throughput grows with the number of GPUs.")
@options.format_or_junit_option
@options.install_option
@pass_context
def command(
    context: Context,
    ours: str | None,
    theirs: str | None,
    baseline: str | None,
    reference: str | None,
    workloads: tuple[str, ...],
    exclude_cancelled: bool,
    window: str | None,
    scaling: bool,
    fmt: str,
) -> int:
    """Compare A (default: all runs) with B (default: published).

    A and B are runs separated by commas, the name of an experiment, or a file written by `results --format json`.
    Runs that differ in size, dtype, GPU type, scale, global batch or sequence length are not compared; the reason
    names the difference.
    """
    from llmb.cli.compare import comparison
    from llmb.cli.results.judged import choice_of

    choice = choice_of(workloads, exclude_cancelled, window)
    request = comparison.Request(ours=ours, theirs=theirs, baseline=baseline, reference=reference, choice=choice)
    return (comparison.print_scaling if scaling else comparison.print_comparison)(context, request, fmt)
