# SPDX-License-Identifier: Apache-2.0
"""Follows, cancels, retries and reconciles runs."""

from collections.abc import Sequence

import click

from llmb.cli import options, progress
from llmb.cli.context import Context, pass_context, say
from llmb.cli.jobs.runs_table import NO_RUN
from llmb.cli.results import results_of
from llmb.cli.submit.announce import Announcer, announce_interrupt, resubmit
from llmb.cli.submit.options import seconds_of
from llmb.errors import RUN_FAILED, Fault, LlmbError, PreflightError, UsageError, describe
from llmb.results.result import CANCELLED, FAILED, SUCCESS, UNKNOWN, Result
from llmb.runs import record, state as states, store
from llmb.runs.launch import Launch
from llmb.runs.state import COMPLETED, LOST, NOT_SUBMITTED, TIMEOUT
from llmb.submission import follow, retry as retrying
from llmb.workload.switches import parse_clock

_NAMED = 8  # runs that fit on a line


@click.command("wait")
@click.argument("runs", nargs=-1)
@options.retries_option
@options.install_option
@pass_context
def wait(context: Context, runs: tuple[str, ...], retries: int) -> int:
    """Follow RUNS until they end (default: all).

    Ctrl-C stops waiting, not the jobs. The exit code is 3 where a run did not end with COMPLETED.
    """
    found = context.runs(runs)
    if not runs:  # selected by stored states, without a new poll: a run that failed since is waited for too
        seen = [store.seen_state(run) for run in found]
        found = [run for run, state in zip(found, seen, strict=True) if state is None or not state.is_end]
    if not found:
        say("every run has ended; llmb-run results shows the results" if context.runs() else NO_RUN)
        return 0
    return _follow(context, found, retries)


def _follow(context: Context, runs: Sequence[record.RunRecord], retries: int) -> int:
    """Follow ``runs`` until they end; the exit code is RUN_FAILED where one failed."""
    _, ends = progress.follow(context, runs, retries)
    gone = [run.id for run in runs if not run.directory.is_dir()]
    if gone:
        say(f"warning: the folder of {' '.join(gone)} was deleted, and its results with it")
    left = [run.id for run in runs if run.id not in gone]
    if left:
        say(" ".join(["results: llmb-run results", *(left if len(left) <= _NAMED else [])]))
    return RUN_FAILED if gone or any(state.state != COMPLETED for state in ends.values()) else 0


@click.command("cancel")
@click.argument("runs", nargs=-1)
@click.option("--all", "all_", is_flag=True, help="Cancel every run that has not ended.")
@options.install_option
@pass_context
def cancel(context: Context, runs: tuple[str, ...], all_: bool) -> int:
    """Cancel RUNS that are waiting or running."""
    if bool(runs) == all_:
        hint = "llmb-run jobs list --live shows them"
        raise UsageError("name the runs to cancel, or give --all", hint=hint, code="runs-missing", key="runs")
    done = follow.cancel(context.need_cluster(), context.runs(runs))
    if all_ and not (done.cancelling or done.not_cancelled):
        say("nothing to cancel: no run is waiting or running")
    for run, state in [] if all_ else done.ended:
        say(f"{run.id} has already ended: {state.state}")
    for run in done.cancelling:
        say(f"{run.id} {run.job.experiment_name}: cancelling")
    for run, why in done.not_cancelled:
        say(f"{run.id} {run.job.experiment_name}: not cancelled: {why}")
    return LlmbError.exit_code if done.not_cancelled else 0


