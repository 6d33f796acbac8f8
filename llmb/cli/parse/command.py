# SPDX-License-Identifier: Apache-2.0
"""The options of `llmb-run parse`. What reads logs is imported when it is called."""

from pathlib import Path
from typing import Any

import click

from llmb.cli import options
from llmb.cli.context import CliContext, pass_context

_COUNT = click.IntRange(min=1)


@click.command("parse")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[PATH]...")
@options.window_option
@options.reference_option
@click.option(
    "--gpu-type", metavar="TYPE", help="GPU type of logs without a record, for verdict and MFU."
)
@click.option(
    "-w", "--workload", metavar="W_SIZE", help="Workload and size of logs without a record."
)
@click.option("--dtype", metavar="D", help="Dtype of logs without a record.")
@click.option("--scale", type=_COUNT, metavar="N", help="Number of GPUs of logs without a record.")
@click.option("--gbs", type=_COUNT, metavar="N", help="Global batch of logs without a record.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of logs without a record.",
)
@click.option(
    "--framework", metavar="NAME", help="Framework of logs without a record: nemo or bridge."
)
@click.option(
    "--release", metavar="RELEASE", help="Megatron-Bridge release of logs without a record."
)
@click.option("--full-names", is_flag=True, help="Do not shorten names.")
@options.format_or_junit_option
@pass_context
def command(
    context: CliContext,
    /,
    paths: tuple[Path, ...],
    window: str | None,
    reference: str | None,
    full_names: bool,
    fmt: str,
    **description: Any,
) -> int:
    """Read logs and show what they measured.

    PATH is a log, a folder with log-*.out files at any depth (default: ./experiments), or - for
    standard input. Folders of CloudAI, superbench and ReFrame are read too. Logs may be compressed
    with gzip. Options override what a log or its name
    contains, and llmb prints what they override. With -w, the plugin of that workload reads the
    logs.
    """
    from llmb.cli.parse import read_logs

    return read_logs.print_logs(
        context,
        paths or (Path("experiments"),),
        read_logs.described(context, **description),
        window,
        reference,
        fmt,
        full_names=full_names,
    )
