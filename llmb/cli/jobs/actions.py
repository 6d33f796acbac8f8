# SPDX-License-Identifier: Apache-2.0
"""Follows, cancels, retries and reconciles runs."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from llmb.cli import options, progress, reading
from llmb.cli.choice import NO_RUN, Choice, choose_runs, session_option
from llmb.cli.context import CliContext, pass_context, say
from llmb.cli.jobs.filters import GROUPS
from llmb.cli.judging import results_of, states_of
from llmb.cli.submit.announce import (
    Announcer,
    announce_interrupt,
    resender,
    resubmit,
    sum_up,
)
from llmb.cli.submit.options import seconds_of
from llmb.contract import record, state as states
from llmb.contract.launch import Launch
from llmb.contract.state import COMPLETED, LOST, NOT_SUBMITTED, TIMEOUT
from llmb.contract.switches import parse_clock
from llmb.core import files
from llmb.errors import RUN_FAILED, Fault, LlmbError, PreflightError, UsageError, describe
from llmb.kit.seen_state import last_seen
from llmb.measure.result import CANCELLED, FAILED, SUCCESS, UNKNOWN, Result
from llmb.run import follow, retry as retrying
from llmb.run.backlog import Backlog, OnResult, open_runs
from llmb.run.named_nodes import NamedNodes
from llmb.run.polling import poll
from llmb.run.sessions import select, session_of
from llmb.run.submission import Sent

_NAMED = 8  # runs that fit on a line


@click.command("wait")
@click.argument("runs", nargs=-1)
@click.option(
    "--report",
    "output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Rewrite the report FILE while you wait: a page that reloads itself in a browser.",
)
@click.option(
    "--session",
    "sessions",
    multiple=True,
    callback=options.words,
    metavar="ID|NAME",
    help="Only the runs of this session.",
)
@options.retries_option
@options.install_option
@pass_context
def wait(
    context: CliContext,
    runs: tuple[str, ...],
    sessions: tuple[str, ...],
    retries: int,
    output: Path | None,
) -> int:
    """Follow RUNS until they end (default: all).

    Ctrl-C stops waiting, not the jobs. The exit code is 3 where a run did not end with COMPLETED.
    """
    selected = context.runs(runs)
    if sessions:
        ids = {run.id for run in select(context.runs(), sessions).runs}
        selected = [run for run in selected if run.id in ids]
    # selected by stored states, without a new poll: a run that failed since is waited for too
    if not runs:
        selected = [run for run in selected if not last_seen(run).is_end]
    if not selected:
        say("every run has ended; llmb-run results shows the results" if context.runs() else NO_RUN)
        return 0
    if output is None:
        return _follow(context, selected, retries)
    from llmb.cli.live_report import rewritten

    reported = selected if runs else _same_sessions(selected, context.runs())
    with rewritten(context, reported, output) as on_round:
        return _follow(context, selected, retries, on_round=on_round)


def _same_sessions(
    selected: Sequence[record.RunRecord], runs: Sequence[record.RunRecord]
) -> list[record.RunRecord]:
    """Return all of ``runs`` that were submitted together with one of ``selected``."""
    ids = {session_of(run).id for run in selected}
    return [run for run in runs if session_of(run).id in ids]


def _follow(
    context: CliContext,
    runs: Sequence[record.RunRecord],
    retries: int,
    backlog: Backlog[record.RunRecord] | None = None,
    on_round: follow.OnRound = lambda runs, states: None,
) -> int:
    """Follow ``runs`` until they end and return RUN_FAILED if one failed, else 0."""
    runs, ends = progress.follow(context, runs, retries, backlog, on_round)
    failed = sum(state.state in GROUPS["failed"] for state in ends.values())
    if failed and len(ends) > 1:
        say(f"{failed} of {len(ends)} failed")
    deleted = [run.id for run in runs if not files.is_folder(run.directory)]
    if deleted:
        say(f"warning: the folder of {' '.join(deleted)} was deleted, and its results with it")
    ids = [run.id for run in runs if run.id not in deleted]
    if ids:
        say(" ".join(["results: llmb-run results", *(ids if len(ids) <= _NAMED else [])]))
    return RUN_FAILED if deleted or any(state.state != COMPLETED for state in ends.values()) else 0


@click.command("cancel")
@click.argument("runs", nargs=-1)
@click.option("--all", "all_", is_flag=True, help="Cancel every run that has not ended.")
@click.option(
    "--session",
    "sessions",
    multiple=True,
    callback=options.words,
    metavar="ID|NAME",
    help="Cancel the runs of this session that have not ended.",
)
@options.install_option
@pass_context
def cancel(
    context: CliContext, runs: tuple[str, ...], all_: bool, sessions: tuple[str, ...]
) -> int:
    """Cancel RUNS that are waiting or running."""
    if sum(map(bool, (runs, all_, sessions))) != 1:
        raise UsageError(
            "name the runs to cancel, or give --session ID or --all",
            hint="llmb-run jobs --live shows them",
            code="runs-missing",
            key="runs",
        )
    _refuse_all(runs)
    named = context.runs(runs)
    if sessions:
        named = select(named, sessions).runs
    outcome = follow.cancel(context.need_cluster(), named)
    if not (runs or outcome.cancelling or outcome.not_cancelled):
        say("nothing to cancel: no run is waiting or running")
    for run, state in outcome.ended if runs else []:
        say(f"{run.id} has already ended: {state.state}")
    for run in outcome.cancelling:
        say(f"{run.id} {run.job.experiment_name}: cancelling")
    for run, reason in outcome.not_cancelled:
        say(f"{run.id} {run.job.experiment_name}: not cancelled: {reason}")
    return LlmbError.exit_code if outcome.not_cancelled else 0


def _refuse_all(runs: Sequence[str]) -> None:
    """Raise UsageError for the word ``all``, which is an option: a run's id may begin with it."""
    if "all" in runs:
        raise UsageError(
            "'all' is no run: every run is cancelled by the option --all",
            hint="llmb-run jobs cancel --all; llmb-run jobs --live shows which they are",
            code="runs-missing",
            key="runs",
            value="all",
        )