@click.command("reconcile")
@options.install_option
@pass_context
def reconcile(context: Context) -> int:
    """Complete an interrupted submission.

    Finds its jobs on the cluster and submits the others, each exactly once.
    """
    runs = [run for run in context.runs() if run.scheduler_id is None]
    found = follow.poll(context.need_cluster(), runs)
    unsent = [run for run in runs if found[run.id].state == NOT_SUBMITTED]
    settled = True
    for run in runs:
        state, known = found[run.id], record.load(run.directory).scheduler_id
        if known is not None:
            say(f"  {run.id}  {run.name}  found as {known}: {state.state}")
        elif not state.is_over:
            say(f"  {run.id}  {run.name}  {state.state}: {state.reason}")
        settled = settled and known is None and state.is_end
    if settled:
        say("no submission was interrupted")
    refused = resubmit(context, unsent) if unsent else 0
    unclear = any(state.state == states.UNKNOWN for state in found.values())
    return LlmbError.exit_code if refused or unclear else 0


def _choose(context: Context, runs: Sequence[record.RunRecord], *, named: bool) -> list[record.RunRecord]:
    """The failed runs; prints the reason of each.

    Raises UsageError for a ``named`` run that has not failed, or that is imported.
    """
    imported = [run for run in runs if run.origin is not None]
    if imported and named:
        job = imported[0].job
        again = f"llmb-run submit -w {job.workload}_{job.model_size} --dtype {job.dtype} --scale {job.scale}"
        message = f"{', '.join(run.id for run in imported)} cannot be retried: it is imported, llmb did not submit it"
        raise UsageError(message, hint=f"submit its configuration here: {again}", code="run-imported")
    runs = [run for run in runs if run.origin is None]
    results = results_of(context, runs)
    wrong = [f"{result.identity.run} {_not_failed(result)}" for result in results if not _is_retriable(result)]
    if named and wrong:
        hint = f"{'nothing was submitted; ' if len(runs) > 1 else ''}{_instead(results)}"
        raise UsageError(", ".join(wrong), hint=hint, code="run-not-failed")
    chosen, cancelled = [], 0
    for old, result in zip(runs, results, strict=True):
        run = record.load(old.directory)
        if not _is_retriable(result):
            continue
        if not named and (seen := store.seen_state(run)) is not None and seen.state == states.CANCELLED:
            cancelled += 1
            continue
        say(f"{run.id} attempt {run.attempt}: {result.reason or 'failed'}")
        chosen.append(run)
    if cancelled:
        say(f"note: skipped {cancelled} cancelled: name a cancelled run to retry it")
    if not chosen:
        say("no run has failed")
    return chosen


def _read_limit(context: Context, text: str | None) -> int | None:
    """The seconds of ``--time-limit``, or of ``--slurm-arg time=``, which overrides it. Raises UsageError."""
    try:
        limit = None if text is None else parse_clock(text)
    except ValueError as error:
        raise UsageError(f"--time-limit: {error}", code="option-invalid", key="time_limit", value=text) from None
    given = context.slurm_args.get("time")
    if given is None:
        return limit
    if text is not None:
        say(f"note: {options.slurm_arg_in_words('time', given)} overrides --time-limit {text}")
    return seconds_of(given)


@click.command("retry")
@click.argument("runs", nargs=-1)
@click.option("--failed", is_flag=True, help="Retry all failed runs, except cancelled ones.")
@click.option("--wait", "waits", is_flag=True, help="Follow the runs until they end.")
@options.retries_option
@click.option("--time-limit", metavar="HH:MM:SS", help="Time limit of the new attempts (default: unchanged).")
@click.option("--force", is_flag=True, help="Skip the pre-submission checks.")
@options.slurm_options
@options.install_option
@pass_context
def retry(
    context: Context,
    runs: tuple[str, ...],
    failed: bool,
    waits: bool,
    retries: int,
    time_limit: str | None,
    force: bool,
) -> int:
    """Retry failed RUNS as new attempts of the same runs."""
    if bool(runs) == failed:
        hint = "llmb-run results shows which runs failed"
        raise UsageError("name the runs to retry, or give --failed", hint=hint, code="runs-missing", key="runs")
    if retries and not waits:
        raise UsageError("--retries requires --wait", hint="add --wait", code="retries-without-wait", key="retries")
    limit = _read_limit(context, time_limit)
    chosen = _choose(context, context.runs(runs), named=not failed)
    cluster, args = context.need_cluster(), context.slurm_args
    able: Sequence[record.RunRecord] = chosen
    if chosen and not force:
        able = _able(context, chosen, [retrying.changed(one, limit, args) for one in chosen], named=not failed)
    if limit is None:
        _warn_of_limits(able)
    results, interrupted = retrying.retry(
        cluster, able, time_limit=limit, slurm_args=args, on_result=Announcer(), on_interrupt=announce_interrupt
    )
    submitted = [one.run for one in results if one.error is None]
    if interrupted or len(submitted) < len(chosen) != 1:
        say(f"{len(submitted)} of {len(chosen)} retried")
    if interrupted:
        raise KeyboardInterrupt
    code = LlmbError.exit_code if len(submitted) < len(chosen) else 0
    return (_follow(context, submitted, retries) if waits and submitted else 0) or code


