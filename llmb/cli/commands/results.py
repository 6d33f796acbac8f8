# SPDX-License-Identifier: Apache-2.0
"""`llmb-run results`: what the runs of this install measured, and how that compares with what was published."""

from __future__ import annotations

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context, say


@click.command("results")
@click.argument("runs", nargs=-1)
@click.option(
    "-w", "--workloads", multiple=True, callback=options.words, metavar="W", help="Only these, as key or key_size."
)
@options.window_option
@options.reference_option
@click.option("--exclude-cancelled", is_flag=True, help="Leave out runs that were cancelled.")
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
    """Show what RUNS measured, all runs of this install without names, with a verdict on each.

    A run is named by a unique start of its id, the scheduler's job id, or its directory.
    """
    from llmb.cli.reporting import judged, print_report, results_of
    from llmb.measure import parse_window
    from llmb.names import find_workload_and_size
    from llmb.runs.store import was_cancelled

    chosen = parse_window(window) if window is not None else None
    every = context.runs(runs)
    sizes = {key: list(workload.sizes) for key, workload in context.workloads.items()}
    for run in every:  # its plugin may be gone
        sizes.setdefault(run.job.workload, []).append(run.job.model_size)
    wanted = [find_workload_and_size(name, sizes) for name in workloads]
    found = [
        run
        for run in every
        if not wanted or any(run.job.workload == key and size in (None, run.job.model_size) for key, size in wanted)
    ]
    if not found:
        say("no run is of these workloads" if every else "no run yet; submit some: llmb-run submit-all jobs.txt")
    results = results_of(context, found, chosen)
    if cancelled := {run.id for run in found if was_cancelled(run)}:
        if exclude_cancelled:
            results = [result for result in results if result.run not in cancelled]
        them = "it" if len(cancelled) == 1 else "them"
        done = "left out" if exclude_cancelled else f"counted as failed; --exclude-cancelled leaves {them} out"
        say(f"note: {len(cancelled)} cancelled run{'s' if len(cancelled) > 1 else ''} {done}")
    return print_report(judged(context, results, reference), fmt, full_names=full_names)
