# SPDX-License-Identifier: Apache-2.0
"""`llmb-run compare`: runs against published figures, other runs, another cluster, or an accepted baseline."""

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context
from llmb.cli.results import choose


@click.command("compare")
@click.argument("ours", metavar="[A]", required=False)
@click.argument("theirs", metavar="[B]", required=False)
@click.option("--baseline", metavar="NAME", help="Compare with a baseline that was accepted before.")
@options.reference_option
@choose.choice_options
@click.option("--scaling", is_flag=True, help="Show how each model's throughput grows with the scale.")
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
    """Compare A (all runs without it) with B (what was published without it).

    Each is a run, several runs separated by commas, an experiment's name, or a file that `results --format json` wrote;
    B may be the word published. What differs in size, dtype, GPU type, scale, global batch or sequence length is not
    compared, and the reason says so.
    """
    from llmb.cli.compare import comparison
    from llmb.cli.compare.comparison import print_scaling
    from llmb.errors import UsageError

    choice = choose.choice_of(workloads, exclude_cancelled, window)
    if scaling:
        if theirs or baseline or reference:
            raise UsageError("--scaling is about one side", hint="leave B, --baseline and --reference away")
        return print_scaling(context, ours, choice, fmt)
    wish = comparison.Wish(ours=ours, theirs=theirs, baseline=baseline, reference=reference, choice=choice)
    return comparison.print_comparison(context, wish, fmt)
