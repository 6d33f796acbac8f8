# SPDX-License-Identifier: Apache-2.0
"""`llmb-run parse`: what the logs of a folder say, also ones that llmb did not make."""

from __future__ import annotations

from pathlib import Path

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context


@click.command("parse")
@click.argument("folder", required=False, type=click.Path(path_type=Path), default=Path("experiments"))
@options.window_option
@options.reference_option
@click.option("--gpu-type", metavar="TYPE", help="The GPUs of logs without a record, to compare them and for MFU.")
@click.option("--full-names", is_flag=True, help="Do not shorten names.")
@options.format_or_junit_option
@pass_context
def command(
    context: Context,
    folder: Path,
    window: str | None,
    reference: str | None,
    gpu_type: str | None,
    full_names: bool,
    fmt: str,
) -> int:
    """Read every log-*.out below FOLDER (default ./experiments) and show what it measured."""
    from llmb.cli.reporting import judged, print_report, results_of_files
    from llmb.errors import UsageError
    from llmb.gpus import known_types
    from llmb.measure import parse_window
    from llmb.names import suggest
    from llmb.results import find_logs, last_attempts

    if gpu_type is not None and gpu_type not in known_types():
        raise UsageError(f"--gpu-type {gpu_type} is not known", hint=suggest(gpu_type, list(known_types())))
    chosen = parse_window(window) if window is not None else None
    logs = last_attempts(find_logs(folder))
    if not logs:
        hint = "name the folder that holds them: llmb-run parse DIR; a log of another name is read once it is called so"
        raise UsageError(f"there is no training log (log-*.out or log-*.out.gz) below {folder}", hint=hint)
    results = results_of_files(context, logs, chosen, gpu_type)
    return print_report(judged(context, results, reference), fmt, full_names=full_names)
