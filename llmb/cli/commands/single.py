# SPDX-License-Identifier: Apache-2.0
"""`llmb-run single`: one configuration, given by flags."""

from __future__ import annotations

from typing import Any

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context


@click.command("single")
@click.option("-w", "--workload", required=True, metavar="W", help="Workload, in any spelling.")
@click.option("-s", "--size", metavar="SIZE", help="Model size (else the workload's default).")
@click.option("--dtype", metavar="D", help="Precision (else the workload's default).")
@click.option("--scale", required=True, type=click.IntRange(min=1), metavar="N", help="GPU count.")
@click.option("--repeats", type=click.IntRange(min=1), default=1, metavar="N", help="Run it N times.")
@click.option("-p", "--profile", is_flag=True, help="Profile it.")
@click.option("--strong-scaling", is_flag=True, help="Keep the global batch constant over scales.")
@options.submit_options
@pass_context
def command(context: Context, /, **flags: Any) -> int:
    """Submit one configuration."""
    from llmb.cli import submission
    from llmb.job import JobList, JobRequest

    request = JobRequest(
        workload=flags["workload"],
        size=flags["size"],
        dtypes=(flags["dtype"],) if flags["dtype"] else (),
        scales=(flags["scale"],),
        repeats=flags["repeats"],
        profile=flags["profile"],
        strong_scaling=flags["strong_scaling"],
    )
    return submission.run(context, JobList(requests=(request,)), submission.Options.from_flags(flags))