@click.command("reconcile")
@options.install_option
@pass_context
def reconcile(context: CliContext) -> int:
    """Complete an interrupted submission.

    Finds its jobs on the cluster and submits the others, each exactly once.
    """
    runs = [run for run in context.runs() if run.scheduler_id is None]
    polled = poll(context.need_cluster(), runs)
    unsent = [run for run in runs if polled[run.id].state == NOT_SUBMITTED]
    settled = True
    for run in runs:
        state, scheduler_id = polled[run.id], record.load(run.directory).scheduler_id
        if scheduler_id is not None:
            say(f"  {run.id}  {run.name}  found as {scheduler_id}: {state.state}")
        elif not state.is_over:
            say(f"  {run.id}  {run.name}  {state.state}: {state.reason}")
        settled = settled and scheduler_id is None and state.is_end
    if settled:
        say("no submission was interrupted")
    refused = _resubmit(context, unsent) if unsent else 0
    unclear = any(state.state == states.UNKNOWN for state in polled.values())
    return LlmbError.exit_code if refused or unclear else 0


def _resubmit(context: CliContext, runs: Sequence[record.RunRecord]) -> int:
    """Submit as many recorded runs as the limit of the queue allows. Return the refused number."""
    limit = context.config.max_in_queue
    if limit is not None:
        in_queue = len(open_runs(context.need_cluster(), context.runs()))
        places = max(limit - in_queue, 0)
        if places < len(runs):
            say(
                f"note: max_in_queue is {limit}, and {in_queue} of your runs are in the queue:"
                f" {len(runs) - places} of {len(runs)} stay recorded. Submit them later:"
                " llmb-run jobs reconcile"
            )
        runs = runs[:places]
    return resubmit(context, runs) if runs else 0


