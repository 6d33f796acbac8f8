# SPDX-License-Identifier: Apache-2.0
"""`llmb-run jobs`: the submitted runs, one by one or all together."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context, say
from llmb.system import console
from llmb.text.times import iso

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmb.runs.record import RunRecord
    from llmb.runs.state import JobState
    from llmb.runs.store import Unreadable

_NAMED = 8  # runs that a line has room for


@click.group("jobs", cls=options.Group, invoke_without_command=True)
@click.option("--format", "fmt", type=click.Choice(options.FORMATS), help="Output format of the list.")
@options.install_option
@click.pass_context
def group(click_context: click.Context, fmt: str | None) -> None:
    """List, follow and end submitted runs (list when nothing else is asked)."""
    from llmb.errors import UsageError

    command = click_context.invoked_subcommand
    if command is None:
        click_context.invoke(list_, fmt=fmt or "table", live=False)
    elif fmt is not None:
        raise UsageError("--format before the command is for the list alone", hint=f"jobs {command} --help")


@group.command("list")
@click.option("--live", is_flag=True, help="Only runs that have not ended.")
@options.format_option
@options.install_option
@pass_context
def list_(context: Context, live: bool, fmt: str) -> None:
    """Show every run and its state."""
    from llmb.cli.jobs.table import levels
    from llmb.cli.output import print_runs
    from llmb.cli.results.last_seen import states_of

    runs = context.runs()
    states = states_of(context, runs)
    rows = [_row(run, states[run.id]) for run in runs if not live or not states[run.id].is_end]
    rows += [_unreadable_row(one) for one in context.unreadable if not live]
    if not rows:
        say("no run " + ("is waiting or running" if live else "yet; submit some: llmb-run submit-all jobs.txt"))
    print_runs(levels(rows, fmt), fmt)


def _row(run: RunRecord, state: JobState) -> dict[str, Any]:
    from llmb.cli.submit.preview import clock

    ran = clock((state.ended or time.time()) - state.started) if state.started is not None else None
    return {
        "id": run.id,
        "scheduler_id": run.scheduler_id,
        "attempt": run.attempt,
        "experiment": run.job.experiment_name,
        "repeat": run.job.repeat,
        "state": state.state,
        "submitted": iso(run.submitted_at),
        "ran": ran,
        "reason": state.reason,
    }


def _unreadable_row(one: Unreadable) -> dict[str, Any]:
    from llmb.runs.state import UNKNOWN

    return {
        **dict.fromkeys(("id", "scheduler_id", "attempt")),
        "experiment": one.directory.parent.name,
        "repeat": None,
        "state": UNKNOWN,
        "submitted": None,
        "ran": None,
        "reason": one.reason,
    }


@group.command("show")
@click.argument("run")
@click.option("--format", "fmt", type=click.Choice(["yaml", "json"]), default="yaml", help="Output format.")
@options.install_option
@pass_context
def show(context: Context, run: str, fmt: str) -> None:
    """Show one run: its job, state, files and script."""
    import yaml

    from llmb.cli.results.last_seen import states_of
    from llmb.cli.submit.preview import job_data
    from llmb.text.tables import to_json

    found = context.runs((run,))[0]
    state = states_of(context, [found])[found.id]
    before = [
        {"scheduler_id": one.scheduler_id, "state": one.state.state, "reason": one.state.reason or None}
        for one in found.history
    ]
    data = {
        "id": found.id,
        "scheduler_id": found.scheduler_id,
        "attempt": found.attempt,
        "before": before,
        "state": state.state,
        "reason": state.reason or None,
        "fix": state.fix or None,
        "exit_code": state.exit_code,
        "submitted": iso(found.submitted_at),
        "started": iso(state.started),
        "ended": iso(state.ended),
        "directory": str(found.directory),
        "log": str(found.log),
        "script": str(found.script),
        "job": job_data(found.job),
        "environment": dict(found.launch.environment),
    }
    console.echo(to_json(data) if fmt == "json" else yaml.safe_dump(data, sort_keys=False), nl=False)


@group.command("logs")
@click.argument("run")
@click.option("-f", "--follow", "follow_", is_flag=True, help="Go on until the run has ended.")
@click.option("--batch", is_flag=True, help="What the job's script printed, not the training.")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Of this attempt (else of the last).")
@options.install_option
@pass_context
def logs(context: Context, run: str, follow_: bool, batch: bool, attempt: int | None) -> None:
    """Print the log of one run."""
    from llmb.cli.jobs.tail import tail
    from llmb.submission.follow import poll

    found = context.runs((run,))[0]
    last = attempt is None or attempt == found.attempt
    of = found if last else _attempt(found, attempt or 1)
    cluster = context.need_cluster()
    go_on = follow_ and last
    path = of.batch_log if batch else of.log
    if tail(path, sys.stdout, ended=lambda: not go_on or poll(cluster, [found])[found.id].is_end):
        return
    if not last:
        say(f"attempt {of.attempt} of {found.id} left no log")
        return
    state = poll(cluster, [found])[found.id]
    nothing = ("left an empty log" if path.exists() else "left no log") if state.is_over else "has no log yet"
    say(f"{found.id} {nothing}: {state.state}{': ' + state.reason if state.reason else ''}")


def _attempt(run: RunRecord, number: int) -> RunRecord:
    """The run as it was in an earlier attempt. Raises UsageError."""
    from llmb.errors import UsageError

    if number > run.attempt:
        raise UsageError(f"{run.id} has no attempt {number}", hint=f"its last is {run.attempt}")
    return replace(run, attempt=number)


@group.command("wait")
@click.argument("runs", nargs=-1)
@options.retries_option
@options.install_option
@pass_context
def wait(context: Context, runs: tuple[str, ...], retries: int) -> int:
    """Follow RUNS to their end, all that have not ended without names. Ctrl-C stops waiting, not the jobs."""
    from llmb.cli.results.last_seen import states_of

    found = context.runs(runs)
    if not runs:
        states = states_of(context, found)
        found = [run for run in found if not states[run.id].is_end]
    if not found:
        ended = "every run has ended; llmb-run results shows what they measured"
        say(ended if context.runs() else "no run yet; submit some: llmb-run submit-all jobs.txt")
        return 0
    return _follow(context, found, retries)


def _follow(context: Context, runs: Sequence[RunRecord], retries: int) -> int:
    from llmb.cli.progress import follow
    from llmb.errors import RUN_FAILED
    from llmb.runs.state import COMPLETED

    _, states = follow(context, runs, retries)
    gone = [run.id for run in runs if not run.directory.is_dir()]
    if gone:
        say(f"warning: the folder of {' '.join(gone)} was deleted, and with it what was measured")
    left = [run.id for run in runs if run.id not in gone]
    if left:
        say(" ".join(["results: llmb-run results", *(left if len(left) <= _NAMED else [])]))
    return RUN_FAILED if gone or any(state.state != COMPLETED for state in states.values()) else 0


@group.command("cancel")
@click.argument("runs", nargs=-1)
@click.option("--all", "all_", is_flag=True, help="Every run of this install that has not ended.")
@options.install_option
@pass_context
def cancel(context: Context, runs: tuple[str, ...], all_: bool) -> int:
    """End RUNS, waiting or running."""
    from llmb.errors import LlmbError, UsageError
    from llmb.submission.cancel import cancel

    if bool(runs) == all_:
        raise UsageError("name the runs to end, or say --all", hint="llmb-run jobs list --live shows them")
    done = cancel(context.need_cluster(), context.runs(runs))
    if all_ and not (done.ending or done.left):
        say("nothing to cancel: no run is waiting or running")
    for run, state in [] if all_ else done.over:
        say(f"{run.id} has ended already: {state.state}")
    for run in done.ending:
        say(f"{run.id} {run.job.experiment_name}: to be ended")
    for run, why in done.left:
        say(f"{run.id} {run.job.experiment_name}: not ended, {why}")
    return LlmbError.exit_code if done.left else 0


@group.command("retry")
@click.argument("runs", nargs=-1)
@click.option("--failed", is_flag=True, help="Every run of this install that has failed, but not those cancelled.")
@click.option("--wait", "wait_", is_flag=True, help="Follow them to their end.")
@options.retries_option
@click.option("--time-limit", metavar="HH:MM:SS", help="Time limit of the new attempts (else as before).")
@click.option("--force", is_flag=True, help="Lift the checks before submission.")
@options.slurm_arg_option
@options.install_option
@pass_context
def retry(
    context: Context,
    runs: tuple[str, ...],
    failed: bool,
    wait_: bool,
    retries: int,
    time_limit: str | None,
    force: bool,
) -> int:
    """Submit RUNS that have failed once more, as a new attempt of the same run."""
    from llmb.cli.jobs import next_attempt
    from llmb.errors import UsageError

    if bool(runs) == failed:
        raise UsageError("name the runs to retry, or say --failed", hint="llmb-run results shows what has failed")
    if retries and not wait_:
        raise UsageError("--retries works while waiting", hint="add --wait")
    limit = next_attempt.read_limit(context, time_limit)
    chosen = next_attempt.choose(context, context.runs(runs), named=bool(runs))
    taken, code = next_attempt.run(context, chosen, time_limit=limit, force=force, named=bool(runs))
    return (_follow(context, taken, retries) if wait_ and taken else 0) or code


@group.command("reconcile")
@options.install_option
@pass_context
def reconcile(context: Context) -> int:
    """Settle what an interrupted submission has left: find its jobs on the cluster, submit the others, each once."""
    from llmb.cli.submit.announce import resubmit
    from llmb.errors import LlmbError
    from llmb.runs import record
    from llmb.runs.state import NOT_SUBMITTED, UNKNOWN
    from llmb.submission.follow import poll

    runs = [run for run in context.runs() if run.scheduler_id is None]
    states = poll(context.need_cluster(), runs)
    unsent = [run for run in runs if states[run.id].state == NOT_SUBMITTED]
    settled = True
    for run in runs:
        state, known = states[run.id], record.load(run.directory).scheduler_id
        if known is not None:
            say(f"  {run.id}  {run.name}  is there as {known}: {state.state}")
        elif not state.is_over:
            say(f"  {run.id}  {run.name}  {state.state}: {state.reason}")
        settled = settled and known is None and state.is_end
    if settled:
        say("nothing was left in the middle of a submission")
    refused = resubmit(context, unsent) if unsent else 0
    return LlmbError.exit_code if refused or any(state.state == UNKNOWN for state in states.values()) else 0
