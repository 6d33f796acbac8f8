# SPDX-License-Identifier: Apache-2.0
"""`llmb-run jobs`: list, show, follow, cancel, retry and reconcile submitted runs."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context, say
from llmb.errors import RUN_FAILED, LlmbError, UsageError
from llmb.runs.state import COMPLETED, NOT_SUBMITTED, UNKNOWN, JobState
from llmb.system import console
from llmb.text.times import iso

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmb.runs.record import RunRecord
    from llmb.runs.store import Unreadable

_NAMED = 8  # runs that fit on a line


_NO_RUN = "no run yet; submit some: llmb-run submit-all jobs.txt"


@click.group("jobs", cls=options.Group, invoke_without_command=True)
@click.option("--format", "fmt", type=click.Choice(options.FORMATS), help="Output format of the list.")
@options.install_option
@click.pass_context
def group(click_context: click.Context, fmt: str | None) -> None:
    """List, follow, cancel and retry runs (default: list)."""

    command = click_context.invoked_subcommand
    if command is None:
        click_context.invoke(list_, fmt=fmt or "table", live=False)
    elif fmt is not None:
        message, hint = "--format before the command is only for the list", f"llmb-run jobs {command} --help"
        raise UsageError(message, hint=hint, code="format-misplaced", key="format")


@group.command("list")
@click.option("--live", is_flag=True, help="Only runs that have not ended.")
@options.format_option
@options.install_option
@pass_context
def list_(context: Context, live: bool, fmt: str) -> None:
    """List every run and its state."""
    from llmb.cli.jobs.display import table_of
    from llmb.cli.output import print_runs
    from llmb.cli.results.judged import states_of

    runs = context.runs()
    states = states_of(context, runs)
    rows = [_row(run, states[run.id]) for run in runs if not live or not states[run.id].is_end]
    rows += [_unreadable_row(one) for one in context.unreadable if not live]
    if not rows:
        say("no run is waiting or running" if live else _NO_RUN)
    print_runs(*table_of(rows, fmt), fmt)


def _row(run: RunRecord, state: JobState) -> dict[str, Any]:
    from llmb.text.times import clock

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

    from llmb.cli.results.judged import states_of
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
@click.option("-f", "--follow", "follow_", is_flag=True, help="Follow the log until the run has ended.")
@click.option("--batch", is_flag=True, help="Show the job script's output, not the training's.")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Attempt (default: the last).")
@options.install_option
@pass_context
def logs(context: Context, run: str, follow_: bool, batch: bool, attempt: int | None) -> None:
    """Print the log of one run."""
    from llmb.cli.jobs.display import tail
    from llmb.submission.follow import poll

    found = context.runs((run,))[0]
    last = attempt is None or attempt == found.attempt
    of = found if last else _attempt(found, attempt or 1)
    cluster = context.need_cluster()
    follows = follow_ and last
    path = of.batch_log if batch else of.log
    if tail(path, sys.stdout, ended=lambda: not follows or poll(cluster, [found])[found.id].is_end):
        return
    if not last:
        say(f"attempt {of.attempt} of {found.id} has no log")
        return
    state = poll(cluster, [found])[found.id]
    nothing = ("has an empty log" if path.exists() else "has no log") if state.is_over else "has no log yet"
    say(f"{found.id} {nothing}: {state.state}{': ' + state.reason if state.reason else ''}")


def _attempt(run: RunRecord, number: int) -> RunRecord:
    """The run as it was in an earlier attempt. Raises UsageError."""

    if number > run.attempt:
        hint = f"its last is {run.attempt}"
        raise UsageError(f"{run.id} has no attempt {number}", hint=hint, code="attempt-unknown", value=number)
    return replace(run, attempt=number)


@group.command("wait")
@click.argument("runs", nargs=-1)
@options.retries_option
@options.install_option
@pass_context
def wait(context: Context, runs: tuple[str, ...], retries: int) -> int:
    """Follow RUNS until they end (default: all).

    Ctrl-C stops waiting, not the jobs. The exit code is 3 where a run failed.
    """
    from llmb.runs import store

    found = context.runs(runs)
    if not runs:  # selected by stored states, without a new poll: a run that failed since is waited for too
        seen = [store.seen_state(run) for run in found]
        found = [run for run, state in zip(found, seen, strict=True) if state is None or not state.is_end]
    if not found:
        say("every run has ended; llmb-run results shows the results" if context.runs() else _NO_RUN)
        return 0
    return _follow(context, found, retries)


def _follow(context: Context, runs: Sequence[RunRecord], retries: int) -> int:
    from llmb.cli.progress import follow

    _, states = follow(context, runs, retries)
    gone = [run.id for run in runs if not run.directory.is_dir()]
    if gone:
        say(f"warning: the folder of {' '.join(gone)} was deleted, and its results with it")
    left = [run.id for run in runs if run.id not in gone]
    if left:
        say(" ".join(["results: llmb-run results", *(left if len(left) <= _NAMED else [])]))
    return RUN_FAILED if gone or any(state.state != COMPLETED for state in states.values()) else 0


@group.command("cancel")
@click.argument("runs", nargs=-1)
@click.option("--all", "all_", is_flag=True, help="Cancel every run that has not ended.")
@options.install_option
@pass_context
def cancel(context: Context, runs: tuple[str, ...], all_: bool) -> int:
    """Cancel RUNS that are waiting or running."""
    from llmb.submission.cancel import cancel

    if bool(runs) == all_:
        hint = "llmb-run jobs list --live shows them"
        raise UsageError("name the runs to cancel, or give --all", hint=hint, code="runs-missing", key="runs")
    done = cancel(context.need_cluster(), context.runs(runs))
    if all_ and not (done.cancelling or done.not_cancelled):
        say("nothing to cancel: no run is waiting or running")
    for run, state in [] if all_ else done.ended:
        say(f"{run.id} has already ended: {state.state}")
    for run in done.cancelling:
        say(f"{run.id} {run.job.experiment_name}: cancelling")
    for run, why in done.not_cancelled:
        say(f"{run.id} {run.job.experiment_name}: not cancelled: {why}")
    return LlmbError.exit_code if done.not_cancelled else 0


@group.command("retry")
@click.argument("runs", nargs=-1)
@click.option("--failed", is_flag=True, help="Every failed run, but not cancelled ones.")
@click.option("--wait", "wait_", is_flag=True, help="Follow them until they end.")
@options.retries_option
@click.option("--time-limit", metavar="HH:MM:SS", help="Time limit of the new attempts (default: unchanged).")
@click.option("--force", is_flag=True, help="Skip the pre-submission checks.")
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
    """Retry failed RUNS as new attempts of the same runs."""
    from llmb.cli.jobs import attempts

    if bool(runs) == failed:
        hint = "llmb-run results shows which runs failed"
        raise UsageError("name the runs to retry, or give --failed", hint=hint, code="runs-missing", key="runs")
    if retries and not wait_:
        raise UsageError("--retries requires --wait", hint="add --wait", code="retries-without-wait", key="retries")
    limit = attempts.read_limit(context, time_limit)
    chosen = attempts.choose(context, context.runs(runs), named=bool(runs))
    taken, code = attempts.run(context, chosen, time_limit=limit, force=force, named=bool(runs))
    return (_follow(context, taken, retries) if wait_ and taken else 0) or code


@group.command("reconcile")
@options.install_option
@pass_context
def reconcile(context: Context) -> int:
    """Complete an interrupted submission.

    Finds its jobs on the cluster and submits the others, each exactly once.
    """
    from llmb.cli.submit.announce import resubmit
    from llmb.runs import record
    from llmb.submission.follow import poll

    runs = [run for run in context.runs() if run.scheduler_id is None]
    states = poll(context.need_cluster(), runs)
    unsent = [run for run in runs if states[run.id].state == NOT_SUBMITTED]
    settled = True
    for run in runs:
        state, known = states[run.id], record.load(run.directory).scheduler_id
        if known is not None:
            say(f"  {run.id}  {run.name}  found as {known}: {state.state}")
        elif not state.is_over:
            say(f"  {run.id}  {run.name}  {state.state}: {state.reason}")
        settled = settled and known is None and state.is_end
    if settled:
        say("no submission was interrupted")
    refused = resubmit(context, unsent) if unsent else 0
    return LlmbError.exit_code if refused or any(state.state == UNKNOWN for state in states.values()) else 0
