# SPDX-License-Identifier: Apache-2.0
"""`llmb-run parse`: what logs measured, also of runs that llmb did not submit."""

from pathlib import Path

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context

_COUNT = click.IntRange(min=1)


@click.command("parse")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[PATH]...")
@options.window_option
@options.reference_option
@click.option("--gpu-type", metavar="TYPE", help="GPU type of logs without a record, for verdict and MFU.")
@click.option("-w", "--workload", metavar="W_SIZE", help="Workload and size of logs without a record.")
@click.option("--dtype", metavar="D", help="Dtype of logs without a record.")
@click.option("--scale", type=_COUNT, metavar="N", help="Number of GPUs of logs without a record.")
@click.option("--gbs", type=_COUNT, metavar="N", help="Global batch of logs without a record.")
@click.option("--full-names", is_flag=True, help="Do not shorten names.")
@options.format_or_junit_option
@pass_context
def command(
    context: Context,
    /,
    paths: tuple[Path, ...],
    window: str | None,
    reference: str | None,
    gpu_type: str | None,
    workload: str | None,
    dtype: str | None,
    scale: int | None,
    gbs: int | None,
    full_names: bool,
    fmt: str,
) -> int:
    """Read logs and show what they measured.

    PATH is a log, a folder with log-*.out files at any depth (default: ./experiments), or - for standard input. Logs
    may be compressed with gzip. Options override what a log or its name says; llmb prints what they override.
    """
    from llmb.cli.results import files

    given = files.describe(context, gpu_type=gpu_type, workload=workload, dtype=dtype, scale=scale, gbs=gbs)
    logs = paths or (Path("experiments"),)
    return files.print_logs(context, logs, given, window, reference, fmt, full_names=full_names)
