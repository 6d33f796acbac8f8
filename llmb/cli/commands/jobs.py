# SPDX-License-Identifier: Apache-2.0
"""`llmb-run jobs`: the submitted runs, one by one or all together."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context, say

if TYPE_CHECKING:
    from llmb.runs.record import RunRecord
    from llmb.state import JobState


@click.group("jobs", invoke_without_command=True)
@options.install_option
@click.pass_context
def group(click_context: click.Context) -> None:
    """List, follow and end submitted runs (list when nothing else is asked)."""
    if click_context.invoked_subcommand is None:
        click_context.invoke(list_, fmt="table", live=False)


@group.command("list")
@click.option("--live", is_flag=True, help="Only runs that have not ended.")
@options.format_option
@options.install_option
@pass_context
def list_(context: Context, live: bool, fmt: str) -> None:
    """Show every run and its state."""
    from llmb.cli.output import print_rows
    from llmb.follow import poll
    from llmb.tables import Column

    runs = context.runs()
    states = poll(context.need_cluster(), runs)
    rows = [_row(run, states[run.id]) for run in runs if not live or not states[run.id].is_end]
    if not rows:
        say("no run" + (" that has not ended" if live else " yet; submit some: llmb-run submit-all jobs.txt"))
    names: tuple[str, ...] = ("id", "experiment", "repeat", "state", "submitted", "ran", "reason")
    if fmt != "table":
        names = (names[0], "scheduler_id", *names[1:])
    print_rows([Column(key=name, heading=name.replace("_", " ").capitalize()) for name in names], rows, fmt)


def _row(run: RunRecord, state: JobState) -> dict[str, Any]:
    from llmb.cli.preview import clock

    ran = clock((state.ended or time.time()) - state.started) if state.started is not None else None
    return {
        "id": run.id,
        "scheduler_id": run.scheduler_id,
        "experiment": run.job.experiment_name,
        "repeat": run.job.repeat,
        "state": state.state,
        "submitted": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.created)),
        "ran": ran,
        "reason": state.reason,
    }


@group.command("show")
@click.argument("run")
@options.install_option
@pass_context
def show(context: Context, run: str) -> None:
    """Show one run: its job, state, files and script."""
    import yaml

    from llmb.cli.preview import job_data
    from llmb.follow import poll

    found = context.runs((run,))[0]
    state = poll(context.need_cluster(), [found])[found.id]
    data = {
        "id": found.id, "scheduler_id": found.scheduler_id, "state": state.state, "reason": state.reason or None,
        "directory": str(found.directory), "log": str(found.log), "script": str(found.script),
        "job": job_data(found.job), "environment": dict(found.launch.environment),
    }  # fmt: skip
    click.echo(yaml.safe_dump(data, sort_keys=False), nl=False)


@group.command("logs")
@click.argument("run")
@click.option("-f", "--follow", "follow_", is_flag=True, help="Go on until the run has ended.")
@click.option("--batch", is_flag=True, help="What the job's script printed, not the training.")
@options.install_option
@pass_context
def logs(context: Context, run: str, follow_: bool, batch: bool) -> None:
    """Print the log of one run."""
    from llmb.cli.tail import tail
    from llmb.follow import poll

    found = context.runs((run,))[0]
    path = found.batch_log if batch else found.log
    cluster = context.need_cluster()
    printed = tail(path, sys.stdout, ended=lambda: not follow_ or poll(cluster, [found])[found.id].is_end)
    if not printed:
        state = poll(cluster, [found])[found.id]
        say(f"{found.id} has no log yet: {state.state}{': ' + state.reason if state.reason else ''}")


@group.command("wait")
@click.argument("runs", nargs=-1)
@options.install_option
@pass_context
def wait(context: Context, runs: tuple[str, ...]) -> int:
    """Follow RUNS to their end, all that have not ended without names. Ctrl-C stops waiting, not the jobs."""
    from llmb.cli.following import RUN_FAILED, follow
    from llmb.follow import poll
    from llmb.state import COMPLETED

    found = context.runs(runs)
    if not runs:
        states = poll(context.need_cluster(), found)
        found = [run for run in found if not states[run.id].is_end]
    if not found:
        say("every run has ended; llmb-run results shows what they measured")
        return 0
    ended = follow(context, found)
    return RUN_FAILED if any(state.state != COMPLETED for state in ended.values()) else 0


@group.command("cancel")
@click.argument("runs", nargs=-1)
@click.option("--all", "all_", is_flag=True, help="Every run of this install that has not ended.")
@options.install_option
@pass_context
def cancel(context: Context, runs: tuple[str, ...], all_: bool) -> None:
    """End RUNS, waiting or running."""
    from llmb.errors import UsageError
    from llmb.follow import poll

    if bool(runs) == all_:
        raise UsageError("name the runs to end, or say --all", hint="llmb-run jobs list --live shows them")
    cluster = context.need_cluster()
    found = context.runs(runs)
    states = poll(cluster, found)
    live = [run for run in found if not states[run.id].is_end]
    for run in found:
        if run not in live and not all_:
            say(f"{run.id} has ended already: {states[run.id].state}")
    cluster.cancel(live)
    for run in live:
        say(f"{run.id} {run.job.experiment_name}: to be ended")