def _choose(
    context: CliContext, runs: Sequence[record.RunRecord], *, named: bool
) -> list[record.RunRecord]:
    """Return the failed runs and print the reason of each.

    Raises UsageError for a ``named`` run that has not failed, or that is imported.
    """
    imported = [run for run in runs if run.origin is not None]
    if imported and named:
        job = imported[0].job
        again = (
            f"llmb-run submit -w {job.workload}_{job.model_size} --dtype {job.dtype} --scale"
            f" {job.scale}"
        )
        raise UsageError(
            f"{', '.join(run.id for run in imported)} cannot be retried: it is imported, llmb did"
            " not submit it",
            hint=f"submit its configuration here: {again}",
            code="run-imported",
        )
    runs = [run for run in runs if run.origin is None]
    results = results_of(context, runs, states_of(context, runs))
    objections = [
        f"{result.identity.run} {_not_failed(result)}"
        for result in results
        if not _is_retriable(result)
    ]
    if named and objections:
        raise UsageError(
            ", ".join(objections),
            hint=f"{'nothing was submitted; ' if len(runs) > 1 else ''}{_instead(results)}",
            code="run-not-failed",
        )
    chosen, cancelled = [], 0
    for old, result in zip(runs, results, strict=True):
        run = record.load(old.directory)
        if not _is_retriable(result):
            continue
        if not named and last_seen(run).state == states.CANCELLED:
            cancelled += 1
            continue
        say(f"{run.id} attempt {run.attempt}: {result.reason or 'failed'}")
        chosen.append(run)
    if cancelled:
        runs_are = "run is" if cancelled == 1 else "runs are"
        say(f"note: {cancelled} cancelled {runs_are} skipped; name a run to retry it")
    if not chosen:
        say("no run has failed")
    return chosen


def _read_limit(context: CliContext, text: str | None) -> int | None:
    """The seconds of ``--time-limit``, which ``--slurm-arg time=`` overrides. Raises UsageError."""
    try:
        limit = None if text is None else parse_clock(text)
    except ValueError as error:
        raise UsageError(
            f"--time-limit: {error}", code="option-invalid", key="time_limit", value=text
        ) from None
    sbatch_limit = context.slurm_args.get("time")
    if sbatch_limit is None:
        return limit
    if text is not None:
        option = options.slurm_arg_in_words("time", sbatch_limit)
        say(f"note: {option} overrides --time-limit {text}")
    return seconds_of(sbatch_limit)


@click.command("retry")
@click.argument("runs", nargs=-1)
@click.option("--failed", is_flag=True, help="Retry the failed runs, except cancelled ones.")
@session_option
@click.option("--wait", "waits", is_flag=True, help="Follow the runs until they end.")
@options.retries_option
@click.option(
    "--time-limit", metavar="HH:MM:SS", help="Time limit of the new attempts (default: unchanged)."
)
@options.max_in_queue_option
@click.option("--force", is_flag=True, help="Skip the pre-submission checks.")
@options.slurm_options
@options.install_option
@pass_context
def retry(
    context: CliContext,
    runs: tuple[str, ...],
    failed: bool,
    sessions: tuple[str, ...],
    waits: bool,
    retries: int,
    time_limit: str | None,
    max_in_queue: int | None,
    force: bool,
) -> int:
    """Retry failed RUNS as new attempts of the same runs.

    `--failed` retries those of the newest session.
    """
    if bool(runs) == failed:
        raise UsageError(
            "name the runs to retry, or give --failed",
            hint="llmb-run results shows which runs failed",
            code="runs-missing",
            key="runs",
        )
    if retries and not waits:
        raise UsageError(
            "--retries requires --wait",
            hint="add --wait",
            code="retries-without-wait",
            key="retries",
        )
    limit = _read_limit(context, time_limit)
    candidates = choose_runs(context.runs(), runs, Choice(sessions=sessions))
    chosen = _choose(context, candidates, named=not failed)
    cluster = context.need_cluster()
    args = NamedNodes(context.plugins, context.config, reading.kept_rows).replaced(
        context.slurm_args
    )
    able: Sequence[record.RunRecord] = chosen
    if chosen and not force:
        able = _able(
            context,
            chosen,
            [retrying.changed(run, limit, args) for run in chosen],
            named=not failed,
        )
    if limit is None:
        _warn_of_limits(able)

    def send(tried: Sequence[record.RunRecord], on_result: OnResult) -> Sent[record.RunRecord]:
        results, interrupted = retrying.retry(
            cluster,
            tried,
            time_limit=limit,
            slurm_args=args,
            on_result=on_result,
            on_interrupt=announce_interrupt,
        )
        return Sent(
            results=tuple(results), untried=tuple(tried[len(results) :]), interrupted=interrupted
        )

    most = max_in_queue or context.config.max_in_queue
    backlog = Backlog(
        cluster=cluster,
        send=send,
        resend=resender(cluster),
        limit=most,
        items=tuple(able),
        others=open_runs(cluster, context.runs()) if able and most is not None else (),
        command=shlex.join(["llmb-run", *context.words]),
    )
    results = backlog.refill(0, Announcer())
    submitted = [result.run for result in results if result.error is None]
    if backlog.is_due:
        sum_up(results, backlog, len(able), waits=waits)
    elif backlog.interrupted or len(submitted) < len(chosen) != 1:
        say(f"{len(submitted)} of {len(chosen)} retried")
    if backlog.interrupted:
        raise KeyboardInterrupt
    code = LlmbError.exit_code if backlog.refused or len(able) < len(chosen) else 0
    code = LlmbError.exit_code if backlog.is_full and not waits else code
    is_followed = waits and (submitted or backlog.is_due)
    return (_follow(context, submitted, retries, backlog) if is_followed else 0) or code