def _able(
    context: Context, runs: Sequence[record.RunRecord], next_: Sequence[record.RunRecord], *, named: bool
) -> Sequence[record.RunRecord]:
    """The runs whose next attempts pass the pre-submission checks; prints the faults of the others.

    Raises PreflightError where none passes, or where one that is ``named`` does not.
    """
    cluster = context.need_cluster()
    faults = cluster.preflight([one.launch for one in next_])
    if not faults:
        return runs
    seen: list[tuple[Launch, list[Fault]]] = []
    for one in next_ if not named else []:
        if all(launch != one.launch for launch, _ in seen):
            seen.append((one.launch, cluster.preflight([one.launch])))
    wrong = [next(own for launch, own in seen if launch == one.launch) for one in next_] if seen else []
    able = [run for run, own in zip(runs, wrong, strict=True) if not own] if seen else []
    if not able or cluster.preflight([one.launch for one, own in zip(next_, wrong, strict=True) if not own]):
        error = PreflightError(list(dict.fromkeys(faults)))
        other = "--slurm-arg KEY=VALUE gives another value, " if context.config.traits.sbatch_options else ""
        error.hint = f"nothing was submitted; {other}--force skips the checks"
        raise error
    for launch, own in seen:
        if own:
            say(f"not retried: {', '.join(one.id for one in next_ if one.launch == launch)}")
            say(describe(PreflightError(list(dict.fromkeys(own)))))
    return able


def _warn_of_limits(runs: Sequence[record.RunRecord]) -> None:
    """Warn of runs that their time limit ended: the next attempt has the same limit."""
    ended = [one.id for one in runs if (end := store.seen_state(one)) is not None and end.state == TIMEOUT]
    if ended:
        again = f"llmb-run jobs retry {' '.join(ended)} --time-limit HH:MM:SS"
        say(f"warning: {', '.join(ended)} reached the time limit; another limit: {again}")


def _is_retriable(result: Result) -> bool:
    """Whether the run ended without success and may be retried."""
    return result.status in (FAILED, CANCELLED) or result.state == LOST


def _instead(results: Sequence[Result]) -> str:
    """The hint where some of the runs to retry have not failed."""
    failed = [str(one.identity.run) for one in results if _is_retriable(one)]
    if failed:
        return f"to retry only the failed ones: llmb-run jobs retry {' '.join(failed)}"
    ongoing = [str(one.identity.run) for one in results if one.status not in (SUCCESS, UNKNOWN)]
    if ongoing:
        return f"llmb-run jobs wait {' '.join(ongoing)} follows those that have not ended"
    return "to measure it again, submit it again: llmb-run single or submit-all"


def _not_failed(result: Result) -> str:
    if result.status == UNKNOWN:
        return f"is not known to have failed ({result.reason})"
    return "has succeeded" if result.status == SUCCESS else f"has not ended ({result.reason})"