def _able(
    context: CliContext,
    runs: Sequence[record.RunRecord],
    attempts: Sequence[record.RunRecord],
    *,
    named: bool,
) -> Sequence[record.RunRecord]:
    """Return the runs whose next attempts pass the pre-submission checks. Print the other faults.

    Raises PreflightError if none passes, or if a ``named`` one does not.
    """
    cluster = context.need_cluster()
    faults = cluster.preflight([run.launch for run in attempts])
    if not faults:
        return runs
    checked: list[tuple[Launch, list[Fault]]] = []
    for run in attempts if not named else []:
        if all(launch != run.launch for launch, _ in checked):
            checked.append((run.launch, cluster.preflight([run.launch])))
    accepted = [launch for launch, launch_faults in checked if not launch_faults]
    able = [run for run, new in zip(runs, attempts, strict=True) if new.launch in accepted]
    # Launches that pass one by one may still fail together.
    if not able or cluster.preflight([run.launch for run in attempts if run.launch in accepted]):
        error = PreflightError(list(dict.fromkeys(faults)))
        fix = "--slurm-arg KEY=VALUE gives another value, "
        fix = fix if context.config.traits.sbatch_options else ""
        error.hint = f"nothing was submitted; {fix}--force skips the checks"
        raise error
    for launch, launch_faults in checked:
        if launch_faults:
            say(f"not retried: {', '.join(run.id for run in attempts if run.launch == launch)}")
            say(describe(PreflightError(list(dict.fromkeys(launch_faults)))))
    return able


def _warn_of_limits(runs: Sequence[record.RunRecord]) -> None:
    """Warn of runs that their time limit ended: the next attempt has the same limit."""
    ended = [run.id for run in runs if last_seen(run).state == TIMEOUT]
    if ended:
        command = f"llmb-run jobs retry {' '.join(ended)} --time-limit HH:MM:SS"
        say(f"warning: {', '.join(ended)} reached the time limit. Set another one: {command}")


def _is_retriable(result: Result) -> bool:
    """Return True if the run ended without success and may be retried."""
    return result.status in (FAILED, CANCELLED) or result.state == LOST


def _instead(results: Sequence[Result]) -> str:
    """The hint if some of the runs to retry have not failed."""
    failed = [str(result.identity.run) for result in results if _is_retriable(result)]
    if failed:
        return f"to retry only the failed ones: llmb-run jobs retry {' '.join(failed)}"
    ongoing = [
        str(result.identity.run) for result in results if result.status not in (SUCCESS, UNKNOWN)
    ]
    if ongoing:
        return f"llmb-run jobs wait {' '.join(ongoing)} follows those that have not ended"
    return "to measure it again, submit it again: llmb-run submit"


def _not_failed(result: Result) -> str:
    if result.status == UNKNOWN:
        return f"is not known to have failed ({result.reason})"
    return "has succeeded" if result.status == SUCCESS else f"has not ended ({result.reason})"
